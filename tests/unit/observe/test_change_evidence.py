"""What stores know about a change: live entities, last use of events, and tombstones; with counters and without."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import interlock
from interlock.evolve.diff import diff_documents
from interlock.model.document.document import Document
from interlock.observe.change_evidence import ChangeEvidence, LiveEvidence, change_evidence
from interlock.ports.reading.statistics import DAY_MS
from interlock.runtime.runtime import Runtime
from interlock.testing.clock import VirtualClock
from tests.support.eventually import eventually

OLD = """
interlock: 1
kind: ticket
revision: 1.0.0
events: {answered: {}, closed: {}, escalated: {}, praised: {}}
states:
  open: {on: {answered: waiting, escalated: urgent}}
  urgent:
    initial: first
    on: {answered: waiting}
    states:
      first: {on: {escalated: second}}
      second: {}
  waiting: {on: {closed: done, praised: {target: waiting, reenter: true}}}
  done: {type: final}
"""
NEW = """
interlock: 1
kind: ticket
revision: 2.0.0
removed:
  states: {urgent: 2026-06-01}
  events: {escalated: 2026-06-01, praised: 2026-06-01}
events: {answered: {}, closed: {}}
context: {rank: {type: integer, required: true}}
states:
  open: {on: {answered: waiting}}
  waiting: {on: {closed: done}}
  done: {type: final}
