"""Those who wait for a PostgreSQL server to keep their steps, and which of them go in one statement.

Rule 1: a caller is answered once; one that went away is answered nothing, and its step is kept all the same.
Rule 2: a statement holds either creations or other steps, and at most `BATCH_BYTES_MAX` of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from interlock.errors import InterlockError
from interlock.model.codec import encode
from interlock.ports.store import Append, Appended, Conflict, Duplicate, StaleAttempt
from interlock.stores.postgres.commit import CommitPlan

BATCH_BYTES_MAX = 4_194_304
"""Bytes of the records and snapshots of one statement: both ends hold it whole, more than once."""

Answer = Appended | Duplicate | Conflict | StaleAttempt


class PendingCommit:
    """A caller: what it wants kept, the bytes of its snapshot, and where it waits for the answer."""

    __slots__ = ("append", "future", "in_doubt", "ready", "snapshot")

    def __init__(self, append: Append, future: asyncio.Future[Answer]) -> None:
        self.append = append
        self.snapshot = encode(append.snapshot)
        self.future = future
        self.ready: CommitPlan | None = None
        self.in_doubt = False

    def answer(self, answer: Answer) -> None:
        """Tell the caller, unless it went away: the step is kept all the same."""
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: InterlockError) -> None:
        """Tell the caller why not, unless it was told already."""
        if not self.future.done():
            self.future.set_exception(error)


def chunks(steps: list[PendingCommit]) -> Iterator[list[PendingCommit]]:
    """Creations and other steps apart, each in pieces of at most so many bytes."""
    for created in (True, False):
        chunk: list[PendingCommit] = []
        size = 0
        for each in steps:
            if (each.append.expected == 0) is not created or each.ready is None:
                continue
            if chunk and size + each.ready.size > BATCH_BYTES_MAX:
                yield chunk
                chunk, size = [], 0
            chunk.append(each)
            size += each.ready.size
        if chunk:
            yield chunk
