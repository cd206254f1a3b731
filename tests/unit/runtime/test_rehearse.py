"""Events that are only rehearsed, events that come too late, and senders and watchers that share a loop."""

from __future__ import annotations

import asyncio
import gc

import pytest

from interlock.errors import UsageError
from interlock.model.limits import KEY_WINDOW_MS
from interlock.stores.memory import TURN_CALLS, MemoryStore
from tests.unit.runtime.scene import Patient, StillClock, runtime

PAYMENTS = {"id": "bank", "roles": ["payments"]}


async def test_a_rehearsal_says_what_send_would_and_writes_nothing() -> None:
    """The same outcome, states, effects and reasons; neither an entry nor a refusal is kept."""
    store = MemoryStore()
    doors = runtime(store=store)
    await doors.create("door/1")
    for event in ("opened", "locked", "closed", "unlocked"):
        rehearsed = await doors.dry_run("door/1", event)
        assert (1, []) == (len(await store.read("door/1")), store.refusals)
        sent = await runtime(store=await _copy()).send("door/1", event)

        assert (rehearsed.outcome, rehearsed.reason, rehearsed.trials) == (sent.outcome, sent.reason, sent.trials)
        assert rehearsed.version == sent.version
        assert rehearsed.snapshot == sent.snapshot


async def _copy() -> MemoryStore:
    """A store with one closed door."""
    store = MemoryStore()
    await runtime(store=store).create("door/1")
    return store


async def test_a_rehearsal_has_the_rights_of_its_sender() -> None:
    """Who may not send learns no more by a dry run; and a known key is a duplicate for those who may."""
    orders = runtime()
    await orders.create("order/1")
    await orders.send("order/1", "payment.confirmed", {"id": "p"}, principal=PAYMENTS)
    stranger = await orders.dry_run("order/1", "payment.confirmed", {"id": "p"})
    again = await orders.dry_run("order/1", "payment.confirmed", {"id": "p"}, principal=PAYMENTS)

    assert ("denied", "roles", None) == (stranger.outcome, stranger.reason, stranger.snapshot)
    assert ("duplicate", 2) == (again.outcome, again.version)


@pytest.mark.parametrize("wrong", [{"event": "_x"}, {"key": "_x"}, {"key": ""}, {"principal": {"id": object()}}])
async def test_a_rehearsal_refuses_what_send_refuses(wrong: dict[str, object]) -> None:
    """Malformed arguments are the caller's mistake here too."""
    doors = runtime()
    await doors.create("door/1")
    with pytest.raises(UsageError):
        await doors.dry_run(**{"entity": "door/1", "event": "opened", **wrong})  # type: ignore[arg-type]  # wrong on purpose


async def test_a_payload_that_cannot_be_kept_is_rejected_in_rehearsal() -> None:
    """As when it is sent."""
    doors = runtime()
    await doors.create("door/1")

    assert "payload" == (await doors.dry_run("door/1", "opened", object())).reason


# Keys that are forgotten


async def test_an_event_from_before_the_window_is_not_taken_twice() -> None:
    """Its key may have been forgotten: unknown, it is rejected; known, it is a duplicate."""
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


async def test_a_loop_of_sends_lets_others_run() -> None:
    """Also on a store that never waits, and also when every event is refused."""
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


async def test_those_who_watch_are_forgotten_when_they_go() -> None:
    """Watching entities that nobody writes to leaves nothing behind."""
    clock = Patient()
    doors = runtime(clock=clock)
    for number in range(3):
        await doors.create(f"door/{number}")
        watching = doors.watch(f"door/{number}", after=1)
        waiting = asyncio.ensure_future(anext(watching))
        await clock.waiting.wait()
        clock.waiting.clear()
        assert 1 == len(doors.sender._watchers)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await watching.aclose()
        del watching, waiting
        await asyncio.sleep(0)
        gc.collect()

    assert 0 == len(doors.sender._watchers)
