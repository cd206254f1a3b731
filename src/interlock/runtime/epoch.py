"""The restore epoch of a store: how often it was restored from an older copy.

A restored store continues from an earlier version, so the versions that follow were used before, for other events.
Effects of those versions may have reached other systems, under keys made from entity, version and ordinal.

Rule 1: the epoch is a fact of the store. `raise_epoch` adds one, after a restore and before any worker starts.
Rule 2: it is stamped into every event when it is accepted, so it is an input of the step like the time, and replay
gives the same keys. Keys of effects, ids of children and the `sequence` of messages contain it.
Rule 3: work that was pending in the copy keeps its key: if it was performed on the lost time line, the service
recognises it.
"""

from __future__ import annotations

from interlock.errors import CorruptionError, UnavailableError, UsageError
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, Store
from interlock.ports.work import WorkQuery, WorkRow
from interlock.trust.audit import act_row

EPOCH_FACT = "epoch"
WENT_BACK = "store.went_back"

WORK_LOOKED_AT_MAX = 100_000
"""Pieces of work that are looked at for a lease of a running worker: some seconds."""


async def read_epoch(store: Store) -> int:
    """Return the restore epoch of a store; 0 for one that was never restored, or keeps no facts."""
    text = None if store.facts is None else (await store.facts.read_facts()).get(EPOCH_FACT)
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal()):
        raise CorruptionError(f"the restore epoch of the store is invalid: {text[:40]!r}", code="store.fact")
    return int(text)


async def raise_epoch(store: Store, *, by: str = "", now_ms: int = 0) -> int:
    """Add one to the restore epoch, and return it; `by` is who did it. Raises UsageError for a store without facts."""
    if store.facts is None:
        raise UsageError("this store keeps no facts, so it has no restore epoch", code="store.facts")
    epoch = await read_epoch(store) + 1
    row = act_row("", "_store.restored", f"epoch {epoch}", by=by, now_ms=now_ms)
    await store.facts.save_fact(EPOCH_FACT, str(epoch), audit=row)
    return epoch


async def leased_work(store: Store, *, now_ms: int) -> WorkRow | None:
    """Return a piece of work that a worker has leased, among the first `WORK_LOOKED_AT_MAX`; None if there is none."""
    if store.work is None:
        return None
    async for page in pages(store.work.list_work, WorkQuery(limit=PAGE_MAX), rows_max=WORK_LOOKED_AT_MAX):
        for row in page.rows:
            if row.owner is not None and row.next_ms is not None and row.next_ms > now_ms:
                return row
    return None


def went_back(entity: str, version: int, known: int) -> UnavailableError:
    """Return the error for an entity that is at an earlier version than this process has seen."""
    message = (
        f"the store went back in time: `{entity}` is at version {version}, and this process has seen version {known}. "
        "It was restored from an older copy while this process was running"
    )
    hint = "stop all workers, run interlock db restored, and start them again"
    return UnavailableError(message, code=WENT_BACK, hint=hint)
