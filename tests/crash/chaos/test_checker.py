"""The checker detects each injected fault, and reports it by its own word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.order.order import CUSTOMER
from examples.vm.vm import OWNER
from interlock.errors import RejectedError, UnavailableError
from interlock.model.journal.message import Message
from interlock.model.journal.work import WorkId
from interlock.ports.store import Append
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.worker import Worker
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from tests.crash.chaos.checker import Kept, Verdict, judge_messages, judged
from tests.crash.chaos.ledger import Ledger, RefusedError
from tests.crash.chaos.world import charts, write_definitions

ORDER = {"amount": 1, "item": "lamp"}


class Quiet:
    """The services in this process, without randomness; they fail only as a test says."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.refused: set[str] = set()
        self.unheard: set[str] = set()

    async def do(self, operation: str, key: str, entity: str) -> str:
        """Do it once per key; refuse it, or lose the first answer, if the test says so."""
        if operation in self.refused:
            raise RejectedError("no", code="refused")
        try:
            number = self.ledger.do(operation, key, entity)
        except RefusedError:
            raise RejectedError("no", code="refused") from None
        if operation in self.unheard:
            self.unheard.remove(operation)
            raise UnavailableError("cut", code="bank.unreachable")
        return number

    async def undo(self, name: str) -> None:
        """Undo it."""
        self.ledger.undo(name)

    async def find(self, key: str) -> str | None:
        """Find it."""
        return self.ledger.find(key)


class Stage:
    """A store, a virtual clock, and the examples."""

    def __init__(self, runtime: Runtime, store: MemoryStore, clock: VirtualClock, services: Quiet) -> None:
        self.runtime = runtime
        self.store = store
        self.clock = clock
        self.services = services

    async def order(self) -> None:
        """Place an order, and advance the clock by ten minutes."""
        await self.runtime.create("order/1", ORDER, key="created")
        await self.runtime.send("order/1", "order.placed", key="placed", principal=CUSTOMER)
        await self.clock.advance(600_000)

    async def verdict(self, kept: Kept | None = None) -> Verdict:
        """Return the verdict of the checker."""
        return await judged(self.runtime, kept or {}, self.services.ledger.book())


@asynccontextmanager
async def stage(folder: Path, services: Quiet | None = None, *, at_work: bool = True) -> AsyncIterator[Stage]:
    """Both examples on a memory store, with a worker or without."""
    write_definitions(folder)
    services, store, clock = services or Quiet(), MemoryStore(), VirtualClock()
    bound = charts(services, folder)
    runtime = Runtime(store, ChartRegistry(each.kernel for each in bound), clock)
    worker = Worker(runtime, {name: each for chart in bound for name, each in chart.handlers.items()})
    if at_work:
        await worker.start()
    try:
        yield Stage(runtime, store, clock, services)
    finally:
        await worker.stop()


async def test_a_sound_run_is_found_sound(tmp_path: Path) -> None:
    services = Quiet()
    services.unheard = {"charge", "volume"}
    async with stage(tmp_path, services) as here:
        created = await here.runtime.create("vm/1", {"image": "debian"}, key="created")
        await here.runtime.send("vm/1", "setup.requested", key="wanted", principal=OWNER)
        await here.order()
        verdict = await here.verdict({("vm/1", "created"): created.version})

    assert [] == verdict.found()
    assert {"order shipped": 1, "vm live": 1, "network ready": 1, "storage ready": 1} == verdict.ends
    assert "chaos: 4 entities, 0 stuck, 0 lost, 0 double effects, all sagas settled" == verdict.line()


async def test_a_handler_that_ignores_its_key_is_found(tmp_path: Path) -> None:
    class Forgetful(Quiet):
        calls = 0

        async def do(self, operation: str, key: str, entity: str) -> str:
            self.calls += 1
            return await super().do(operation, f"{key}.{self.calls}", entity)

    services = Forgetful()
    services.unheard = {"charge"}
    async with stage(tmp_path, services) as here:
        await here.order()
        verdict = await here.verdict()

    assert "order/1 has a second charge, under order/1/charge.2" in verdict.doubles
    assert ["order/1 is shipped and has 2 of charge, not 1"] == verdict.unsettled


async def test_an_effect_before_its_entry_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(tmp_path, at_work=False) as here:
        kept = here.store.append

        async def early(append: Append) -> Any:
            for work in append.work.created:
                if work.name == "payment.charge":
                    here.services.ledger.do("charge", work.body["key"], append.entity)
                    raise UnavailableError("the process died here", code="died")
            return await kept(append)

        monkeypatch.setattr(here.store, "append", early)
        await here.runtime.create("order/1", ORDER, key="created")
        with pytest.raises(UnavailableError):
            await here.runtime.send("order/1", "order.placed", key="placed", principal=CUSTOMER)
        verdict = await here.verdict()

    assert ["order/1/charge: done, but no entry asks for it"] == verdict.doubles


async def test_a_lost_row_of_work_is_found(tmp_path: Path) -> None:
    async with stage(tmp_path, at_work=False) as here:
        await here.runtime.create("order/1", ORDER, key="created")
        await here.runtime.send("order/1", "order.placed", key="placed", principal=CUSTOMER)
        (row,) = (await here.store.list_work(WorkQuery(lane="effect"))).rows

        assert await here.store.delete_work("order/1", WorkId("effect", row.work.id.version, row.work.id.ordinal))
        assert ["order/1 is in charge_pending"] == (await here.verdict()).stuck


