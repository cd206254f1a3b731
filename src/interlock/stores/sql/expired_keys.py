"""Deletes deduplication keys that expired, in small transactions.

Rule 1: a key expires before a boundary (`KeyBoundary`) that is at least `KEY_WINDOW_MS` before the clock and before the
newest entry that this process wrote, and that moves with the time that passes here. The clock also stamps the entries,
so it cannot be the only witness.
Rule 2: the boundary is stored when it moved by `MOVE_MS`, not each time: that would cost a flush.
"""

from __future__ import annotations

from interlock.model.limits import KEY_WINDOW_MS
from interlock.stores.key_boundary import KeyBoundary
from interlock.stores.sql.database import Ask, Questions, Statements

DELETE_MAX = 500
"""Keys deleted in one transaction: a few milliseconds, so that a step that arrives meanwhile does not wait long."""

MOVE_MS = 60_000
"""How far the boundary moves before it is stored: a process that is killed loses less than that."""


class ExpiredKeys:
    """Deletes the expired keys of one tenant."""

    def __init__(self, sql: Statements, tenant: str) -> None:
        self._sql = sql
        self.tenant = tenant
        self._stored_ms = 0
        self._boundary: KeyBoundary | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the boundary is known."""
        return self._boundary is not None

    def load(self) -> Questions[None]:
        """Load the stored boundary, if there is one: the time that passes counts from now on."""
        rows = yield Ask(self._sql.key_boundary, (self.tenant,))
        if rows:
            self._stored_ms = rows[0][0]
            self._boundary = KeyBoundary(self._stored_ms)

    def delete_some(self, window_ms: int) -> Questions[bool]:
        """Delete some expired keys, in a transaction; True when there may be more.

        `window_ms` is the start of the window (`window_start_ms`).
        """
        if self._boundary is None:
            yield from self.load()
        boundary = self._boundary = self._boundary or KeyBoundary((yield from self._oldest_ms(window_ms)))
        before_ms = boundary.advance(window_ms)
        deleted = yield Ask(self._sql.delete_keys, (self.tenant, before_ms, DELETE_MAX))
        if not deleted and self._sql.oldest_key is not None:
            boundary.skip_to((yield from self._oldest_ms(window_ms)))
        if boundary.time_ms - self._stored_ms >= MOVE_MS:
            yield Ask(self._sql.move_key_boundary, (self.tenant, boundary.time_ms))
            self._stored_ms = boundary.time_ms
        return len(deleted) == DELETE_MAX

    def _oldest_ms(self, window_ms: int) -> Questions[int]:
        """Return the window before the oldest key, or the start of the window now if that is earlier."""
        if self._sql.oldest_key is None:
            return window_ms
        ((oldest_ms,),) = yield Ask(self._sql.oldest_key, (self.tenant,))
        return window_ms if oldest_ms is None else min(window_ms, oldest_ms - KEY_WINDOW_MS)
