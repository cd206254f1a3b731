"""Cases of the store suite for a store that keeps data keys (`ports.data_keys.DataKeys`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlock.ports.trust.data_keys import DataKey, DataKeys, DestroyedKey
from interlock.testing.store_suite.subject import StoreSubject, expect

RACES = 8
"""Callers that add a key while an epoch ends."""


@asynccontextmanager
async def _keys(subject: StoreSubject) -> AsyncIterator[DataKeys]:
    async with subject.opened() as store:
        if store.data_keys is None:
            raise AssertionError(f"a {type(store).__name__} has no data keys")
        yield store.data_keys


def _key(number: int, *, epoch: int = 1) -> DataKey:
    return DataKey(f"{number:016x}", epoch, b"wrapped under %d: %d" % (epoch, number), 1_000 + number)


async def a_key_is_found_as_it_was_added(subject: StoreSubject) -> None:
    """All of its parts are kept; an unknown id is unknown."""
    async with _keys(subject) as keys:
        expect(True, await keys.add_keys((_key(1), _key(2))))
        expect(_key(1), await keys.find_key(_key(1).kid))
        expect(_key(2), await keys.find_key(_key(2).kid))
        expect(None, await keys.find_key(_key(3).kid))
        expect({1: 2}, await keys.count_keys())


async def a_destroyed_key_is_gone_and_its_id_is_kept(subject: StoreSubject) -> None:
    """Destroying again changes nothing: the first time counts."""
    async with _keys(subject) as keys:
        await keys.add_keys((_key(1), _key(2)))
        first = await keys.destroy_key(_key(1).kid, now_ms=5_000)
        expect(first, await keys.destroy_key(_key(1).kid, now_ms=6_000))
        expect(DestroyedKey(_key(1).kid, 5_000), await keys.find_key(_key(1).kid))
        expect(_key(2), await keys.find_key(_key(2).kid))
        expect((DestroyedKey(_key(1).kid, 5_000),), await keys.destroyed_keys())
        expect({1: 1}, await keys.count_keys())


async def an_unknown_key_can_be_destroyed(subject: StoreSubject) -> None:
    """The key file may be older than the erasure: the id must be remembered, and must not come back."""
    async with _keys(subject) as keys:
        await keys.destroy_key(_key(7).kid, now_ms=5_000)
        expect(DestroyedKey(_key(7).kid, 5_000), await keys.find_key(_key(7).kid))
        expect({}, await keys.count_keys())


async def destroyed_keys_are_read_page_by_page(subject: StoreSubject) -> None:
    """In the order of their ids, each once."""
    async with _keys(subject) as keys:
        for number in (3, 1, 2):
            await keys.destroy_key(_key(number).kid, now_ms=number)
        first = await keys.destroyed_keys(limit=2)
        expect(2, len(first), "the rows of the first page")
        rest = await keys.destroyed_keys(after=first[-1].kid, limit=2)
        expect([_key(each).kid for each in (1, 2, 3)], [each.kid for each in (*first, *rest)])


async def no_key_of_a_retired_epoch_is_added(subject: StoreSubject) -> None:
    """Nothing of the call is stored, and an epoch that has ended never starts again."""
    async with _keys(subject) as keys:
        await keys.add_keys((_key(1),))
        await keys.retire_epochs(2)
        expect(False, await keys.add_keys((_key(2, epoch=2), _key(3, epoch=1))))
        expect(None, await keys.find_key(_key(2).kid))
        await keys.retire_epochs(1)
        expect(False, await keys.add_keys((_key(3, epoch=1),)))
        expect(True, await keys.add_keys((_key(4, epoch=2),)))
        expect(_key(1), await keys.find_key(_key(1).kid), "a key that was there stays readable")


async def keys_are_wrapped_again_page_by_page(subject: StoreSubject) -> None:
    """A key that was destroyed meanwhile stays destroyed."""
    async with _keys(subject) as keys:
        await keys.add_keys(tuple(_key(number) for number in range(1, 6)))
        page = await keys.keys_before(2, limit=3)
        expect([_key(each) for each in (1, 2, 3)], list(page))
        await keys.destroy_key(_key(2).kid, now_ms=1)
        await keys.replace_keys(tuple(_key(number, epoch=2) for number in (1, 2, 3)))
        expect(_key(1, epoch=2), await keys.find_key(_key(1).kid))
        expect(DestroyedKey(_key(2).kid, 1), await keys.find_key(_key(2).kid))
        expect([_key(each) for each in (4, 5)], list(await keys.keys_before(2)))
        expect({1: 2, 2: 2}, await keys.count_keys())


async def keys_that_are_added_while_an_epoch_ends_are_seen_or_refused(subject: StoreSubject) -> None:
    """None is added behind the walk that wraps them again: its master key is destroyed after that."""
    async with _keys(subject) as keys:
        adding = [asyncio.create_task(keys.add_keys((_key(number),))) for number in range(RACES)]
        await keys.retire_epochs(2)
        seen = {each.kid for each in await keys.keys_before(2)}
        added = [_key(number).kid for number, is_added in enumerate(await asyncio.gather(*adding)) if is_added]
        expect([], [kid for kid in added if kid not in seen], "keys that were added behind the walk")


async def keys_are_durable(subject: StoreSubject) -> None:
    """A reopened store has the keys, the ids of destroyed ones, and the end of epochs."""
    async with _keys(subject) as keys:
        await keys.add_keys((_key(1), _key(2, epoch=2)))
        await keys.destroy_key(_key(1).kid, now_ms=9)
        await keys.retire_epochs(2)
    async with _keys(subject) as keys:
        expect(_key(2, epoch=2), await keys.find_key(_key(2).kid))
        expect(DestroyedKey(_key(1).kid, 9), await keys.find_key(_key(1).kid))
        expect(False, await keys.add_keys((_key(3),)))


async def another_handle_sees_a_destroyed_key(subject: StoreSubject) -> None:
    """Immediately: what a process has opened before is its own cache."""
    async with _keys(subject) as one, _keys(subject) as other:
        await one.add_keys((_key(1),))
        expect(_key(1), await other.find_key(_key(1).kid))
        await one.destroy_key(_key(1).kid, now_ms=9)
        expect(DestroyedKey(_key(1).kid, 9), await other.find_key(_key(1).kid))


CASES = (
    a_key_is_found_as_it_was_added,
    a_destroyed_key_is_gone_and_its_id_is_kept,
    an_unknown_key_can_be_destroyed,
    destroyed_keys_are_read_page_by_page,
    no_key_of_a_retired_epoch_is_added,
    keys_are_wrapped_again_page_by_page,
    keys_that_are_added_while_an_epoch_ends_are_seen_or_refused,
)
DURABLE = (keys_are_durable,)
SHARED = (another_handle_sees_a_destroyed_key,)
