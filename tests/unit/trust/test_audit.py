"""The audit: every attempt that no journal records has a row or is counted, on every store."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from interlock.errors import InterlockError, UnavailableError, UsageError
from interlock.model.actor import Actor, actor_of
from interlock.model.audit import FLOOD, AuditRow, actor_of_event
from interlock.model.event import Event
from interlock.model.limits import AUDIT_BURST, AUDIT_COUNTERS_MAX
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from interlock.trust.audit import AuditRecorder
from tests.support.audit import audit_rows
from tests.unit.runtime.scene import StillClock, runtime


class HeldClock(StillClock):
    """A clock on which no interval ends."""

    async def sleep_ms(self, ms: float) -> None:
        await asyncio.Event().wait()


CHART = """
interlock: 1
kind: o
revision: 1.0.0
context: {n: {type: integer, default: 0, min: 0}, owner: {type: string, default: bob}}
create: {roles: [clerk]}
events:
  go: {roles: [clerk], payload: {x: {type: integer, required: true}}}
  own: {roles: [clerk], permit: "= principal.id == context.owner"}
  big: {roles: [clerk]}
initial: a
states:
  a:
    on:
      go: {guard: "= event.data.x > 5", target: b}
      own: b
      big: {actions: [{emit: {type: x, data: "= event.data"}}, {emit: {type: x, data: "= event.data"}},
                      {emit: {type: x, data: "= event.data"}}]}
  b: {}
