"""A machine from its parts: children side by side, and what is not needed in the end is given back, on a database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from examples.vm.vm import OWNER, SETTLED, provider
from interlock.assemble.runtimes import open as opening
from interlock.ports.store import EntityQuery
from interlock.runtime.runtime import Runtime
from tests.docs.examples.scene import Services, reached


@asynccontextmanager
async def machines(folder: Path, services: Services) -> AsyncIterator[Runtime]:
    """Machines in a file, and their handlers."""
    async with opening(f"sqlite:///{folder}/machines.db", charts=provider(services)) as runtime:
        yield runtime


async def wanted(runtime: Runtime) -> None:
    """A machine is asked for."""
    await runtime.create("vm/1", {"image": "debian"}, key="created")
    await runtime.send("vm/1", "setup.requested", key="wanted", principal=OWNER)


async def children(runtime: Runtime) -> dict[str, str]:
    """Each child and where it is."""
    found = [row for kind in ("network", "storage") for row in (await runtime.list(EntityQuery(kind=kind))).rows]
    return {row.entity.partition("/")[0]: ", ".join(row.configuration) for row in found}


async def test_network_and_storage_are_created_in_parallel(tmp_path: Path) -> None:
    services = Services(address="waits", volume="waits")
    async with machines(tmp_path, services) as runtime:
        await wanted(runtime)
        await services.heard("address", "volume")
        assert {"address", "volume"} == set(services.asked)
        services.may_go_on.set()

        assert "live" == (await reached(runtime, "vm/1", SETTLED))[-1]
        assert ["address", "content", "power", "route", "volume"] == services.held("vm/1")
        assert {"network": "ready", "storage": "ready"} == await children(runtime)


@pytest.mark.parametrize(
    ("refused", "undone", "ends"),
    [
        ("address", ["volume"], {"network": "refused", "storage": "ready"}),
        ("route", ["address", "volume"], {"network": "refused", "storage": "ready"}),
        ("volume", ["address"], {"network": "ready", "storage": "refused"}),
        ("content", ["address", "volume"], {"network": "ready", "storage": "refused"}),
        ("power", ["address", "volume"], {"network": "ready", "storage": "ready"}),
    ],
)
async def test_what_one_part_cannot_have_the_others_give_back(
    tmp_path: Path, refused: str, undone: list[str], ends: dict[str, str]
) -> None:
    services = Services(**{refused: "refused"})
    async with machines(tmp_path, services) as runtime:
        await wanted(runtime)

        assert "setup_failed" == (await reached(runtime, "vm/1", SETTLED))[-1]
        assert [] == [each for each in services.held("vm/1") if each not in ("route", "content")]
        assert undone == sorted(each.removeprefix("undo ") for each in services.asked if each.startswith("undo"))
        assert ends == await children(runtime)


async def test_a_machine_deleted_during_setup_is_released(tmp_path: Path) -> None:
    services = Services(address="waits")
    async with machines(tmp_path, services) as runtime:
        await wanted(runtime)
        receipt = await runtime.send("vm/1", "delete.requested", key="unwanted", principal=OWNER)
        services.may_go_on.set()

        assert "applied" == receipt.outcome
        assert "gone" == (await reached(runtime, "vm/1", SETTLED))[-1]
        assert "power" not in services.asked
        assert [] == [each for each in services.held("vm/1") if each not in ("route", "content")]


async def test_a_live_machine_is_deleted_the_newest_part_first(tmp_path: Path) -> None:
    services = Services()
    async with machines(tmp_path, services) as runtime:
        await wanted(runtime)
        await reached(runtime, "vm/1", ["live"])
        await runtime.send("vm/1", "delete.requested", key="unwanted", principal=OWNER)
        again = await runtime.send("vm/1", "delete.requested", key="unwanted", principal=OWNER)

        assert "duplicate" == again.outcome
        assert "gone" == (await reached(runtime, "vm/1", {"gone"}))[-1]
        assert ["undo power", "undo volume", "undo address"] == services.asked[-3:]


async def test_what_cannot_be_given_back_waits_for_an_operator(tmp_path: Path) -> None:
    services = Services(power="refused", undo="refused")
    async with machines(tmp_path, services) as runtime:
        await wanted(runtime)
        await reached(runtime, "vm/1", ["removal_unsettled"])
        assert {"address", "volume"} <= set(services.held("vm/1"))
        del services.troubles["undo"]
        await runtime.send("vm/1", "removal.repeated", principal={"id": "joan", "roles": ["operator"]})

        assert "setup_failed" == (await reached(runtime, "vm/1", SETTLED))[-1]
        assert [] == [each for each in services.held("vm/1") if each not in ("route", "content")]


async def test_a_child_that_cannot_settle_holds_its_machine_up_until_a_person_came(tmp_path: Path) -> None:
    services = Services(route="refused", undo="refused")
    async with machines(tmp_path, services) as runtime:
        await wanted(runtime)
        await services.heard("route")
        (network,) = (await runtime.list(EntityQuery(kind="network"))).rows
        await reached(runtime, network.entity, ["unsettled"])
        assert ["setup.network.network_pending"] == [
            each for each in (await runtime.state("vm/1")).configuration if "network" in each
        ]
        del services.troubles["undo"]
        services.ledger.undo(next(each.key for each in services.ledger.held("vm/1") if each.operation == "address"))
        await runtime.send(network.entity, "network.settled", principal={"id": "joan", "roles": ["operator"]})

        assert "setup_failed" == (await reached(runtime, "vm/1", SETTLED))[-1]
        assert [] == [each for each in services.held("vm/1") if each not in ("route", "content")]
