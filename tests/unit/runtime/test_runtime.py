"""The contract of the runtime: load, step, append, retry; and when it refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock.errors import ConflictError, NotFoundError, UnavailableError, UsageError
from interlock.model.limits import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    CONFLICT_RETRIES_MAX,
)
from interlock.ports.store import (
    Append,
    AppendResult,
)
from interlock.runtime.entities import entities as driver
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.unit.runtime.scene import DOOR, ORDER, Interrupted, StillClock, Watched, WithoutDefinitions, runtime


async def test_an_applied_event_is_one_durable_entry() -> None:
    doors = runtime()
    await doors.create("door/1")
    receipt = await doors.send("door/1", "opened", key="k", trace="t", principal={"id": "ada"})
    (record,) = await doors.store.read("door/1", after=1)

    assert ("applied", 2) == (receipt.outcome, receipt.version)
    assert ("k", "t", {"id": "ada"}) == (record.key, record.entry.trace, record.entry.event.principal)
    assert (("closed",), ("open",)) == (record.entry.before, record.entry.after)


async def test_a_repeated_key_is_a_duplicate_after_the_entity_has_moved_on() -> None:
    doors = runtime()
    await doors.create("door/1")
    first = await doors.send("door/1", "opened", key="k")
    await doors.send("door/1", "smashed")
    again = await doors.send("door/1", "opened", key="k")

    assert ("duplicate", first.version) == (again.outcome, again.version)


async def test_a_refusal_uses_up_no_key() -> None:
    """What changed nothing can be sent again under its key, and then counts."""
    doors = runtime()
    await doors.create("door/1")
    refused = await doors.send("door/1", "closed", key="k")
    rejected = await doors.send("door/1", "unlocked", key="k")
    applied = await doors.send("door/1", "opened", key="k")

    assert ("ignored", "rejected", "applied") == (refused.outcome, rejected.outcome, applied.outcome)
    assert (1, 1, 2) == (refused.version, rejected.version, applied.version)


async def test_a_lost_swap_is_retried_on_a_fresh_snapshot() -> None:
    store, clock = Interrupted(), StillClock()
    mine, theirs = runtime(store=store, clock=clock), runtime(store=store)
    await mine.create("door/1")
    store.before.append(lambda: theirs.send("door/1", "opened"))
    receipt = await mine.send("door/1", "noted", {"text": "x"})

    assert ("applied", 3, ("open",)) == (
        receipt.outcome,
        receipt.version,
        receipt.snapshot and receipt.snapshot.configuration,
    )
    assert [float(BACKOFF_MS_MIN)] == clock.waits


async def test_a_swap_that_is_always_lost_ends_in_a_conflict() -> None:
    store, clock = Interrupted(), StillClock()
    mine, theirs = runtime(store=store, clock=clock), runtime(store=store)
    await mine.create("door/1")
    for _ in range(CONFLICT_RETRIES_MAX + 1):  # a rival's own append is the next one, and goes through
        store.before += [lambda: theirs.send("door/1", "noted", {"text": "x"}), _nothing]
    with pytest.raises(ConflictError) as raised:
        await mine.send("door/1", "noted", {"text": "mine"})

    assert "conflict.retries" == raised.value.code
    assert CONFLICT_RETRIES_MAX + 1 == len(clock.waits)
    assert sorted(clock.waits) == clock.waits
    assert BACKOFF_MS_MAX == clock.waits[-1]


async def _nothing() -> None:
    return None


async def test_a_stale_cache_costs_a_conflict_and_never_a_wrong_step() -> None:
    store = MemoryStore()
    mine, theirs = runtime(store=store), runtime(store=store)
    await mine.create("door/1")
    await theirs.send("door/1", "opened")
    await theirs.send("door/1", "closed")
    receipt = await mine.send("door/1", "opened")

    assert 2 == (receipt.snapshot and receipt.snapshot.context["openings"])
    assert 4 == receipt.version


async def test_a_refusal_is_only_given_on_a_fresh_snapshot() -> None:
    store = MemoryStore()
    mine, theirs = runtime(store=store), runtime(store=store)
    await mine.create("door/1")
    await theirs.send("door/1", "opened")
    receipt = await mine.send("door/1", "closed")

    assert ("applied", 3) == (receipt.outcome, receipt.version)


async def test_a_wrong_expected_version_is_a_conflict_without_retries() -> None:
    clock = StillClock()
    doors = runtime(clock=clock)
    await doors.create("door/1")
    await doors.send("door/1", "opened", expected=1, key="k")
    with pytest.raises(ConflictError) as raised:
        await doors.send("door/1", "closed", expected=1)

    assert "conflict.expected" == raised.value.code
    assert [] == clock.waits
    assert "duplicate" == (await doors.send("door/1", "opened", expected=1, key="k")).outcome


async def test_expected_holds_against_a_rival_in_between() -> None:
    """The swap is lost after the test of the version: the retry finds the new one and stops."""
    store = Interrupted()
    mine, theirs = runtime(store=store), runtime(store=store)
    await mine.create("door/1")
    store.before.append(lambda: theirs.send("door/1", "noted", {"text": "x"}))
    with pytest.raises(ConflictError) as raised:
        await mine.send("door/1", "opened", expected=1)

    assert "conflict.expected" == raised.value.code


async def test_the_time_of_an_entity_never_goes_back() -> None:
    store, clock = MemoryStore(), StillClock(5_000)
    doors = runtime(store=store, clock=clock)
    await doors.create("door/1")
    clock.time_ms = 1_000
    await doors.send("door/1", "opened")
    later = runtime(store=store, clock=StillClock(2_000))
    await later.send("door/1", "closed")

    assert [5_000] * 3 == [each.event.time_ms for each in await later.journal("door/1")]


async def test_an_entity_is_created_once() -> None:
    doors = runtime()
    first = await doors.create("door/1", {"note": "x"}, key="k")
    again = await doors.create("door/1", key="k")
    other = await doors.create("door/1", key="other")
    unkeyed = await doors.create("door/1")

    assert ("applied", 1) == (first.outcome, first.version)
    assert ("duplicate", 1) == (again.outcome, again.version)
    assert ("rejected", "entity.exists") == (other.outcome, other.reason)
    assert ("rejected", "entity.exists") == (unkeyed.outcome, unkeyed.reason)


async def test_an_unknown_kind_and_an_unknown_entity_are_not_found() -> None:
    doors = runtime()
    with pytest.raises(NotFoundError) as kind:
        await doors.create("doro/1")
    with pytest.raises(NotFoundError) as entity:
        await doors.send("door/1", "opened")

    assert ("kind.unknown", "entity.unknown") == (kind.value.code, entity.value.code)
    assert "door" in str(kind.value)


async def test_callers_of_one_process_never_conflict_with_each_other() -> None:
    store = Watched()
    doors = runtime(store=store)
    await doors.create("door/1")
    receipts = await asyncio.gather(*(doors.send("door/1", "noted", {"text": str(each)}) for each in range(50)))

    assert list(range(2, 52)) == [each.version for each in receipts]
    assert 0 == store.conflicts
    assert {} == doors.entities.mailboxes


async def test_a_cancelled_send_leaves_the_entity_usable() -> None:
    doors = runtime(store=Watched())
    await doors.create("door/1")
    first = asyncio.ensure_future(doors.send("door/1", "noted", {"text": "a"}))
    second = asyncio.ensure_future(doors.send("door/1", "noted", {"text": "b"}))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)

    assert "applied" == (await doors.send("door/1", "opened")).outcome
    assert {} == doors.entities.mailboxes


async def test_the_snapshot_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "SNAPSHOTS_CACHED_MAX", 3)
    store = MemoryStore()
    doors = runtime(store=store)
    for each in range(6):
        await doors.create(f"door/{each}")
    reader = runtime(store=store)
    for each in range(6):
        await reader.state(f"door/{each}")

    assert ["door/3", "door/4", "door/5"] == list(doors.entities.snapshots)
    assert ["door/3", "door/4", "door/5"] == list(reader.entities.snapshots)


async def test_a_closed_runtime_refuses_calls() -> None:
    doors = runtime()
    await doors.create("door/1")
    await doors.close()
    for call in (doors.send("door/1", "opened"), doors.create("door/2"), doors.state("door/1")):
        with pytest.raises(UnavailableError):
            await call


class _Lossy(MemoryStore):
    """Keeps an append and fails to say so, once."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False

    async def append(self, append: Append) -> AppendResult:
        answer = await super().append(append)
        if self.failing:
            self.failing = False
            raise UnavailableError("the connection was lost")
        return answer


