"""`interlock serve` with a fault: it acknowledges an event before its entry is stored.

    python -m tests.crash.kills.early_serve serve sqlite:///...

Rule: entries are stored in order, `HELD` steps late. A kill therefore always loses some.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque

from interlock.cli.main import main
from interlock.ports.store import (
    Append,
    Appended,
    AppendResult,
)
from interlock.stores.sqlite.store import SqliteStore

HELD = 20

_append = SqliteStore.append
_held: deque[Append] = deque()
_keeping: set[asyncio.Task[AppendResult]] = set()


async def append_early(store: SqliteStore, append: Append) -> AppendResult:
    """Report a step as stored, and store the one that came `HELD` steps before it."""
    _held.append(append)
    if len(_held) > HELD:
        task = asyncio.ensure_future(_append(store, _held.popleft()))
        _keeping.add(task)
        task.add_done_callback(_keeping.discard)
    return Appended(append.entry.version, "")


if __name__ == "__main__":
    SqliteStore.append = append_early  # type: ignore[assignment]  # the fault
    sys.exit(main(sys.argv[1:]))
