"""The trades of the demo: the charts that lie beside this file, with handlers that ask the services.

Rule 1: the folder of a demo is a project. It holds copies of the definitions and an `interlock.toml`, so that every
command works there without further words. The copies are written at each start: an edit is for looking, not keeping.
Rule 2: a folder of somebody else is left alone: only an empty one, or one that says that it is a demo's, is used.
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
{MARK}: in this folder `interlock top`, `stuck`, `tail` ... need no further words.
store = "sqlite:///{STORE}"
charts = [{", ".join(f'"{each}"' for each in DEFINITIONS)}]
"""


def settled_in(folder: Path) -> str:
    """Make the folder a project, and give the address of its store. Raises UsageError for a folder of somebody else."""
    folder.mkdir(parents=True, exist_ok=True)
    project = folder / "interlock.toml"
    is_ours = project.is_file() and project.read_text(encoding="utf-8", errors="replace").startswith(MARK)
    if not is_ours and any(folder.iterdir()):
        hint = "name a new or an empty one with --folder"
        raise UsageError(f"{folder} holds something that is not of a demo", code="demo.folder", hint=hint)
    project.write_text(PROJECT, encoding="utf-8")  # first: an interrupted start leaves a folder that is ours
    for name in DEFINITIONS:
        text = (files("interlock.demo") / name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    return f"sqlite:///{(folder / STORE).absolute()}"


def trades(folder: Path, services: Services) -> list[BoundChart]:
    """The charts of a folder with their handlers."""
    order, vm, network, storage = (load(folder / name) for name in DEFINITIONS)
    _shop(order, services)
    _provider(vm, network, storage, services)
    return [order, vm, network, storage]


def _shop(order: BoundChart, services: Services) -> None:
    @order.handler("payment.charge")
    async def charge(attempt: Attempt) -> dict[str, str]:
        return {"charge": await services.do("charge", attempt.key, attempt.entity, attempt.number)}

    @order.handler("payment.lookup")
    async def look_up(attempt: Attempt) -> dict[str, str | None]:
        return {"charge": await services.find(attempt.input["charge"], attempt.key, attempt.number)}

    @order.reconciler("unresolved-charges", state="charge_unresolved", older="40s", every="10s")
    async def look_again(seen: ReconcileRequest) -> ReconcileResult:
        return ReconcileResult(
            "charge.resolved", {"charge": await services.find(f"{seen.entity}/charge", seen.entity, seen.now_ms)}
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


def _provider(vm: BoundChart, network: BoundChart, storage: BoundChart, services: Services) -> None:
    @network.handler("net.allocate")
    async def allocate(attempt: Attempt) -> str:
        return await services.do("address", attempt.key, attempt.entity, attempt.number)

    @network.handler("net.announce")
    async def announce(attempt: Attempt) -> str:
        return await services.do("route", attempt.key, attempt.entity, attempt.number)

    @network.handler("net.release")  # by the network itself, or by the machine that has it
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