async def test_after_a_lost_answer_the_same_key_is_a_duplicate() -> None:
    store = _Lossy()
    doors = runtime(store=store)
    await doors.create("door/1")
    store.failing = True
    with pytest.raises(UnavailableError):
        await doors.send("door/1", "noted", {"text": "x"}, key="k")
    again = await doors.send("door/1", "noted", {"text": "x"}, key="k")

    assert ("duplicate", 2) == (again.outcome, again.version)
    assert 2 == len(await doors.journal("door/1"))


COUNTS_TWICE = DOOR.replace("revision: 1.0.0", "revision: 2.0.0").replace("openings + 1", "openings + 2")


async def test_an_entity_runs_on_the_revision_that_wrote_it() -> None:
    store = WithoutDefinitions()
    await runtime(DOOR, store=store).create("door/old")
    both = runtime(DOOR, COUNTS_TWICE, store=store)
    await both.create("door/new")
    old = await both.send("door/old", "opened")
    new = await both.send("door/new", "opened")

    assert [1, 2] == [each.snapshot and each.snapshot.context["openings"] for each in (old, new)]
    assert old.snapshot is not None
    assert new.snapshot is not None
    assert old.snapshot.revision != new.snapshot.revision


async def test_without_definitions_an_unknown_revision_is_not_guessed() -> None:
    """Without its chart, and without a chart that declares itself compatible, an entity is left alone."""
    store = WithoutDefinitions()
    await runtime(DOOR, store=store).create("door/1")
    with pytest.raises(UnavailableError) as raised:
        await runtime(COUNTS_TWICE, store=store).send("door/1", "opened")

    assert "revision.unknown" == raised.value.code