async def test_unfinished_work_is_found(tmp_path: Path) -> None:
    async with stage(tmp_path, at_work=False) as here:
        await here.runtime.create("order/1", ORDER, key="created")
        verdict = await here.verdict()

    assert ["order/1 is in draft", "order/1: work `after.21600000ms.draft` is left, None"] == verdict.stuck


@pytest.mark.parametrize("refused", ["parcel", "content"])
async def test_a_skipped_compensation_is_found(tmp_path: Path, refused: str) -> None:
    class Idle(Quiet):
        async def undo(self, name: str) -> None:
            pass

    services = Idle()
    services.refused = {refused}
    async with stage(tmp_path, services) as here:
        await here.runtime.create("vm/1", {"image": "debian"}, key="created")
        await here.runtime.send("vm/1", "setup.requested", key="wanted", principal=OWNER)
        await here.order()
        verdict = await here.verdict()

    expected = {
        "parcel": [
            "order/1 is refunded and has 1 of charge, not 0",
            "order/1 is refunded and has 1 of reservation, not 0",
        ],
        "content": [
            "vm/1 is setup_failed and has 1 of address, not 0",
            "vm/1 is setup_failed and has 1 of volume, not 0",
        ],
    }
    assert expected[refused] == verdict.unsettled
    assert verdict.line().endswith("2 sagas unsettled")


async def test_an_effect_after_its_compensation_is_found(tmp_path: Path) -> None:
    services = Quiet()
    services.refused = {"parcel"}
    async with stage(tmp_path, services) as here:
        await here.order()
        assert [] == (await here.verdict()).found()
        ledger = services.ledger
        (key,) = [each.key for each in ledger.operations.values() if each.operation == "reservation"]
        with pytest.raises(RefusedError):
            ledger.do("reservation", key, "order/1")
        ledger.closed.clear()
        del ledger.operations[key]
        ledger.do("reservation", key, "order/1")

        assert ["order/1 is refunded and has 1 of reservation, not 0"] == (await here.verdict()).unsettled


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({("order/1", "paid"): 2}, "order/1: `paid` was acknowledged at 2, but is at None"),
        ({("order/1", "placed"): 3}, "order/1: `placed` was acknowledged at 3, but is at 2"),
        ({("order/9", "created"): 1}, "order/9: `created` was acknowledged at 1, but is at None"),
    ],
)
async def test_a_lost_acknowledged_event_is_found(tmp_path: Path, kept: Kept, said: str) -> None:
    async with stage(tmp_path) as here:
        await here.order()

        assert [said] == (await here.verdict(kept)).lost


async def test_a_missing_effect_is_found(tmp_path: Path) -> None:
    async with stage(tmp_path) as here:
        await here.order()
        operations = here.services.ledger.operations
        del operations[next(key for key, each in operations.items() if each.operation == "parcel")]

        assert ["order/1 is shipped and has no parcel"] == (await here.verdict()).lost


def _told(entity: str, version: int, *, type: str = "order.state.changed") -> Message:
    data = {"version": version}
    return Message(id=f"{entity}/{version}/{type}", source="/test", type=type, subject=entity, data=data)


@pytest.mark.parametrize(
    ("versions", "lost", "doubles"),
    [
        ([1, 2, 3], [], []),
        ([1, 1, 2, 3, 2], [], []),
        ([1, 3], ["order/1: version 2 was not published"], []),
        ([2, 1, 3], ["order/1: published in the order [2, 1, 3]"], []),
        ([1, 2, 3, 4], [], ["order/1: version 4 was published, but not applied"]),
    ],
)
def test_messages_that_are_missing_or_out_of_order_are_found(
    versions: list[int], lost: list[str], doubles: list[str]
) -> None:
    verdict = Verdict(applied={"order/1": [1, 2, 3]})
    emitted = _told("order/1", 9, type="order.paid")
    judge_messages(verdict, [emitted, *(_told("order/1", each) for each in versions)])

    assert (lost, doubles) == (verdict.lost, verdict.doubles)


def test_a_message_of_an_unknown_entity_is_found() -> None:
    verdict = Verdict()
    judge_messages(verdict, [_told("order/9", 1)])

    assert ["order/9: published, but unknown"] == verdict.doubles


def test_a_ledger_records_a_key_once() -> None:
    ledger = Ledger()
    assert ledger.do("charge", "a", "order/1") == ledger.do("charge", "a", "order/1")
    ledger.undo("a")
    ledger.do("charge", "b", "order/1")
    assert [] == ledger.doubles
    ledger.do("charge", "c", "order/1")

    assert ["order/1 has a second charge, under c"] == ledger.doubles


def test_a_ledger_reports_a_key_used_for_two_effects() -> None:
    ledger = Ledger()
    ledger.do("charge", "a", "order/1")
    ledger.do("charge", "a", "order/2")

    assert ["a is the charge of order/1, and is used for the charge of order/2"] == ledger.doubles


def test_a_ledger_refuses_closed_keys() -> None:
    ledger = Ledger()
    ledger.undo("a")
    ledger.refuse("b")

    assert ledger.find("c") is None
    for key in ("a", "b", "c"):
        with pytest.raises(RefusedError):
            ledger.do("charge", key, "order/1")
