"""Cases of the store suite: concurrent callers in one process, on two handles, and in several processes."""

from __future__ import annotations

import asyncio
import multiprocessing

from interlock.errors import InterlockError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.event import Event
from interlock.model.journal.entry import Entry
from interlock.ports.store import Append, Appended, Conflict, Duplicate, Store
from interlock.testing.store_suite.samples import SampleEntity, kernel
from interlock.testing.store_suite.subject import StoreSubject, append_all, expect, journal, snapshot

CALLERS = 8
ENTRIES_EACH = 12
PROCESSES = 3
ATTEMPTS_MAX = 10_000
"""Tries of one append before its caller counts as starved."""


async def rivals_on_one_entity_lose_no_entry(subject: StoreSubject) -> None:
    """Concurrent callers of one entity: each entry is stored once, each version has one winner."""
    async with subject.opened() as store:
        await append_all(store, SampleEntity("parcel/1").create())
        names = [f"caller{each}" for each in range(CALLERS)]
        won = await asyncio.gather(*(_append_with_retries(store, "parcel/1", name) for name in names))
        await _check_all_stored(store, "parcel/1", dict(zip(names, won, strict=True)))


async def one_key_is_stored_once(subject: StoreSubject) -> None:
    """The same append by many callers: one is stored, the others get its version."""
    sample = SampleEntity("parcel/1")
    creation, step = sample.create(), sample.step(key="once")
    async with subject.opened() as store:
        answers = await asyncio.gather(*(store.append(creation) for _ in range(CALLERS)))
        expect([1] * CALLERS, [each.version for each in answers])
        expect(1, sum(isinstance(each, Appended) for each in answers))
        answers = await asyncio.gather(*(store.append(step) for _ in range(CALLERS)))
        expect(1, sum(isinstance(each, Appended) for each in answers))
        expect(CALLERS - 1, sum(each == Duplicate(2) for each in answers))
        expect(2, len(await journal(store, "parcel/1")))


async def one_version_is_won_once(subject: StoreSubject) -> None:
    """Different steps on the same version: one is stored, the others are conflicts."""
    async with subject.opened() as store:
        await append_all(store, SampleEntity("parcel/1").create())
        rivals = []
        for number in range(CALLERS):
            rival = SampleEntity("parcel/1")
            rival.create()
            rivals.append(rival.step(key=f"k{number}"))
        answers = await asyncio.gather(*map(store.append, rivals))
        expect(1, sum(isinstance(each, Appended) for each in answers))
        expect(CALLERS - 1, sum(each == Conflict(2) for each in answers))


async def concurrent_steps_of_one_entity_are_ordered(subject: StoreSubject) -> None:
    """Appends submitted in order without waiting are stored in order; appends after a lost one are refused."""
    sample = SampleEntity("parcel/1")
    appends = [sample.create(), *(sample.step(key=f"k{each}") for each in range(20))]
    async with subject.opened() as store:
        answers = await asyncio.gather(*map(store.append, appends))
        won = [append.entry for append, answer in zip(appends, answers, strict=True) if isinstance(answer, Appended)]
        expect(won, [each.entry for each in await journal(store, "parcel/1")])


async def many_entities_advance_concurrently(subject: StoreSubject) -> None:
    """Entities do not wait for, or mix with, each other."""
    async with subject.opened() as store:
        samples = [SampleEntity(f"parcel/{each}") for each in range(40)]
        await asyncio.gather(*(_run_entity(store, each) for each in samples))
        for sample in samples:
            expect(sample.snapshot, await snapshot(store, sample.entity))
            expect(6, len(await journal(store, sample.entity)))


async def close_waits_for_running_appends(subject: StoreSubject) -> None:
    """Closing while busy answers every caller: stored, or UnavailableError. No caller hangs."""
    async with subject.opened() as store:
        samples = [SampleEntity(f"parcel/{each}") for each in range(30)]
        tasks = [asyncio.ensure_future(store.append(each.create())) for each in samples]
        await asyncio.sleep(0)
        await store.close()
        for answer in await asyncio.gather(*tasks, return_exceptions=True):
            expect(True, isinstance(answer, Appended | UnavailableError), repr(answer))


async def acknowledged_entries_survive_close(subject: StoreSubject) -> None:
    """After a close while busy, another handle finds every entry that was acknowledged, and no torn one."""
    store = await asyncio.to_thread(subject.open)
    samples = [SampleEntity(f"parcel/{each}") for each in range(30)]
    tasks = [asyncio.ensure_future(store.append(each.create())) for each in samples]
    await asyncio.sleep(0)
    await store.close()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    async with subject.opened() as store:
        for sample, answer in zip(samples, answers, strict=True):
            records = await journal(store, sample.entity)
            expect(True, len(records) == 1 or not isinstance(answer, Appended), sample.entity)


