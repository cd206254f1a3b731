"""Dry runs, events that are too old, and senders and watchers that share a loop."""

from __future__ import annotations

import asyncio
import gc

import pytest

from interlock.errors import UsageError
from interlock.model.limits import KEY_WINDOW_MS
from interlock.stores.memory import TURN_CALLS, MemoryStore
from tests.support.audit import audit_rows
from tests.unit.runtime.scene import Patient, StillClock, runtime

PAYMENTS = {"id": "bank", "roles": ["payments"]}


async def test_a_dry_run_answers_as_send_would_and_writes_nothing() -> None:
    store = MemoryStore()
    doors = runtime(store=store)
    await doors.create("door/1")
    for event in ("opened", "locked", "closed", "unlocked"):
        rehearsed = await doors.dry_run("door/1", event)
        assert (1, []) == (len(await store.read("door/1")), await audit_rows(store))
        sent = await runtime(store=await _copy()).send("door/1", event)

        assert (rehearsed.outcome, rehearsed.reason, rehearsed.failed_guards) == (
            sent.outcome,
            sent.reason,
            sent.failed_guards,
        )
        assert rehearsed.version == sent.version
        assert rehearsed.snapshot == sent.snapshot


async def _copy() -> MemoryStore:
    """A store with one closed door."""
    store = MemoryStore()
    await runtime(store=store).create("door/1")
    return store


async def test_a_dry_run_checks_roles_before_keys() -> None:
    orders = runtime()
    await orders.create("order/1")
    await orders.send("order/1", "payment.confirmed", {"id": "p"}, principal=PAYMENTS)
    stranger = await orders.dry_run("order/1", "payment.confirmed", {"id": "p"})
    again = await orders.dry_run("order/1", "payment.confirmed", {"id": "p"}, principal=PAYMENTS)

    assert ("denied", "roles", None) == (stranger.outcome, stranger.reason, stranger.snapshot)
    assert ("duplicate", 2) == (again.outcome, again.version)


@pytest.mark.parametrize("wrong", [{"event": "_x"}, {"key": "_x"}, {"key": ""}, {"principal": {"id": object()}}])
async def test_a_dry_run_refuses_invalid_arguments(wrong: dict[str, object]) -> None:
    doors = runtime()
    await doors.create("door/1")
    with pytest.raises(UsageError):
        await doors.dry_run(**{"entity": "door/1", "event": "opened", **wrong})  # type: ignore[call-overload]  # on purpose


@pytest.mark.parametrize(
    ("event", "payload", "code"), [("opened", object(), "event.payload"), ("openned", None, "event.unknown")]
)
async def test_a_mistake_of_the_program_is_raised_by_a_dry_run(event: str, payload: object, code: str) -> None:
    doors = runtime()
    await doors.create("door/1")

    with pytest.raises(UsageError) as caught:
        await doors.dry_run("door/1", event, payload)
    assert code == caught.value.code


# Keys that are forgotten


async def test_an_event_older_than_the_key_window_is_not_applied_twice() -> None:
    clock = StillClock(KEY_WINDOW_MS * 2)
    doors = runtime(clock=clock)
    await doors.create("door/1")
    await doors.send("door/1", "opened", key="known")
    old = clock.time_ms - KEY_WINDOW_MS - 1
    unknown = await doors.send("door/1", "closed", key="forgotten", sent_ms=old)
    known = await doors.send("door/1", "opened", key="known", sent_ms=old)
    young = await doors.send("door/1", "closed", key="new", sent_ms=old + 1)

    assert ("rejected", "key.expired") == (unknown.outcome, unknown.reason)
    assert ("duplicate", 2) == (known.outcome, known.version)
    assert ("applied", 3) == (young.outcome, young.version)


# Others in the same loop


async def test_a_loop_of_sends_lets_other_tasks_run() -> None:
    doors = runtime()
    await doors.create("door/1")
    await doors.create("order/1")
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:  # ends when it is cancelled
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    for entity, event in (("door/1", "opened"), ("door/1", "unlocked"), ("order/1", "payment.confirmed")):
        before = turns
        for _ in range(TURN_CALLS):
            await doors.send(entity, event)
        assert turns > before, event
    task.cancel()


async def test_an_ended_watch_leaves_nothing_behind() -> None:
    clock = Patient()
    doors = runtime(clock=clock)
    for number in range(3):
        await doors.create(f"door/{number}")
        watching = doors.watch(f"door/{number}", after=1)
        waiting = asyncio.ensure_future(anext(watching))
        await clock.waiting.wait()
        clock.waiting.clear()
        assert 1 == len(doors.entities.announcements._watchers)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await watching.aclose()
        del watching, waiting
        await asyncio.sleep(0)
        gc.collect()

    assert 0 == len(doors.entities.announcements._watchers)
