"""The intake: each message becomes an event once; others are dead letters, and none is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

import interlock
from interlock.buses.memory import MemoryBus
from interlock.buses.registry import open_bus_url
from interlock.errors import NotFoundError, UnavailableError, UsageError
from interlock.model.journal.message import Message, decode_message, encode_message
from interlock.runtime.consumer import DEAD_TYPE, Consumer, Delivery
from interlock.runtime.runtime import Runtime
from tests.support.eventually import eventually

INVOICE = """
interlock: 1
kind: invoice
context: {paid: {type: integer, default: 0}, order: {type: string, default: ""}}
events: {paid: {}, closed: {}, voided: {payload: {n: integer}}}
initial: open
states:
  open: {on: {paid: {actions: [{assign: {paid: "= context.paid + 1"}}]}, closed: shut, voided: shut}}
  shut: {type: final}
"""


def message(number: int = 1, *, subject: str = "order/1", id: str | None = None, **more: Any) -> Message:
    """A message of an order."""
    fields = {"type": "order.paid", "sequence": f"{number:012}.0000", **more}
    return Message(id=id or f"{subject}/{number}/0", source="/shop/order", subject=subject, **fields)


def to_invoice(found: Message) -> Delivery | None:
    """Every order has its invoice; other messages are for others."""
    if found.type != "order.paid":
        return None
    return Delivery(f"invoice/{str(found.subject).partition('/')[2]}", "paid", {"n": 1}, create={"order": "x"})


@asynccontextmanager
async def invoices() -> AsyncGenerator[Runtime, None]:
    """A runtime with invoices."""
    async with interlock.open("memory:", charts=[interlock.loads(INVOICE)]) as runtime:
        yield runtime


async def test_a_message_becomes_an_event_of_an_entity() -> None:
    bus = MemoryBus()
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    async with invoices() as runtime, Consumer(bus, runtime, to_invoice) as intake:
        await bus.publish(message(trace=trace))
        await bus.publish(message(2, type="order.state.changed"))
        await eventually(lambda: intake.counts.total() == 2)
        _, entry = await runtime.journal("invoice/1")

    assert {"applied": 1, "passed": 1} == intake.counts
    assert ("_bus/11:/shop/order#order/1/1/0", trace) == (entry.key, entry.trace)
    assert ("/shop/order#order/1/1/0",) * 2 == (entry.event.id, entry.event.key)
    assert {"id": "bus:/shop/order", "kind": "bus", "roles": []} == entry.event.principal


async def test_a_repeated_message_is_a_duplicate() -> None:
    bus = MemoryBus()
    async with invoices() as runtime:
        counts = []
        for _ in range(2):
            async with Consumer(bus, runtime, to_invoice) as intake:
                counts.append(intake.counts)
                await bus.publish(message())
                await eventually(lambda: counts[-1].total() == 1)
        found = await runtime.state("invoice/1")

    assert (1, [{"applied": 1}, {"duplicate": 1}]) == (found.context["paid"], counts)


async def test_where_order_matters_an_old_message_after_a_newer_one_is_dropped() -> None:
    """For each source entity separately; without a sequence nothing is known, and nothing dropped."""
    bus = MemoryBus()
    async with invoices() as runtime, Consumer(bus, runtime, to_invoice, ordered=True) as intake:
        for each in (
            message(5),
            message(3),
            message(3, subject="order/2"),
            message(6),
            message(6),
            message(7, sequence=None),
        ):
            await bus.publish(each)
        await eventually(lambda: intake.counts.total() == 6)

    assert {"applied": 4, "passed": 2} == intake.counts


async def test_messages_of_one_source_entity_are_processed_in_order_even_while_the_first_waits() -> None:
    bus = MemoryBus()
    taken: list[str] = []
    async with invoices() as runtime:
        real = runtime.submit
        away = True

        async def send(entity: str, event: str, payload: Any = None, **more: Any) -> Any:
            if away and entity == "invoice/1":
                raise UnavailableError("away", code="store.away")
            taken.append(more["key"].name)
            return await real(entity, event, payload, **more)

        runtime.submit = send  # type: ignore[method-assign]  # a store that is away for one entity
        for entity in ("invoice/1", "invoice/2"):
            await runtime.create(entity)
        async with Consumer(bus, runtime, to_invoice) as intake:
            for each in (message(1), message(2), message(1, subject="order/2")):
                await bus.publish(each)
            await eventually(lambda: len(taken) == 1)
            away = False
            await eventually(lambda: intake.counts["applied"] == 3)

    assert ["order/2/1/0", "order/1/1/0", "order/1/2/0"] == [each.partition("#")[2] for each in taken]


async def test_an_event_that_the_chart_refuses_is_a_dead_letter_and_the_next_message_is_processed() -> None:
    bus, dead = MemoryBus(), MemoryBus()
    async with invoices() as runtime, Consumer(bus, runtime, to_invoice, dead_letters=dead) as intake:
        await runtime.create("invoice/1")
        await runtime.send("invoice/1", "closed")
        await runtime.create("invoice/2")
        await bus.publish(message())
        await bus.publish(message(subject="order/2"))
        await eventually(lambda: intake.counts.total() == 2)
    (letter,) = dead.messages

    assert {"dead": 1, "applied": 1} == intake.counts
    assert letter.data["code"].startswith("rejected.")
    assert decode_message(letter.data["body"].encode()).id == message().id


def raising(found: Message) -> Delivery | None:
    """A route with a bug in it."""
    raise KeyError(found.id)


POISON: list[tuple[Any, bytes, str]] = [
    (to_invoice, b"{", "message.malformed"),
    (to_invoice, b"\xff", "message.malformed"),
    (raising, encode_message(message()), "route.failed"),
    (lambda found: "invoice/1", encode_message(message()), "route.failed"),
    (lambda found: Delivery("nameless", "paid"), encode_message(message()), "entity.malformed"),
    (lambda found: Delivery("invoice/9", "paid"), encode_message(message()), "entity.unknown"),
    (lambda found: Delivery("invoice/9", "done.x", create={}), encode_message(message()), "event.reserved"),
    (lambda found: Delivery("invoice/9", "paid", create={"no": 1}), encode_message(message()), "context"),
    (lambda found: Delivery("invoice/9", "payd", create={}), encode_message(message()), "event.unknown"),
    (lambda found: Delivery("invoice/9", "paid", {"n": {1}}, create={}), encode_message(message()), "event.payload"),
    (lambda found: Delivery("invoice/9", "voided", {"n": "x"}, create={}), encode_message(message()), "event.payload"),
    (lambda found: Delivery("invoice/9", "paid", create=[1]), encode_message(message()), "context.refused"),  # type: ignore[arg-type]  # a bug of the route
]


@pytest.mark.parametrize(("route", "body", "code"), POISON)
async def test_a_message_that_can_never_be_applied_is_a_dead_letter_and_the_next_is_processed(
    route: Any, body: bytes, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    bus, dead = MemoryBus(), MemoryBus()
    async with invoices() as runtime, Consumer(bus, runtime, route, dead_letters=dead) as intake:
        bus.put(body)
        bus.put(encode_message(message(2, type="for.others")))
        await eventually(lambda: intake.counts.total() == 2)
    letter = dead.messages[0]

    assert (DEAD_TYPE, True) == (letter.type, letter.data["code"].startswith(code))
    assert {"body", "body_base64"} & set(letter.data)
    assert "a message is a dead letter" in [each.message for each in caplog.records]


async def test_another_message_with_the_same_source_and_id_is_a_dead_letter() -> None:
    bus, dead = MemoryBus(), MemoryBus()

    def route(found: Message) -> Delivery:
        return Delivery("invoice/1", found.type.rpartition(".")[2], create={})

    async with invoices() as runtime, Consumer(bus, runtime, route, dead_letters=dead) as intake:
        for number, kind in enumerate(("order.paid", "order.closed", "order.paid"), 1):
            bus.put(encode_message(message(number, id="same", type=kind)))
        await eventually(lambda: intake.counts.total() == 3)
    (letter,) = dead.messages

    assert ({"applied": 1, "dead": 1, "duplicate": 1}, "key.reused") == (intake.counts, letter.data["code"])


async def test_a_message_whose_key_may_be_forgotten_is_set_aside() -> None:
    """It may be new: acknowledged like other refusals, it would be lost."""
    bus, dead = MemoryBus(), MemoryBus()
    async with invoices() as runtime, Consumer(bus, runtime, to_invoice, dead_letters=dead) as intake:
        bus.put(encode_message(message(1)))
        bus.put(encode_message(message(2, time_ms=1)))
        await eventually(lambda: intake.counts.total() == 2)
    (letter,) = dead.messages

    assert ({"applied": 1, "dead": 1}, "key.expired") == (intake.counts, letter.data["code"])


async def test_without_a_bus_for_dead_letters_the_source_gets_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = MemoryBus()
    async with invoices() as runtime, Consumer(bus, runtime, to_invoice) as intake:
        bus.put(b"{")
        await eventually(lambda: intake.counts.total() == 1)
    (record,) = caplog.records

    assert "structured CloudEvent" in record.hint  # type: ignore[attr-defined]  # a field of ours


class Spy:
    """A message that notes what was answered for it, and how long the journal was then."""

    def __init__(self, body: bytes, runtime: Runtime) -> None:
        self.body = body
        self.answers: list[tuple[str, int]] = []
        self._runtime = runtime
        self.deaf = False

    async def _note(self, answer: str) -> None:
        self.answers.append((answer, len(await self._runtime.journal("invoice/1"))))
        if self.deaf:
            raise ConnectionError("the broker is gone")

    async def ack(self) -> None:
        """Noted."""
        await self._note("taken")

    async def requeue(self) -> None:
        """Noted."""
        await self._note("put back")

    async def dead_letter(self) -> None:
        """Noted."""
        await self._note("set aside")


class Handing:
    """A source that returns what the test passes."""

    def __init__(self, *spies: Spy) -> None:
        self._spies = spies

    async def incoming(self) -> AsyncGenerator[Spy, None]:
        """These, and then none."""
        for each in self._spies:
            yield each
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Do nothing."""