async def two_handles_see_each_other(subject: StoreSubject) -> None:
    """An entry of one handle is loaded by the other, causes its conflicts, and is found by its key."""
    sample, behind = SampleEntity("parcel/1"), SampleEntity("parcel/1")
    creation = sample.create()
    behind.create()
    async with subject.opened() as first, subject.opened() as second:
        await append_all(first, creation)
        expect(1, (await snapshot(second, "parcel/1")).version)
        await append_all(second, sample.step("shipped", key="theirs"))
        expect(Conflict(2), await first.append(behind.step(key="mine")))
        expect(sample.snapshot, await snapshot(first, "parcel/1"))
        expect(Duplicate(2), await first.load("parcel/1", key="theirs"))
        await append_all(first, sample.step(key="mine"))
        expect(3, len(await journal(second, "parcel/1")))


async def rivals_on_two_handles_lose_no_entry(subject: StoreSubject) -> None:
    """Callers on different handles of one store: each entry is stored once."""
    async with subject.opened() as first, subject.opened() as second:
        await append_all(first, SampleEntity("parcel/1").create())
        names = [f"caller{each}" for each in range(4)]
        stores = (first, second, first, second)
        won = await asyncio.gather(
            *(_append_with_retries(store, "parcel/1", name) for store, name in zip(stores, names, strict=True))
        )
        await _check_all_stored(second, "parcel/1", dict(zip(names, won, strict=True)))


async def rivals_in_several_processes_lose_no_entry(subject: StoreSubject) -> None:
    """Concurrent processes on the same entities: each acknowledged entry is stored once, at its version."""
    async with subject.opened() as store:
        await append_all(store, SampleEntity("parcel/1").create())
        spawn = multiprocessing.get_context("spawn")
        answers = spawn.SimpleQueue()
        rivals = [spawn.Process(target=_rival, args=(subject, f"process{each}", answers)) for each in range(PROCESSES)]
        for each in rivals:
            each.start()
        won = dict([await asyncio.to_thread(answers.get) for _ in rivals])
        for each in rivals:
            await asyncio.to_thread(each.join)
        expect([], [f"{name}: {versions}" for name, versions in won.items() if isinstance(versions, str)])
        await _check_all_stored(store, "parcel/1", won)


def _rival(subject: StoreSubject, name: str, answers: multiprocessing.SimpleQueue[tuple[str, list[int] | str]]) -> None:
    async def insisted() -> list[int]:
        async with subject.opened() as store:
            return await _append_with_retries(store, "parcel/1", name)

    try:
        answers.put((name, asyncio.run(insisted())))
    except (InterlockError, AssertionError, OSError) as error:
        answers.put((name, repr(error)))


async def _append_with_retries(store: Store, entity: str, name: str) -> list[int]:
    """Append some entries in competition with rivals; return the versions at which they were stored."""
    won: list[int] = []
    chart = kernel(entity.partition("/")[0])
    for _ in range(ATTEMPTS_MAX):
        if len(won) == ENTRIES_EACH:
            return won
        answer = await store.append(await _next(store, chart, entity, f"{name}-{len(won)}"))
        if isinstance(answer, Appended):
            won.append(answer.version)
        expect(False, isinstance(answer, Duplicate), f"{answer} for a key never kept")
    raise AssertionError(f"{name} was starved")


async def _next(store: Store, chart: Kernel, entity: str, key: str) -> Append:
    now = await snapshot(store, entity)
    event = Event("noted", None, key, key, None, now.version)
    step = chart.step(now, event)
    after = step.snapshot
    entry = Entry(after.version, event, step.outcome, now.configuration, after.configuration, after.revision, key)
    states = tuple(each.id for each in chart.active(after))
    return Append(after.kind, entity, now.version, entry, after, states)


async def _check_all_stored(store: Store, entity: str, won: dict[str, list[int]]) -> None:
    records = await journal(store, entity)
    by_key = {each.key: each.version for each in records[1:]}
    expect({f"{name}-{n}": version for name, each in won.items() for n, version in enumerate(each)}, by_key)
    expect(1 + len(won) * ENTRIES_EACH, len(records))
    expect(len(won) * ENTRIES_EACH, (await snapshot(store, entity)).context["notes"], "every entry counts once")


async def _run_entity(store: Store, sample: SampleEntity) -> None:
    await append_all(store, sample.create())
    for number, event in enumerate(("shipped", "noted", "boarded", "landed", "delivered")):
        await append_all(store, sample.step(event, key=f"k{number}"))


CASES = (
    rivals_on_one_entity_lose_no_entry,
    one_key_is_stored_once,
    one_version_is_won_once,
    concurrent_steps_of_one_entity_are_ordered,
    many_entities_advance_concurrently,
    close_waits_for_running_appends,
)
SHARED = (
    acknowledged_entries_survive_close,
    two_handles_see_each_other,
    rivals_on_two_handles_lose_no_entry,
    rivals_in_several_processes_lose_no_entry,
)
