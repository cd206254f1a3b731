"""Cases of the store suite: concurrent callers in one process, on two handles, and in several processes."""

from __future__ import annotations

import asyncio
import multiprocessing

from interlock.errors import InterlockError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.event import Event
from interlock.model.journal.entry import Entry
from interlock.ports.store import Append, Appended, Conflict, Duplicate, Store
from interlock.testing.store_suite.samples import Life, kernel
from interlock.testing.store_suite.subject import StoreSubject, expect, journal, kept, snapshot

CALLERS = 8
ENTRIES_EACH = 12
PROCESSES = 3
ATTEMPTS_MAX = 10_000
"""Tries of one append before its caller counts as starved."""


async def rivals_on_one_entity_lose_no_entry(subject: StoreSubject) -> None:
    """Concurrent callers of one entity: each entry is stored once, each version has one winner."""
    async with subject.opened() as store:
        await kept(store, Life("parcel/1").created())
        names = [f"caller{each}" for each in range(CALLERS)]
        won = await asyncio.gather(*(_insist(store, "parcel/1", name) for name in names))
        await _check_all_kept(store, "parcel/1", dict(zip(names, won, strict=True)))


async def one_key_is_kept_once(subject: StoreSubject) -> None:
    """The same append by many callers: one is stored, the others get its version."""
    life = Life("parcel/1")
    born, step = life.created(), life.stepped(key="once")
    async with subject.opened() as store:
        answers = await asyncio.gather(*(store.append(born) for _ in range(CALLERS)))
        expect([1] * CALLERS, [each.version for each in answers])
        expect(1, sum(isinstance(each, Appended) for each in answers))
        answers = await asyncio.gather(*(store.append(step) for _ in range(CALLERS)))
        expect(1, sum(isinstance(each, Appended) for each in answers))
        expect(CALLERS - 1, sum(each == Duplicate(2) for each in answers))
        expect(2, len(await journal(store, "parcel/1")))


async def one_version_is_won_once(subject: StoreSubject) -> None:
    """Different steps on the same version: one is stored, the others are conflicts."""
    async with subject.opened() as store:
        await kept(store, Life("parcel/1").created())
        rivals = []
        for number in range(CALLERS):
            rival = Life("parcel/1")
            rival.created()
            rivals.append(rival.stepped(key=f"k{number}"))
        answers = await asyncio.gather(*map(store.append, rivals))
        expect(1, sum(isinstance(each, Appended) for each in answers))
        expect(CALLERS - 1, sum(each == Conflict(2) for each in answers))


async def steps_in_one_flight_build_on_each_other(subject: StoreSubject) -> None:
    """Appends given in order without waiting are kept in order; those behind a lost one are refused."""
    life = Life("parcel/1")
    appends = [life.created(), *(life.stepped(key=f"k{each}") for each in range(20))]
    async with subject.opened() as store:
        answers = await asyncio.gather(*map(store.append, appends))
        won = [append.entry for append, answer in zip(appends, answers, strict=True) if isinstance(answer, Appended)]
        expect(won, [each.entry for each in await journal(store, "parcel/1")])


async def many_entities_go_on_side_by_side(subject: StoreSubject) -> None:
    """Entities do not wait for, or mix with, each other."""
    async with subject.opened() as store:
        lives = [Life(f"parcel/{each}") for each in range(40)]
        await asyncio.gather(*(_whole_life(store, each) for each in lives))
        for life in lives:
            expect(life.snapshot, await snapshot(store, life.entity))
            expect(6, len(await journal(store, life.entity)))


async def close_lets_appends_under_way_end(subject: StoreSubject) -> None:
    """Closing while busy answers every caller: stored, or UnavailableError. No caller hangs."""
    async with subject.opened() as store:
        lives = [Life(f"parcel/{each}") for each in range(30)]
        tasks = [asyncio.ensure_future(store.append(each.created())) for each in lives]
        await asyncio.sleep(0)
        await store.close()
        for answer in await asyncio.gather(*tasks, return_exceptions=True):
            expect(True, isinstance(answer, Appended | UnavailableError), repr(answer))