async def test_another_label_is_no_other_revision() -> None:
    store = MemoryStore()
    await runtime(DOOR, store=store).create("door/1")
    receipt = await runtime(DOOR.replace("revision: 1.0.0", "revision: 2.0.0"), store=store).send("door/1", "opened")

    assert "applied" == receipt.outcome


async def test_a_compatible_chart_takes_over() -> None:
    newer = COUNTS_TWICE.replace("revision: 2.0.0", 'revision: 1.1.0\ncompatible: ">=1.0 <1.2"')
    store = MemoryStore()
    await runtime(DOOR, store=store).create("door/1")
    newest = runtime(newer, store=store)
    receipt = await newest.send("door/1", "opened")

    assert receipt.snapshot is not None
    assert 2 == receipt.snapshot.context["openings"]
    assert receipt.snapshot.revision == newest.charts.for_new_entity("door").chart.revision


def test_the_sample_charts_read() -> None:
    """Both charts of these tests are charts."""
    assert isinstance(runtime(DOOR, ORDER), Runtime)


@pytest.mark.parametrize("expected", ["1", True, 1.0, -1])
async def test_an_invalid_expected_version_is_refused(expected: Any) -> None:
    doors = runtime()
    await doors.create("door/1")
    with pytest.raises(UsageError) as raised:
        await doors.send("door/1", "opened", expected=expected)

    assert "expected.malformed" == raised.value.code
    assert 1 == (await doors.state("door/1")).version


@pytest.mark.parametrize("sent_ms", ["now", True, 5.0])
async def test_an_invalid_sent_time_is_refused(sent_ms: Any) -> None:
    doors = runtime()
    await doors.create("door/1")
    with pytest.raises(UsageError) as raised:
        await doors.send("door/1", "opened", sent_ms=sent_ms)

    assert ("sent.malformed", "write int(time.time() * 1000)") == (raised.value.code, raised.value.hint)
    assert 1 == (await doors.state("door/1")).version
