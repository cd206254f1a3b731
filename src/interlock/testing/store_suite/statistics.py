"""Cases of the store suite for a store with counters: populations, and entities that are overdue in a state.

Rule: rates and dwell times may lag, so they are not tested here; populations are always exact.
"""

from __future__ import annotations

from msgspec.structs import replace

from interlock.model.journal.work import Lane, Work, WorkDelta, WorkId
from interlock.ports.reading.statistics import Statistics
from interlock.ports.reading.visible_names import VISIBLE, visible_names, visible_state
from interlock.ports.store import Append, EntityQuery, Store
from interlock.testing.store_suite.samples import SampleEntity, kernel
from interlock.testing.store_suite.subject import StoreSubject, append_all, expect, list_all

EVER_MS = 10**12
"""Later than every time in these cases."""


async def populations_count_every_active_state_by_revision(subject: StoreSubject) -> None:
    """Compound states count too; an entity counts where it is now, and an empty state is not listed."""
    old, new, other = SampleEntity("parcel/1"), SampleEntity("parcel/2", revision="2.0.0"), SampleEntity("letter/1")
    async with subject.opened() as store:
        await append_all(store, old.create(), new.create(), other.create())
        await append_all(store, old.step("shipped", key="s"))
        expect([("1.0.0", "moving", 1), ("1.0.0", "moving.road", 1), ("2.0.0", "packed", 1)], await _counts(store))
        expect([("1.0.0", "packed", 1)], await _counts(store, "letter"))
        expect([], await _counts(store, "nothing"))


async def a_cancelled_entity_is_not_counted_in_its_state(subject: StoreSubject) -> None:
    """It is counted and listed by how it ended, and not in its state or its tags."""
    samples = off, living, done = [SampleEntity(f"parcel/{each}", time_ms=100) for each in ("a", "b", "c")]
    async with subject.opened() as store:
        for sample in samples:
            await append_all(store, sample.create(), sample.step("shipped", key="s"))
        await append_all(store, off.cancel(key="off", after_ms=500), done.step("delivered", key="d", after_ms=40))
        expect(
            [
                ("1.0.0", ":cancelled", 1),
                ("1.0.0", "delivered", 1),
                ("1.0.0", "moving", 1),
                ("1.0.0", "moving.road", 1),
            ],
            await _counts(store),
        )
        for state in ("moving", "moving.road"):
            expect(1, await _overdue(store, state), f"overdue in {state}")
            expect([living.entity], await _names(store, EntityQuery(kind="parcel", state=state)), f"list of {state}")
        expect([living.entity], await _names(store, EntityQuery(kind="parcel", tag="outside")))
        expect([], await _names(store, EntityQuery(kind="parcel", tag="outside", prefix="a")))
        expect([], await _names(store, EntityQuery(kind="parcel", state="moving", prefix="a")))
        expect([off.entity], await _names(store, EntityQuery(kind="parcel", state=":cancelled")))
        expect([off.entity], await _names(store, EntityQuery(kind="parcel", state=":cancelled", entered_before_ms=611)))
        expect([], await _names(store, EntityQuery(kind="parcel", state=":cancelled", entered_before_ms=610)))
        rows = await list_all(store, EntityQuery(kind="parcel"))
        expect(
            [("parcel/b", None, 110), ("parcel/c", "done", 150), ("parcel/a", "cancelled", 610)],
            [(each.entity, each.ended, each.entered_ms) for each in rows],
        )
        expect(("moving.road",), rows[-1].configuration, "its state when it was cancelled")


async def events_of_an_ended_entity_change_no_counts(subject: StoreSubject) -> None:
    """A late result is appended to its journal; the entity counts once, with the time at which it ended."""
    sample = SampleEntity("parcel/1", time_ms=100)
    async with subject.opened() as store:
        await append_all(store, sample.create(), sample.step("shipped", key="s"))
        off = sample.cancel(key="off")
        await append_all(store, off, _after(off, "late", 5_000))
        expect([("1.0.0", ":cancelled", 1)], await _counts(store))
        (row,) = await list_all(store, EntityQuery(kind="parcel", state=":cancelled"))
        expect((4, 120, 5_120, "cancelled"), (row.version, row.entered_ms, row.changed_ms, row.ended))
        expect(0, await _overdue(store, "moving"))


async def failed_and_cancelled_entities_are_counted_separately(subject: StoreSubject) -> None:
    """Each way to end without a final state has its own name."""
    one, other = SampleEntity("parcel/1"), SampleEntity("parcel/2")
    async with subject.opened() as store:
        for sample in (one, other):
            await append_all(store, sample.create())
        failed = other.cancel(key="off")
        await append_all(
            store, one.cancel(key="off"), replace(failed, snapshot=replace(failed.snapshot, ended="failed"))
        )
        expect([("1.0.0", ":cancelled", 1), ("1.0.0", ":failed", 1)], await _counts(store))
        expect([other.entity], await _names(store, EntityQuery(kind="parcel", state=":failed")))
        expect([], await _names(store, EntityQuery(kind="parcel", state="packed")))


async def an_entity_of_another_revision_is_cancelled_once(subject: StoreSubject) -> None:
    """It is removed from the population of the old revision and counted in the new one by how it ended."""
    sample = SampleEntity("parcel/1")
    async with subject.opened() as store:
        await append_all(store, sample.create())
        off = sample.cancel(key="off")
        await append_all(store, replace(off, snapshot=replace(off.snapshot, revision="2.0.0+x")))
        expect([("2.0.0", ":cancelled", 1)], await _counts(store))


