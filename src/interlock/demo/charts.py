"""The charts of the demo, with handlers that call the services.

Rule 1: the folder of a demo is a project with copies of the definitions and an `interlock.toml`, so that every command
works there without options. The copies are written at each start: edits are lost.
Rule 2: only an empty folder, or one that a demo created, is used.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from interlock.assemble.charts import BoundChart, load
from interlock.demo.services import Services
from interlock.effects.handlers import Attempt
from interlock.errors import UsageError
from interlock.runtime.reconcile.definition import ReconcileRequest, ReconcileResult

DEFINITIONS = tuple(f"{kind}.interlock.yaml" for kind in ("order", "vm", "network", "storage"))
STORE = "demo.db"
MARK = "# Written by `interlock demo`"
PROJECT = f"""\
{MARK}: in this folder `interlock top`, `stuck`, `tail` ... need no options.
store = "sqlite:///{STORE}"
charts = [{", ".join(f'"{each}"' for each in DEFINITIONS)}]
"""


def prepare_folder(folder: Path) -> str:
    """Make the folder a project and return its store URL. Raises UsageError for a folder with other files."""
    folder.mkdir(parents=True, exist_ok=True)
    project = folder / "interlock.toml"
    is_demo = project.is_file() and project.read_text(encoding="utf-8", errors="replace").startswith(MARK)
    if not is_demo and any(folder.iterdir()):
        hint = "use a new or empty folder with --folder"
        raise UsageError(f"{folder} contains files that do not belong to a demo", code="demo.folder", hint=hint)
    project.write_text(
        PROJECT, encoding="utf-8"
    )  # first, so that an interrupted start leaves a folder that a demo created
    for name in DEFINITIONS:
        text = (files("interlock.demo") / name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    return f"sqlite:///{(folder / STORE).absolute()}"


def load_charts(folder: Path, services: Services) -> list[BoundChart]:
    """Return the charts of a folder with their handlers."""
    order, vm, network, storage = (load(folder / name) for name in DEFINITIONS)
    _register_order_handlers(order, services)
    _register_machine_handlers(vm, network, storage, services)
    return [order, vm, network, storage]


def _register_order_handlers(order: BoundChart, services: Services) -> None:
    @order.handler("payment.charge")
    async def charge(attempt: Attempt) -> dict[str, str]:
        return {"charge": await services.do("charge", attempt.key, attempt.entity, attempt.number)}

    @order.handler("payment.lookup")
    async def look_up(attempt: Attempt) -> dict[str, str | None]:
        return {"charge": await services.find(attempt.input["charge"], attempt.key, attempt.number)}

    @order.reconciler("unresolved-charges", state="charge_unresolved", older="40s", every="10s")
    async def look_up_again(request: ReconcileRequest) -> ReconcileResult:
        return ReconcileResult(
            "charge.resolved",
            {"charge": await services.find(f"{request.entity}/charge", request.entity, request.now_ms)},
        )

    @order.handler("payment.refund")
    async def refund(attempt: Attempt) -> None:
        await services.undo("refund", attempt.key, attempt.number)

    @order.handler("stock.reserve")
    async def reserve(attempt: Attempt) -> str:
        return await services.do("reservation", attempt.key, attempt.entity, attempt.number)

    @order.handler("stock.release")
    async def release(attempt: Attempt) -> None:
        await services.undo("release", attempt.key, attempt.number)

    @order.handler("carrier.book")
    async def book(attempt: Attempt) -> str:
        return await services.do("parcel", attempt.key, attempt.entity, attempt.number)

    @order.handler("carrier.cancel")
    async def cancel(attempt: Attempt) -> None:
        await services.undo("cancellation", attempt.key, attempt.number)

    @order.handler("receipt.send")
    async def send_receipt(attempt: Attempt) -> None:
        await services.do("receipt", attempt.key, attempt.entity, attempt.number)


def _register_machine_handlers(vm: BoundChart, network: BoundChart, storage: BoundChart, services: Services) -> None:
    @network.handler("net.allocate")
    async def allocate(attempt: Attempt) -> str:
        return await services.do("address", attempt.key, attempt.entity, attempt.number)

    @network.handler("net.announce")
    async def announce(attempt: Attempt) -> str:
        return await services.do("route", attempt.key, attempt.entity, attempt.number)

    @network.handler("net.release")  # for the network, or for its machine
    @vm.handler("net.release")
    async def release(attempt: Attempt) -> None:
        await services.undo("release", attempt.key, attempt.number)

    @storage.handler("disk.create")
    async def create(attempt: Attempt) -> str:
        return await services.do("volume", attempt.key, attempt.entity, attempt.number)

    @storage.handler("disk.fill")
    async def fill(attempt: Attempt) -> str:
        return await services.do("content", attempt.key, attempt.entity, attempt.number)

    @storage.handler("disk.remove")
    @vm.handler("disk.remove")
    async def remove(attempt: Attempt) -> None:
        await services.undo("removal", attempt.key, attempt.number)

    @vm.handler("hypervisor.boot")
    async def boot(attempt: Attempt) -> str:
        return await services.do("power", attempt.key, attempt.entity, attempt.number)

    @vm.handler("hypervisor.destroy")
    async def destroy(attempt: Attempt) -> None:
        await services.undo("shutdown", attempt.key, attempt.number)