async def test_a_message_is_acknowledged_after_its_receipt() -> None:
    async with invoices() as runtime:
        await runtime.create("invoice/1")
        spy = Spy(encode_message(message()), runtime)
        async with Consumer(Handing(spy), runtime, to_invoice):
            await eventually(lambda: bool(spy.answers))

    assert [("taken", 2)] == spy.answers


async def test_a_lost_acknowledgement_causes_only_a_duplicate(caplog: pytest.LogCaptureFixture) -> None:
    async with invoices() as runtime:
        await runtime.create("invoice/1")
        spies = [Spy(encode_message(message(number)), runtime) for number in (1, 1, 2)]
        spies[0].deaf = True
        async with Consumer(Handing(*spies), runtime, to_invoice) as intake:
            await eventually(lambda: bool(spies[2].answers))

    assert {"applied": 2, "duplicate": 1} == intake.counts
    assert "a message failed unexpectedly" in [each.message for each in caplog.records]


async def test_waiting_messages_are_requeued_when_the_intake_stops() -> None:
    bus = MemoryBus()
    async with invoices() as runtime:
        real = runtime.submit

        async def away(*_: Any, **__: Any) -> Any:
            raise UnavailableError("away", code="store.away")

        runtime.submit = away  # type: ignore[method-assign]  # a store that is away
        async with Consumer(bus, runtime, to_invoice):
            await bus.publish(message())
            await eventually(lambda: not bus._waiting)
        runtime.submit = real  # type: ignore[method-assign]  # and is back
        async with Consumer(bus, runtime, to_invoice) as intake:
            await eventually(lambda: intake.counts.total() == 1)

    assert {"applied": 1} == intake.counts


