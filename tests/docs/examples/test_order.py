"""Each way in which an order fails between the bank, the database and the queue, on a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from examples.order.order import CHART, CUSTOMER, ENDS, shop
from interlock.assemble.runtimes import open as opening
from interlock.errors import UnavailableError
from interlock.model.journal.message import Message
from interlock.ports.store import Append
from interlock.runtime.runtime import Runtime
from tests.crash.chaos.services import Line, serves
from tests.crash.chaos.world import works, write_definitions
from tests.crash.kills.forked_workers import ANSWER_SECONDS_MAX, started
from tests.docs.examples.scene import Services, reached
from tests.support.eventually import PATIENCE_SECONDS


class Bus:
    """A bus that is away for the first few messages."""

    def __init__(self, absences: int) -> None:
        self.absences = absences
        self.messages: list[Message] = []
        self._heard = asyncio.Event()

    async def publish(self, message: Message) -> None:
        """Take it, or be away."""
        if self.absences:
            self.absences -= 1
            raise UnavailableError("nobody listens", code="bus.away")
        self.messages.append(message)
        self._heard.set()

    async def close(self) -> None:
        """Nothing to close."""

    async def heard(self, type: str, *, times: int) -> None:
        """Wait until so many messages of a type came; fails after half a minute."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(each.type == type for each in self.messages) < times:
                self._heard.clear()
                await self._heard.wait()


PAID = ["fulfilment.reservation", "fulfilment.parcel"]
SUPPORT = {"id": "joan", "roles": ["support"]}


@asynccontextmanager
async def orders(folder: Path, services: Services, *, hurry: float = 1) -> AsyncIterator[Runtime]:
    """Orders in a file, and their handlers; with timeouts as they are, or a fraction where a test waits for them."""
    write_definitions(folder, hurry)
    chart = shop(services, folder / CHART.name, older="1ms", every="20ms")
    async with opening(f"sqlite:///{folder}/orders.db", charts=[chart]) as runtime:
        yield runtime


async def placed(runtime: Runtime, entity: str = "order/1") -> None:
    """An order is created and placed."""
    await runtime.create(entity, {"amount": 4_990, "item": "lamp"}, key="created")
    await runtime.send(entity, "order.placed", key="placed", principal=CUSTOMER)


async def test_an_order_is_charged_reserved_and_shipped(tmp_path: Path) -> None:
    services = Services()
    async with orders(tmp_path, services) as runtime:
        await placed(runtime)

        assert ["draft", "charge_pending", *PAID, "shipped"] == await reached(runtime, "order/1", ENDS)
        assert ["charge", "parcel", "reservation"] == services.held("order/1")
        assert ["charge", "reservation", "parcel"] == services.asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "path", "held"),
    [
        ("never answers", [*PAID, "shipped"], ["charge", "parcel", "reservation"]),
        ("never comes", ["charge_declined"], []),
    ],
)
async def test_a_charge_that_timed_out_is_looked_up_by_its_id(
    tmp_path: Path, trouble: str, path: list[str], held: list[str]
) -> None:
    services = Services(charge=trouble)
    async with orders(tmp_path, services, hurry=8) as runtime:
        await placed(runtime)

        expected = ["draft", "charge_pending", "charge_unknown", *path]
        assert expected == await reached(runtime, "order/1", ENDS)
        assert held == services.held("order/1")
        assert ["charge", "find"] == services.asked[:2]


@pytest.mark.slow
@pytest.mark.parametrize(("trouble", "end"), [("never answers", "shipped"), ("never comes", "charge_declined")])
async def test_a_charge_that_could_not_be_looked_up_is_reconciled(tmp_path: Path, trouble: str, end: str) -> None:
    services = Services(charge=trouble, find="refused")
    async with orders(tmp_path, services, hurry=8) as runtime:
        await placed(runtime)
        await reached(runtime, "order/1", ["charge_unresolved"])
        del services.troubles["find"]

        path = await reached(runtime, "order/1", ENDS)
        assert (["draft", "charge_pending", "charge_unknown", "charge_unresolved"], end) == (path[:4], path[-1])
        assert [] == services.ledger.doubles


async def test_a_charge_whose_result_cannot_be_written_is_brought_again_and_not_charged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, lost = Services(), list[str]()
    async with orders(tmp_path, services) as runtime:
        kept = runtime.store.append

        async def failing(append: Append) -> Any:
            if append.entry.event.name == "done.invoke.charge" and not lost:
                lost.append(append.entity)
                raise UnavailableError("the disk is full", code="store.full")
            return await kept(append)

        monkeypatch.setattr(runtime.store, "append", failing)
        await placed(runtime)
        path = await reached(runtime, "order/1", ENDS)

    assert (["order/1"], "shipped") == (lost, path[-1])
    assert {"done": 3} == services.ledger.counts
    assert [] == services.ledger.doubles


