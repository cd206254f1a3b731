"""What the records of retention say was removed, compared with what is gone.

A record is an entity of the kind `interlock-retention`; its entries name each removed entity with its version and a
hash: of an ended entity the head of its last record, of a compacted journal the hash over the removed heads.

Rule 1: a removal is recorded before its tombstone or base is written, and records are never removed. So each tombstone
and each base has a record with the same version and hash; one without was written by someone else.
Rule 2: what is recorded is pruned, or still there: the process may have been killed, or the store may have refused. A
recorded entity that is neither has lost its tombstone, and its id could be used again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import Struct

from interlock.errors import InterlockError
from interlock.model.encoding.codec import to_builtins
from interlock.model.journal.entry import Entry
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, EntityQuery, Store
from interlock.runtime.charts.registry import RETENTION_KIND
from interlock.runtime.history.replay import read_until_damage

BATCH = "retention.batch"
"""The event that records a batch before it is removed."""

What = Literal["prune", "compact"]


class Removed(Struct, frozen=True, array_like=True):
    """An entity of a batch: up to which version, and the hash."""

    entity: str
    version: int
    hash: str


class RecordedBatch(Struct, frozen=True):
    """A batch, and the entry that records it."""

    record: str
    version: int
    what: What
    removed: tuple[Removed, ...]


def batch_payload(what: What, removed: Iterable[Removed]) -> dict[str, Any]:
    """Return the payload of the event that records a batch; the part `batch` is what the record shows."""
    found = tuple(removed)
    batch = {"what": what, "entities": len(found), "first": found[0].entity, "last": found[-1].entity}
    return {"batch": {**batch, "digest": removed_digest(found)}, "removed": to_builtins(found)}


def removed_digest(removed: Iterable[Removed]) -> str:
    """Return the hash over entity, version and hash of each of these, in this order."""
    found = blake2b(digest_size=16)
    for each in removed:
        found.update(f"{each.entity}/{each.version}/{each.hash}\n".encode())
    return found.hexdigest()


async def recorded_batches(store: Store) -> AsyncIterator[RecordedBatch]:
    """Yield what the records of a store name; of a damaged record, what comes before the damage."""
    query = EntityQuery(kind=RETENTION_KIND, by_id=True, limit=PAGE_MAX)
    async for page in pages(store.find, query):
        for row in page.rows:
            try:
                async for records in read_until_damage(store, row.entity):
                    for each in records:
                        batch = _batch_of(row.entity, each.entry)
                        if batch is not None:
                            yield batch
            except InterlockError:  # the verification of its journal reports it; what it names stays without a record
                continue


def _batch_of(record: str, entry: Entry) -> RecordedBatch | None:
    if entry.event.name != BATCH or entry.outcome != "applied" or not isinstance(entry.event.data, dict):
        return None
    data = entry.event.data
    try:
        removed = msgspec.convert(data.get("removed"), tuple[Removed, ...])
        what = msgspec.convert(data["batch"]["what"], What)
    except (KeyError, TypeError, msgspec.ValidationError):
        return None
    return RecordedBatch(record, entry.version, what, removed)