async def test_messages_that_do_not_finish_in_time_are_requeued_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("interlock.runtime.consumer.DRAIN_MS", 10)
    async with invoices() as runtime:
        await runtime.create("invoice/1")
        spies = [Spy(encode_message(message(number)), runtime) for number in (1, 2)]
        started = asyncio.Event()

        async def hang(*_: Any, **__: Any) -> Any:
            started.set()
            await asyncio.Event().wait()

        runtime.submit = hang  # type: ignore[method-assign]  # a store that never answers
        async with Consumer(Handing(*spies), runtime, to_invoice) as intake:
            await started.wait()
            await eventually(lambda: bool(intake._lines) and len(next(iter(intake._lines.values()))) == 2)

    assert [[("put back", 1)]] * 2 == [each.answers for each in spies]


async def test_a_bus_that_fails_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever its client raises."""

    class Moody(MemoryBus):
        problems: ClassVar = [NotFoundError("no stream", code="bus.stream"), RuntimeError("what a client raises")]

        async def incoming(self) -> AsyncGenerator[Any, None]:
            if self.problems:
                raise self.problems.pop(0)
            async for each in super().incoming():
                yield each

    bus = Moody()
    async with invoices() as runtime, Consumer(bus, runtime, to_invoice) as intake:
        await bus.publish(message())
        await eventually(lambda: intake.counts.total() == 1)

    assert 2 == [each.message for each in caplog.records].count("the bus cannot be read")


async def test_an_intake_can_be_run_until_it_is_cancelled() -> None:
    """As a separate service."""
    bus = MemoryBus()
    async with invoices() as runtime:
        intake = Consumer(bus, runtime, to_invoice)
        running = asyncio.ensure_future(intake.run())
        await bus.publish(message())
        await eventually(lambda: intake.counts.total() == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_two_sources_never_share_a_key() -> None:
    """`a` and `b#c` are not `a#b` and `c`."""
    bus = MemoryBus()
    async with invoices() as runtime, Consumer(bus, runtime, to_invoice) as intake:
        for source, name in (("a", "b#c"), ("a#b", "c"), ("1:a", "b"), ("1", ":a#b")):
            await bus.publish(Message(id=name, source=source, type="order.paid", subject="order/1"))
        await eventually(lambda: intake.counts.total() == 4)
        found = await runtime.state("invoice/1")

    assert (4, {"applied": 4}) == (found.context["paid"], intake.counts)


async def test_no_caller_can_use_the_key_of_a_message() -> None:
    bus = MemoryBus()
    async with invoices() as runtime, Consumer(bus, runtime, to_invoice) as intake:
        await runtime.create("invoice/1")
        taken = await runtime.send(
            "invoice/1", "paid", {"n": 0}, key="/shop/order#order/1/1/0", principal={"id": "eve"}
        )
        for key in ("_bus/11:/shop/order#order/1/1/0", "_"):
            with pytest.raises(UsageError) as refused:
                await runtime.send("invoice/1", "paid", key=key)
            assert "key.reserved" == refused.value.code
        await bus.publish(message())
        await eventually(lambda: intake.counts.total() == 1)
        found = await runtime.state("invoice/1")

    assert ("applied", 2, {"applied": 1}) == (taken.outcome, found.context["paid"], intake.counts)


@pytest.mark.parametrize(
    ("payload", "principal"),
    [({"n": 1}, {"id": "another name"}), ({"n": 2}, {"id": "bus:/shop/order", "kind": "bus", "roles": []})],
    ids=["the same payload", "the same sender"],
)
async def test_a_message_that_an_earlier_release_recorded_is_a_duplicate(payload: Any, principal: Any) -> None:
    bus = MemoryBus()
    async with invoices() as runtime, Consumer(bus, runtime, to_invoice) as intake:
        await runtime.create("invoice/1")
        await runtime.send("invoice/1", "paid", payload, key="/shop/order#order/1/1/0", principal=principal)
        await bus.publish(message())
        await eventually(lambda: intake.counts.total() == 1)
        found = await runtime.state("invoice/1")

    assert (1, {"duplicate": 1}) == (found.context["paid"], intake.counts)


def _raw(**fields: Any) -> bytes:
    return json.dumps({"specversion": "1.0", "type": "order.paid", "subject": "order/1", **fields}).encode()


NO_MESSAGES = [
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"{}",
    b"[" * 200_000,
    b'{"specversion":"1.0"}',
    _raw(id=1, source="s"),
    _raw(id="", source="s"),
    _raw(id="x", source="s", time="garbage"),
    _raw(id="x", source="s", time=1),
    _raw(id="x", source="s", time="2026-11-17T02:00:00"),
    _raw(id="x", source="s", data_base64="!!"),
    b'{"specversion":"1.0","id":"\\ud800","source":"s","type":"order.paid"}',
    b"x" * 2_000_000,
]
ODD = [
    _raw(id="a", source="s", time="9999-12-31T23:59:59Z"),
    _raw(id="\0", source="\0"),
    _raw(id="x" * 100_000, source="y" * 100_000),
    _raw(id="b", source="s", traceparent={"a": 1}),
    _raw(id="c", source="s", traceparent="z" * 1_000),
    b'{"specversion":"1.0","id":"d","id":"e","source":"s","type":"order.paid","subject":"order/1"}',
]


async def test_invalid_messages_do_not_stop_the_intake_and_every_message_is_counted() -> None:
    bus, dead = MemoryBus(), MemoryBus()
    async with invoices() as runtime, Consumer(bus, runtime, to_invoice, dead_letters=dead) as intake:
        for body in (*NO_MESSAGES, *ODD):
            bus.put(body)
        await bus.publish(message())
        await eventually(lambda: intake.counts.total() == len(NO_MESSAGES) + len(ODD) + 1)
        found = await runtime.state("invoice/1")

    assert {"dead": len(NO_MESSAGES), "applied": len(ODD) + 1} == intake.counts
    assert len(ODD) + 1 == found.context["paid"]


async def test_a_consumer_is_opened_by_an_address() -> None:
    async with invoices() as runtime:
        async with interlock.consume("memory:asked", runtime, to_invoice, dead_letters="memory:dead") as intake:
            await open_bus_url("memory:asked").publish(message())
            await eventually(lambda: intake.counts.total() == 1)
        wrong: list[tuple[Any, Any, Any]] = [
            ("https://hooks.example", runtime, to_invoice),
            ("memory:", "sqlite:///x.db", to_invoice),
            ("memory:", runtime, "route"),
        ]
        for source, of, route in wrong:
            with pytest.raises(UsageError) as caught:
                interlock.consume(source, of, route)
            assert caught.value.hint

    assert {"applied": 1} == intake.counts


async def test_a_message_that_fails_unexpectedly_is_requeued() -> None:
    bus = MemoryBus()
    asked: list[str] = []

    async with invoices() as runtime:
        real = runtime.submit

        async def wrong(entity: str, *_: Any, **__: Any) -> Any:
            asked.append(entity)
            raise RuntimeError("a defect")

        runtime.submit = wrong  # type: ignore[method-assign]  # a defect of the runtime
        async with Consumer(bus, runtime, to_invoice) as first:
            await bus.publish(message())
            await eventually(lambda: bool(asked))
        runtime.submit = real  # type: ignore[method-assign]  # repaired
        async with Consumer(bus, runtime, to_invoice) as second:
            await eventually(lambda: second.counts.total() == 1)

    assert ({}, {"applied": 1}) == (first.counts, second.counts)
