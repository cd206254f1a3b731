"""The journals that a process has open, the least recently used closed first. Each has two descriptors.

Rule 1: a journal in use is never closed; the limit may be exceeded while all are in use.
Rule 2: poison is kept by `DurableIO`: closing a journal does not clear it.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from threading import Condition, Lock

from interlock.stores.files.durable_io import EntityDirectory
from interlock.stores.files.journal.journal import Journal, JournalContext


class OpenJournals:
    """The open journals of one store."""

    def __init__(self, context: JournalContext, count_max: int) -> None:
        self._context = context
        self._count_max = count_max
        self._journals: OrderedDict[str, Journal] = OrderedDict()
        self._users: dict[str, int] = {}
        self._guard = Lock()
        self._unused = Condition(self._guard)
        self._is_closing = False

    @contextlib.contextmanager
    def using(self, address: EntityDirectory) -> Iterator[Journal]:
        """The journal of an entity, which is not closed meanwhile."""
        journal = self.acquire(address)
        try:
            yield journal
        finally:
            self.release(address)

    def acquire(self, address: EntityDirectory) -> Journal:
        """The journal of an entity, which is not closed until `release`."""
        name = address.name
        with self._guard:
            journal = self._journals.get(name)
            if journal is None:
                journal = self._journals[name] = Journal(self._context, address)
            self._journals.move_to_end(name)
            self._users[name] = self._users.get(name, 0) + 1
            return journal

    def release(self, address: EntityDirectory) -> None:
        """Allow the journal to be closed, if too many are open."""
        name, surplus = address.name, None
        with self._guard:
            users = self._users[name] - 1
            if users:
                self._users[name] = users
            else:
                del self._users[name]
            if len(self._journals) > self._count_max:
                surplus = self._take_surplus()
            if self._is_closing and not self._users:
                self._unused.notify_all()
        for each in surplus or ():
            each.close()

    def _take_surplus(self) -> list[Journal]:
        """Remove unused journals above the limit, oldest first.

        A journal may be opened again while the old one is being closed: the lock on disk separates the two.
        """
        excess = len(self._journals) - self._count_max
        idle = [name for name in self._journals if name not in self._users]
        return [self._journals.pop(name) for name in idle[:excess]]

    def peek(self, address: EntityDirectory) -> Journal | None:
        """The journal if it is open, for a look at what it knows."""
        return self._journals.get(address.name)

    def get_open(self, address: EntityDirectory) -> Journal | None:
        """The journal if it is open; it counts as used just now, and may be closed meanwhile.

        There is nothing to release, so an exception at any instruction leaves nothing that `close` would wait for.
        """
        with self._guard:
            journal = self._journals.get(address.name)
            if journal is not None:
                self._journals.move_to_end(address.name)
            return journal

    def close(self) -> None:
        """Wait for journals in use, then close all of them."""
        with self._guard:
            self._is_closing = True
            self._unused.wait_for(lambda: not self._users)
            journals = list(self._journals.values())
            self._journals.clear()
        for journal in journals:
            journal.close()

    def abandon(self) -> None:
        """In a forked child: drop what belongs to the parent, without touching its files."""
        journals = list(self._journals.values())
        self._journals = OrderedDict()
        self._users = {}
        self._guard = Lock()
        self._unused = Condition(self._guard)
        for journal in journals:
            journal.abandon()
