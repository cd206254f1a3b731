"""Read a journal as far as it is sound: what stands before the damage is proven by its own chain.

Rule 1: damage is never hidden: the last thing that a reader hears is the error of the store.
Rule 2: a store refuses the whole page that a bad record is on; the sound part of it is found by asking for less.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from interlock.errors import CorruptionError
from interlock.model.journal.record import JournalRecord
from interlock.ports.store import PAGE_MAX, Store


async def read_until_damage(store: Store, entity: str, *, after: int = 0) -> AsyncIterator[tuple[JournalRecord, ...]]:
    """The records after a version, page by page; of a damaged journal those before the damage, then CorruptionError."""
    while True:  # ends with the journal, or with its damage
        try:
            records = await store.read(entity, after=after, limit=PAGE_MAX)
        except CorruptionError:
            records = await before_damage(store, entity, after=after)
            if records:
                yield records
            raise
        if not records:
            return
        yield records
        after = records[-1].version


async def before_damage(store: Store, entity: str, *, after: int) -> tuple[JournalRecord, ...]:
    """The records of a page before the one that does not read."""
    good: tuple[JournalRecord, ...] = ()
    low, high = 0, PAGE_MAX
    while low < high - 1:  # `low` can be read, `high` cannot
        middle = (low + high) // 2
        try:
            found = await store.read(entity, after=after, limit=middle)
        except CorruptionError:
            high = middle
        else:
            if len(found) < middle:  # it has been put right meanwhile
                return found
            good, low = found, middle
    return good