"""
ADA = {"id": "ada", "kind": "service", "roles": ["clerk"]}
EVE = {"id": "eve", "kind": "user", "roles": []}
KIM = {"id": "kim", "kind": "user", "roles": ["clerk"]}

ATTEMPTS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], str, str]] = {
    "no role": ("send", ("o/1", "go", {"x": 9}), {"principal": EVE}, "denied", "roles"),
    "permit": ("send", ("o/1", "own"), {"principal": ADA}, "denied", "permit"),
    "guard": ("send", ("o/1", "go", {"x": 1}), {"principal": ADA}, "rejected", "guard"),
    "payload": ("send", ("o/1", "go", {"x": "q"}), {"principal": ADA}, "rejected", "payload"),
    "payload size": ("send", ("o/1", "go", {"x": "q" * 400_000}), {"principal": ADA}, "rejected", "event.payload"),
    "undeclared event": ("send", ("o/1", "zzz"), {"principal": ADA}, "rejected", "event.unknown"),
    "entry size": ("send", ("o/1", "big", "q" * 120_000), {"principal": ADA}, "rejected", "entry.size"),
    "reserved event": ("send", ("o/1", "done.invoke.x"), {"principal": ADA}, "rejected", "event.reserved"),
    "reserved key": ("send", ("o/1", "go", {"x": 9}), {"key": "_k", "principal": ADA}, "rejected", "key.reserved"),
    "reused key": ("send", ("o/1", "go", {"x": 9}), {"key": "c1", "principal": ADA}, "rejected", "key.reused"),
    "key of another": ("create", ("o/1",), {"key": "c1", "principal": KIM}, "rejected", "key.reused"),
    "version": ("send", ("o/1", "go", {"x": 9}), {"expected": 7, "principal": ADA}, "rejected", "conflict.expected"),
    "unknown entity": ("send", ("o/404", "go", {"x": 9}), {"principal": ADA}, "rejected", "entity.unknown"),
    "malformed entity": ("send", ("o", "go", {"x": 9}), {"principal": ADA}, "rejected", "entity.malformed"),
    "no text": ("send", (7, "go"), {"principal": ADA}, "rejected", "entity.malformed"),
    "principal": ("send", ("o/1", "go"), {"principal": {"id": "ada", "roles": "x"}}, "rejected", "principal.malformed"),
    "expired key": (
        "send", ("o/1", "go", {"x": 9}), {"key": "old", "sent_ms": 5, "principal": ADA}, "rejected", "key.expired"
    ),
    "id in use": ("create", ("o/1",), {"key": "other", "principal": ADA}, "rejected", "entity.exists"),
    "context": ("create", ("o/2", {"n": -1}), {"principal": ADA}, "rejected", "context.refused"),
    "creation": ("create", ("o/2",), {"principal": EVE}, "denied", "roles"),
    "no role, no entity": ("send", ("o/404", "go", {"x": 9}), {"principal": EVE}, "denied", "roles"),
    "unknown kind": ("create", ("zz/2",), {"principal": EVE}, "rejected", "kind.unknown"),
    "path": ("create", ("o/a/../b",), {"principal": EVE}, "rejected", "entity.malformed"),
}  # fmt: skip


async def _attempt(opened: Runtime, call: str, place: tuple[Any, ...], options: dict[str, Any]) -> None:
    try:
        await getattr(opened, call)(*place, **options)
    except InterlockError:
        return


@pytest.mark.parametrize("name", ATTEMPTS)
async def test_each_refused_attempt_has_a_row(name: str) -> None:
    """With who, what, from which state and why."""
    call, place, options, outcome, reason = ATTEMPTS[name]
    store = MemoryStore()
    opened = runtime(CHART, store=store)
    opened.clock.time_ms = 1_800_000_000_000  # type: ignore[attr-defined]  # the clock of the test
    await opened.create("o/1", principal=ADA, key="c1")
    await _attempt(opened, call, place, options)
    (row,) = await audit_rows(store)

    assert (str(place[0]), outcome, reason) == (row.entity, row.outcome, row.reason)
    assert (options["principal"]["id"], 1) == (row.actor, row.count)
    assert (("a",) if place[0] == "o/1" else None) == row.state_from


async def test_what_a_journal_records_and_what_was_not_decided_have_no_row() -> None:
    store = MemoryStore()
    opened = runtime(CHART, store=store)
    await opened.create("o/1", principal=ADA, key="c1")
    await opened.create("o/1", principal=ADA, key="c1")
    await opened.send("o/1", "go", {"x": 9}, principal=ADA, key="k")
    await opened.send("o/1", "go", {"x": 9}, principal=ADA, key="k")
    await opened.dry_run("o/1", "go", {"x": 9}, principal=EVE)

    assert [] == await audit_rows(store)


async def test_a_sender_that_is_refused_without_a_row_gets_an_error() -> None:
    class Full(MemoryStore):
        async def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
            raise UnavailableError("no space left", code="store.full")

    opened = runtime(CHART, store=Full())
    await opened.create("o/1", principal=ADA)
    for event in ("own", "zzz"):
        with pytest.raises(UnavailableError) as caught:
            await opened.send("o/1", event, principal=ADA)
        assert "store.full" == caught.value.code


async def test_a_principal_that_is_refused_without_end_is_stopped_before_anything_is_read() -> None:
    """Until it may have a row again. Another principal has its own row meanwhile."""
    store, clock = MemoryStore(), HeldClock()
    opened = runtime(CHART, store=store, clock=clock)
    await opened.create("o/1", principal=ADA)
    for _ in range(AUDIT_BURST + 1):
        await opened.send("o/1", "go", {"x": 9}, principal=EVE)
    with pytest.raises(UnavailableError) as stopped:
        await opened.send("o/404", "go", {"x": 9}, principal=EVE)
    await opened.send("o/1", "own", principal=ADA)
    clock.time_ms += 100
    again = await opened.send("o/1", "go", {"x": 9}, principal=EVE)
    await opened.audit.close()
    rows = await audit_rows(store)

    assert (FLOOD, 100) == (stopped.value.code, stopped.value.retry_after_ms)
    assert "denied" == again.outcome
    assert AUDIT_BURST + 3 == sum(each.count for each in rows if each.actor == "eve")
    assert [("eve", "roles", 1), ("eve", FLOOD, 1)] == [
        (each.actor, each.reason, each.count) for each in rows if each.is_summary
    ]
    assert ["permit"] == [each.reason for each in rows if each.actor == "ada"]


@pytest.mark.parametrize("principal", [None, {"id": "clean-up", "kind": "system", "roles": []}])
async def test_the_system_and_local_programs_are_counted_and_never_stopped(principal: Any) -> None:
    store = MemoryStore()
    opened = runtime(CHART, store=store, clock=HeldClock())
    await opened.create("o/1", principal=ADA)
    outcomes = [(await opened.send("o/1", "go", {"x": 9}, principal=principal)).outcome for _ in range(300)]
    await opened.audit.close()
    rows = await audit_rows(store)

    assert {"denied"} == set(outcomes)
    assert (300, {"system"}) == (sum(each.count for each in rows), {each.actor_kind for each in rows})
    assert len(rows) <= AUDIT_BURST + 2


async def test_counts_that_cannot_be_written_are_written_later() -> None:
    class Failing(MemoryStore):
        fails = False

        async def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
            if self.fails:
                raise UnavailableError("no space left", code="store.full")
            await super().append_audit(rows)

    store = Failing()
    opened = runtime(CHART, store=store, clock=HeldClock())
    await opened.create("o/1", principal=ADA)
    for _ in range(200):
        await opened.send("o/1", "go", {"x": 9})
    store.fails = True
    await opened.audit.close()
    store.fails = False
    await opened.send("o/1", "go", {"x": 9})
    await opened.audit.close()

    assert 201 == sum(each.count for each in await audit_rows(store))


async def test_strangers_have_summary_rows_only() -> None:
    """By network, so that one who changes the address does not fill the disk; beyond a limit they are one."""
    store = MemoryStore()
    recorder = AuditRecorder(store, StillClock())
    for number in range(50):
        await recorder.record_stranger(code="login.missing", address=f"192.0.2.{number}")
    await recorder.record_stranger(code="login.missing", address="2001:db8:1:1ff::7")
    await recorder.record_stranger(code="login.missing", address="no address")
    await recorder.close()
    rows = await audit_rows(store)
    found = Counter[str | None]()
    for each in rows:
        found[each.actor] += each.count

    assert all(each.is_summary for each in rows)
    assert {"192.0.2.0/24": 50, "2001:db8:1:100::/56": 1, "other": 1} == dict(found)


async def test_counters_are_bounded() -> None:
    store = MemoryStore()
    recorder = AuditRecorder(store, HeldClock())
    strangers = AUDIT_COUNTERS_MAX + 100
    for number in range(strangers):
        address = f"10.{number // 256}.{number % 256}.1"
        await recorder.record_stranger(code="login.missing", address=address)
    await recorder.close()
    rows = await audit_rows(store)
    rows += [each.decode() for each in await store.audit_after(1_000)]

    assert strangers == sum(each.count for each in rows)
    assert AUDIT_COUNTERS_MAX + 2 >= len(rows)
    assert 100 == sum(each.count for each in rows if each.reason == "other")


# Who acted


@pytest.mark.parametrize(
    ("principal", "actor"),
    [
        (None, None),
        ({}, None),
        ({"id": "ada"}, Actor("ada", "user")),
        ({"id": 7, "kind": "person"}, Actor("7", "user")),
        ({"id": "billing", "kind": "service"}, Actor("billing", "service")),
        ({"id": "bus:nats", "kind": "bus"}, Actor("bus:nats", "service")),
        ({"id": "order/1", "kind": "system"}, Actor("order/1", "system")),
        ({"id": "x", "kind": ["list"]}, Actor("x", "user")),
        ("text", None),
    ],
)
def test_a_principal_is_a_user_a_service_or_the_system(principal: Any, actor: Actor | None) -> None:
    assert actor == actor_of(principal)


def test_every_event_has_an_actor() -> None:
    timer = Event("late", source="timer/late/2")
    result = Event("done.invoke.x", type="platform", source="invoke/o/1/2/0")
    failed = Event("error.communication", type="platform")

    assert [("timer", "system"), ("worker", "system"), ("worker", "system"), ("", "system"), ("ada", "service")] == [
        (each.id, each.kind)
        for each in map(actor_of_event, (timer, result, failed, Event("go"), Event("go", principal=ADA)))
    ]


async def test_what_the_driver_delivers_is_recorded_as_the_system() -> None:
    """An event from another entity that is refused, with the principal whose event caused it."""
    store = MemoryStore()
    opened = runtime(CHART, store=store)
    await opened.create("o/1", principal=ADA)
    sender = {"id": "parent/1", "kind": "system", "roles": ["system"], "for": {"id": "ada", "kind": "user"}}
    await opened.sender.deliver("o/1", Event("go", principal=sender), key="_sent/1")
    (row,) = await audit_rows(store)

    assert ("parent/1", "system", Actor("ada", "user")) == (row.actor, row.actor_kind, row.originator)


async def test_an_attempt_of_any_values_becomes_a_row() -> None:
    class Broken:
        def __str__(self) -> str:
            raise ValueError("no text")

    store = MemoryStore()
    with pytest.raises(UsageError):
        await runtime(CHART, store=store).send(Broken(), "go", principal={"id": Broken()})  # type: ignore[call-overload]  # wrong
    (row,) = await audit_rows(store)

    assert ("entity.malformed", "Broken, which cannot be shown") == (row.reason, row.actor)