async def work_in_line_is_counted_by_lane(subject: StoreSubject) -> None:
    """Work that waits for its time or for a worker counts; finished work does not."""
    one, other = SampleEntity("parcel/1"), SampleEntity("parcel/2")
    lanes: tuple[Lane, ...] = ("timer", "effect", "outbox", "message")
    timer, effect = Work(WorkId("timer", 1, 0), "late", {}, 50), Work(WorkId("effect", 1, 1), "charge", {}, 60)
    async with subject.opened() as store:
        statistics = _statistics(store)
        expect(0, await statistics.count_work("timer"))
        await append_all(
            store,
            replace(one.create(), work=WorkDelta(created=(timer, effect))),
            replace(other.create(), work=WorkDelta(created=(timer,))),
        )
        expect([2, 1, 0, 0], [await statistics.count_work(lane) for lane in lanes])
        await append_all(store, replace(one.step("shipped", key="s"), work=WorkDelta(finished=(timer.id,))))
        expect([1, 1, 0, 0], [await statistics.count_work(lane) for lane in lanes])


async def others_have_lists_and_counts_of_their_own(subject: StoreSubject) -> None:
    """An entity is listed and counted for others by `Append.others`, with the times of what they saw, and as it is."""
    packed = visible_names(("packed",), ("inside",))
    moving = visible_names(("moving", "moving.road"), ("outside",))
    one, other, unseen = (
        SampleEntity("parcel/a", time_ms=100),
        SampleEntity("parcel/b", time_ms=200),
        SampleEntity("parcel/c", time_ms=1_200),
    )
    async with subject.opened() as store:
        await append_all(store, replace(one.create(), others=packed), replace(other.create(), others=packed))
        await append_all(store, unseen.create())
        await append_all(store, replace(one.step("shipped", key="s", after_ms=900), others=packed))
        expect(["parcel/b", "parcel/a", "parcel/c"], await _names(store, EntityQuery(kind="parcel")))
        expect(["parcel/a"], await _names(store, EntityQuery(kind="parcel", state="moving")))
        for name in packed:
            expect(["parcel/a", "parcel/b"], await _names(store, EntityQuery(kind="parcel", state=name)), name)
        expect([("1.0.0", "moving", 1), ("1.0.0", "moving.road", 1), ("1.0.0", "packed", 2)], await _counts(store))
        expect([("", 2), ("packed", 2)], await _visible(store))

        await append_all(store, replace(other.step("shipped", key="s", after_ms=1_300), others=moving))  # at 1,500
        await append_all(store, replace(one.step(key="n"), others=packed))
        expect(["parcel/a", "parcel/b"], await _names(store, EntityQuery(kind="parcel", state=VISIBLE)))
        expect(["parcel/a"], await _names(store, EntityQuery(kind="parcel", state=visible_state("packed"))))
        expect(["parcel/b"], await _names(store, EntityQuery(kind="parcel", state=moving[-1])))
        expect([("", 2), ("moving", 1), ("moving.road", 1), ("packed", 1)], await _visible(store))

        await append_all(store, replace(one.step(key="m", after_ms=2_000), others=moving))  # they see it move at 3,010
        expect(["parcel/b", "parcel/a"], await _names(store, EntityQuery(kind="parcel", state=VISIBLE)))
        older = EntityQuery(kind="parcel", state=visible_state("moving"), entered_before_ms=3_010)
        expect(["parcel/b"], await _names(store, older))
        expect(["parcel/a"], await _names(store, EntityQuery(kind="parcel", state=VISIBLE, prefix="a")))
        expect(2, await _overdue(store, visible_state("moving")))
        expect(0, await _overdue(store, visible_state("packed")))

        await append_all(store, replace(other.step(key="g"), others=()))
        expect(["parcel/a"], await _names(store, EntityQuery(kind="parcel", state=VISIBLE)))
        expect([("", 1), ("moving", 1), ("moving.road", 1)], await _visible(store))
        expect(3, len(await _names(store, EntityQuery(kind="parcel"))))


def _after(append: Append, key: str, after_ms: int) -> Append:
    """A step that changes only the version of an ended entity."""
    entry, version = append.entry, append.entry.version
    event = replace(entry.event, key=key, time_ms=entry.event.time_ms + after_ms)
    return replace(
        append,
        expected=version,
        entry=replace(entry, version=version + 1, event=event, key=key),
        snapshot=replace(append.snapshot, version=version + 1),
    )


async def _counts(store: Store, kind: str = "parcel") -> list[tuple[str, str, int]]:
    """The counts by revision label and state."""
    found = await _statistics(store).count_states(kind)
    labels = {kernel(kind, label).chart.revision: label for label in ("1.0.0", "2.0.0")}
    return sorted(
        (labels.get(each.revision, each.revision.partition("+")[0]), each.state, each.entities) for each in found
    )


async def _visible(store: Store) -> list[tuple[str, int]]:
    """The counts for others; those of the same answer that are true must be the counts."""
    found = await _statistics(store).visible_counts("parcel")
    expect(await _statistics(store).count_states("parcel"), found.states)
    return sorted((each.state, each.entities) for each in found.visible)


async def _overdue(store: Store, state: str) -> int:
    return await _statistics(store).count_overdue("parcel", state, before_ms=EVER_MS)


async def _names(store: Store, query: EntityQuery) -> list[str]:
    return [each.entity for each in await list_all(store, query)]


def _statistics(store: Store) -> Statistics:
    if store.statistics is None:
        raise AssertionError(f"a {type(store).__name__} has no counters")
    return store.statistics


CASES = (
    populations_count_every_active_state_by_revision,
    a_cancelled_entity_is_not_counted_in_its_state,
    events_of_an_ended_entity_change_no_counts,
    failed_and_cancelled_entities_are_counted_separately,
    work_in_line_is_counted_by_lane,
    an_entity_of_another_revision_is_cancelled_once,
    others_have_lists_and_counts_of_their_own,
)