async def what_was_acknowledged_before_close_is_kept(subject: StoreSubject) -> None:
    """After a close while busy, another handle finds every entry that was acknowledged, and no torn one."""
    store = await asyncio.to_thread(subject.open)
    lives = [Life(f"parcel/{each}") for each in range(30)]
    tasks = [asyncio.ensure_future(store.append(each.created())) for each in lives]
    await asyncio.sleep(0)
    await store.close()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    async with subject.opened() as store:
        for life, answer in zip(lives, answers, strict=True):
            records = await journal(store, life.entity)
            expect(True, len(records) == 1 or not isinstance(answer, Appended), life.entity)


async def two_handles_see_each_other(subject: StoreSubject) -> None:
    """What one handle keeps, the other loads, refuses as a conflict, and knows by its key."""
    life, behind = Life("parcel/1"), Life("parcel/1")
    born = life.created()
    behind.created()
    async with subject.opened() as first, subject.opened() as second:
        await kept(first, born)
        expect(1, (await snapshot(second, "parcel/1")).version)
        await kept(second, life.stepped("shipped", key="theirs"))
        expect(Conflict(2), await first.append(behind.stepped(key="mine")))
        expect(life.snapshot, await snapshot(first, "parcel/1"))
        expect(Duplicate(2), await first.load("parcel/1", key="theirs"))
        await kept(first, life.stepped(key="mine"))
        expect(3, len(await journal(second, "parcel/1")))


async def rivals_on_two_handles_lose_no_entry(subject: StoreSubject) -> None:
    """Callers on different handles of one place: each entry is kept once."""
    async with subject.opened() as first, subject.opened() as second:
        await kept(first, Life("parcel/1").created())
        names = [f"caller{each}" for each in range(4)]
        stores = (first, second, first, second)
        won = await asyncio.gather(
            *(_insist(store, "parcel/1", name) for store, name in zip(stores, names, strict=True))
        )
        await _check_all_kept(second, "parcel/1", dict(zip(names, won, strict=True)))


async def rivals_in_several_processes_lose_no_entry(subject: StoreSubject) -> None:
    """Concurrent processes on the same entities: each acknowledged entry is stored once, at its version."""
    async with subject.opened() as store:
        await kept(store, Life("parcel/1").created())
        spawn = multiprocessing.get_context("spawn")
        answers = spawn.SimpleQueue()
        rivals = [spawn.Process(target=_rival, args=(subject, f"process{each}", answers)) for each in range(PROCESSES)]
        for each in rivals:
            each.start()
        won = dict([await asyncio.to_thread(answers.get) for _ in rivals])
        for each in rivals:
            await asyncio.to_thread(each.join)
        expect([], [f"{name}: {versions}" for name, versions in won.items() if isinstance(versions, str)])
        await _check_all_kept(store, "parcel/1", won)


def _rival(subject: StoreSubject, name: str, answers: multiprocessing.SimpleQueue[tuple[str, list[int] | str]]) -> None:
    async def insisted() -> list[int]:
        async with subject.opened() as store:
            return await _insist(store, "parcel/1", name)

    try:
        answers.put((name, asyncio.run(insisted())))
    except (InterlockError, AssertionError, OSError) as error:
        answers.put((name, repr(error)))


async def _insist(store: Store, entity: str, name: str) -> list[int]:
    """Append some entries against all rivals; the versions they were kept at."""
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


async def _check_all_kept(store: Store, entity: str, won: dict[str, list[int]]) -> None:
    records = await journal(store, entity)
    by_key = {each.key: each.version for each in records[1:]}
    expect({f"{name}-{n}": version for name, each in won.items() for n, version in enumerate(each)}, by_key)
    expect(1 + len(won) * ENTRIES_EACH, len(records))
    expect(len(won) * ENTRIES_EACH, (await snapshot(store, entity)).context["notes"], "every entry counts once")


async def _whole_life(store: Store, life: Life) -> None:
    await kept(store, life.created())
    for number, event in enumerate(("shipped", "noted", "boarded", "landed", "delivered")):
        await kept(store, life.stepped(event, key=f"k{number}"))


CASES = (
    rivals_on_one_entity_lose_no_entry,
    one_key_is_kept_once,
    one_version_is_won_once,
    steps_in_one_flight_build_on_each_other,
    many_entities_go_on_side_by_side,
    close_lets_appends_under_way_end,
)
SHARED = (
    what_was_acknowledged_before_close_is_kept,
    two_handles_see_each_other,
    rivals_on_two_handles_lose_no_entry,
    rivals_in_several_processes_lose_no_entry,
)