@pytest.mark.slow
async def test_a_process_killed_between_charge_and_write_charges_once(tmp_path: Path) -> None:
    write_definitions(tmp_path, hurry=0.1)  # no timeout may come in between, however slow the machine
    url, bank = f"sqlite:///{tmp_path}/orders.db", started(serves, 1, 0.0, True)
    assert bank.pipe.poll(ANSWER_SECONDS_MAX)
    port = int(bank.pipe.recv_bytes())
    workers = []
    try:
        async with opening(url, charts=[shop(Line(port), tmp_path / "order.interlock.yaml")], work=False) as runtime:
            await placed(runtime)
            workers.append(started(works, url, port, str(tmp_path), "dies_after_deed"))
            workers[0].process.join(ANSWER_SECONDS_MAX)
            assert -9 == workers[0].process.exitcode
            assert ("charge_pending",) == (await runtime.state("order/1")).configuration
            workers.append(started(works, url, port, str(tmp_path), ""))

            assert ["draft", "charge_pending", *PAID, "shipped"] == await reached(runtime, "order/1", ENDS)
        book = await Line(port).book()
    finally:
        for each in (*workers, bank):
            each.killed()

    assert [] == book["doubles"]
    assert {"done": 3, "asked again": 1} == book["counts"]


async def test_a_message_that_cannot_be_published_waits_for_the_bus(tmp_path: Path) -> None:
    bus, services = Bus(absences=2), Services()
    url = f"sqlite:///{tmp_path}/orders.db"
    async with opening(url, charts=[shop(services)], bus=bus) as runtime:
        await placed(runtime)
        await reached(runtime, "order/1", ENDS)
        await bus.heard("order.state.changed", times=5)

    told = [each.data["to"][0] for each in bus.messages if each.type == "order.state.changed"]
    assert ["draft", "charge_pending", *PAID, "shipped"] == told
    assert ["order.paid"] == [each.type for each in bus.messages if each.type != "order.state.changed"]
    assert 0 == bus.absences


async def test_a_lost_answer_costs_no_second_charge(tmp_path: Path) -> None:
    services = Services(charge="answer lost")
    async with orders(tmp_path, services) as runtime:
        await placed(runtime)

        assert "shipped" == (await reached(runtime, "order/1", ENDS))[-1]
        assert {"done": 3, "asked again": 1} == services.ledger.counts


@pytest.mark.parametrize(
    ("refused", "path", "undone"),
    [
        ("charge", ["charge_declined"], []),
        ("reservation", ["fulfilment.reservation", "refund_pending", "refunded"], ["undo charge"]),
        (
            "parcel",
            [*PAID, "fulfilment.reservation_compensation", "refund_pending", "refunded"],
            ["undo reservation", "undo charge"],
        ),
    ],
)
async def test_what_is_refused_is_made_up_for_in_reverse(
    tmp_path: Path, refused: str, path: list[str], undone: list[str]
) -> None:
    services = Services(**{refused: "refused"})
    async with orders(tmp_path, services) as runtime:
        await placed(runtime)

        assert ["draft", "charge_pending", *path] == await reached(runtime, "order/1", ENDS)
        assert [] == services.held("order/1")
        assert undone == [each for each in services.asked if each.startswith("undo")]


async def test_what_cannot_be_compensated_waits_for_a_person(tmp_path: Path) -> None:
    services = Services(parcel="refused", undo="refused")
    async with orders(tmp_path, services) as runtime:
        await placed(runtime)
        await reached(runtime, "order/1", ["fulfilment_unsettled"])
        assert ["charge", "reservation"] == services.held("order/1")
        del services.troubles["undo"]
        services.ledger.undo(
            next(each.key for each in services.ledger.held("order/1") if each.operation == "reservation")
        )
        await runtime.send("order/1", "fulfilment.settled", principal=SUPPORT)

        assert "refunded" == (await reached(runtime, "order/1", ENDS))[-1]
        assert [] == services.held("order/1")


async def test_a_refund_that_fails_is_repeated_by_a_person(tmp_path: Path) -> None:
    services = Services(reservation="refused", undo="refused")
    async with orders(tmp_path, services) as runtime:
        await placed(runtime)
        await reached(runtime, "order/1", ["refund_failed"])
        del services.troubles["undo"]
        await runtime.send("order/1", "refund.repeated", principal=SUPPORT)

        assert "refunded" == (await reached(runtime, "order/1", ENDS))[-1]
        assert [] == services.held("order/1")


async def test_an_order_is_placed_once_and_by_its_customer(tmp_path: Path) -> None:
    services = Services(charge="waits")
    async with orders(tmp_path, services, hurry=0.1) as runtime:
        await placed(runtime)

        async def outcome(event: str, key: str, *roles: str) -> str:
            receipt = await runtime.send("order/1", event, key=key, principal={"id": "x", "roles": list(roles)})
            return receipt.outcome

        with pytest.raises(interlock.UsageError, match="another principal"):
            await outcome("order.placed", "placed", "customer")
        again = await runtime.send("order/1", "order.placed", key="placed", principal=CUSTOMER)
        assert "duplicate" == again.outcome
        assert "ignored" == await outcome("order.placed", "again", "customer")
        assert "denied" == await outcome("order.placed", "other", "warehouse")
        assert "ignored" == await outcome("order.cancelled", "cancelled", "customer")
        assert "rejected" == await outcome("refund.repeated", "refund", "support")
        services.may_go_on.set()
        assert "shipped" == (await reached(runtime, "order/1", ENDS))[-1]