"""

START_MS = 20_500 * DAY_MS
"""2026-02-16."""


@pytest.fixture(params=["memory", "files", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    names = {"memory": "memory:", "files": f"file://{tmp_path}/tickets", "sqlite": f"sqlite:///{tmp_path}/tickets.db"}
    return names[request.param]


def document(text: str) -> Document:
    """The document of a chart."""
    found = interlock.loads(text).chart.document
    assert found is not None
    return found


@asynccontextmanager
async def tickets(url: str, clock: VirtualClock, *charts: str) -> AsyncIterator[Runtime]:
    """A runtime of some charts; the last one is for new tickets."""
    loaded = [interlock.loads(each) for each in charts]
    async with interlock.open(url, charts=loaded, clock=clock, work=False) as runtime:
        yield runtime


async def play(runtime: Runtime, clock: VirtualClock) -> None:
    """Two urgent tickets, one that waits, one that is done, and events over forty days."""
    for number in range(4):
        await runtime.create(f"ticket/{number}")
    await runtime.send("ticket/0", "escalated")
    clock.time_ms += 10 * DAY_MS
    await runtime.send("ticket/1", "escalated")
    await runtime.send("ticket/1", "escalated")
    await runtime.send("ticket/2", "answered")
    await runtime.send("ticket/3", "answered")
    await runtime.send("ticket/3", "praised")
    await runtime.send("ticket/3", "closed")
    clock.time_ms += 30 * DAY_MS


async def evidence_of(
    runtime: Runtime, new: str, *, within_ms: int = 35 * DAY_MS, until: Callable[[LiveEvidence], bool]
) -> LiveEvidence:
    """The evidence, once the statistics that a test waits for are written."""
    diff, removed = diff_documents(document(OLD), document(new)), document(new).removed

    async def read() -> LiveEvidence | None:
        found = await change_evidence(runtime, diff, removed, within_ms=within_ms)
        return found if until(found) else None

    found: LiveEvidence = await eventually(read, "the evidence")
    return found


def by_code(evidence: LiveEvidence) -> dict[tuple[str, str], ChangeEvidence]:
    """The evidence of each change."""
    return {(each.code, each.subject): each for each in evidence.changes}


def received(evidence: LiveEvidence, code: str, subject: str) -> int:
    """How often the events of a change were seen."""
    return sum(each.count for each in by_code(evidence)[code, subject].seen if each.what == "event")


def is_written(evidence: LiveEvidence) -> bool:
    """Whether all events of `play` are in the statistics."""
    return (3, 1) == tuple(received(evidence, "event.removed", each) for each in ("escalated", "praised"))


async def test_living_entities_and_events_are_counted_for_each_change(url: str) -> None:
    clock = VirtualClock(START_MS)
    async with tickets(url, clock, OLD) as runtime:
        await play(runtime, clock)
        found = await evidence_of(runtime, NEW, until=is_written)

    changes = by_code(found)
    removed = changes["state.removed", "urgent"]
    assert (3, 3) == (found.living, found.others)
    assert (START_MS, []) == (found.since_ms, list(found.gaps))
    assert (2, START_MS, True) == (removed.entities, removed.oldest_ms, removed.in_use)
    assert [("state", "urgent", 2, START_MS + 10 * DAY_MS)] == [
        (each.what, each.name, each.count, each.last_ms) for each in removed.seen
    ]
    assert changes["event.removed", "escalated"].in_use
    assert changes["field.added_required", "rank"].in_use


async def test_an_event_counts_as_in_use_within_the_window_only(url: str) -> None:
    clock = VirtualClock(START_MS)
    async with tickets(url, clock, OLD) as runtime:
        await play(runtime, clock)
        near = await evidence_of(runtime, NEW, within_ms=29 * DAY_MS, until=is_written)
        far = await evidence_of(runtime, NEW, within_ms=31 * DAY_MS, until=is_written)
        beyond = await evidence_of(runtime, NEW, within_ms=60 * DAY_MS, until=is_written)

    use = [by_code(each)["event.removed", "praised"].in_use for each in (near, far, beyond)]
    assert [False, True, True] == use


async def test_evidence_that_is_shorter_than_the_window_proves_nothing(url: str) -> None:
    clock = VirtualClock(START_MS)
    async with tickets(url, clock, OLD) as runtime:
        await runtime.create("ticket/1")
        found = await evidence_of(runtime, NEW, within_ms=DAY_MS, until=lambda each: each.since_ms is not None)
        clock.time_ms += 2 * DAY_MS
        later = await evidence_of(runtime, NEW, within_ms=DAY_MS, until=lambda each: each.since_ms is not None)

    assert by_code(found)["event.removed", "praised"].in_use
    assert not by_code(later)["event.removed", "praised"].in_use


@pytest.mark.parametrize("url", ["files", "sqlite"], indirect=True)  # a store in memory ends with its runtime
async def test_entities_on_the_new_definition_are_not_concerned(url: str) -> None:
    clock = VirtualClock(START_MS)
    new = NEW.replace("context: {rank: {type: integer, required: true}}\n", "")
    async with tickets(url, clock, OLD) as runtime:
        await runtime.create("ticket/old")
    clock.time_ms += DAY_MS
    async with tickets(url, clock, OLD, new) as runtime:
        await runtime.create("ticket/new")
        changed = new.replace("answered: waiting}", "answered: done}")
        found = await evidence_of(runtime, changed, until=lambda each: each.living == 2)
        same = await evidence_of(runtime, new, until=lambda each: each.living == 2)

    target = by_code(found)["transition.target", "open: answered"]
    assert (2, 2) == (found.others, target.entities)
    assert (1, START_MS) == (same.others, by_code(same)["transition.removed_last", "open: escalated"].oldest_ms)


async def test_events_that_a_new_list_leaves_out_are_named(url: str) -> None:
    clock = VirtualClock(START_MS)
    undeclared = OLD.replace("events: {answered: {}, closed: {}, escalated: {}, praised: {}}\n", "")
    async with tickets(url, clock, undeclared) as runtime:
        await play(runtime, clock)
        diff = diff_documents(document(undeclared), document(NEW))

        async def read() -> ChangeEvidence | None:
            found = await change_evidence(runtime, diff, None)
            (change,) = [each for each in found.changes if each.code == "events.declared"]
            return change if sum(each.count for each in change.seen) == 4 else None

        change: ChangeEvidence = await eventually(read, "the evidence")

    assert {"escalated", "praised"} == {each.name for each in change.seen}


async def test_tombstones_say_when_they_may_go(url: str) -> None:
    clock = VirtualClock(START_MS)
    async with tickets(url, clock, OLD) as runtime:
        await play(runtime, clock)

        async def verdicts(within_ms: int) -> dict[str, str]:
            found = await evidence_of(runtime, NEW, within_ms=within_ms, until=is_written)
            return {each.name: each.verdict for each in found.tombstones}

        early = await verdicts(29 * DAY_MS)
        clock.time_ms += 100 * DAY_MS  # the day of the tombstones has come
        late = await verdicts(29 * DAY_MS)
        wide = await verdicts(131 * DAY_MS)
        long = await verdicts(300 * DAY_MS)
        for number in range(2):
            await runtime.send(f"ticket/{number}", "answered")
        gone = await verdicts(29 * DAY_MS)

    assert {"urgent": "used", "escalated": "waiting", "praised": "waiting"} == early
    assert {"urgent": "used", "escalated": "safe", "praised": "safe"} == late
    assert {"urgent": "used", "escalated": "used", "praised": "used"} == wide == long
    assert {"urgent": "safe", "escalated": "safe", "praised": "safe"} == gone


async def test_a_store_that_has_seen_nothing_calls_nothing_safe(url: str) -> None:
    clock = VirtualClock(START_MS + 500 * DAY_MS)
    async with tickets(url, clock, OLD) as runtime:
        diff, removed = diff_documents(document(OLD), document(NEW)), document(NEW).removed
        found = await change_evidence(runtime, diff, removed)

    assert (0, 0, None) == (found.living, found.others, found.since_ms)
    assert {"unknown"} == {each.verdict for each in found.tombstones}
