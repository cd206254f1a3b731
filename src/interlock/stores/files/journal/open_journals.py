"""Open journals, the least recently used closed first. Each holds two descriptors, of which a process has few.

Rule 1: a handle in use is never closed; the limit may be passed for as long as all are in use.
Rule 2: what is poisoned is remembered by the store, not here: closing a handle forgets no failure.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from threading import Condition, Lock

from interlock.stores.files.journal.durable_io import DurableIO, EntityDirectory
from interlock.stores.files.journal.exchange import ExchangeJournal


class OpenJournals:
    """The journals a process has open."""

    def __init__(self, shared: DurableIO, count_max: int) -> None:
        self._shared = shared
        self._count_max = count_max
        self._journals: OrderedDict[str, ExchangeJournal] = OrderedDict()
        self._users: dict[str, int] = {}
        self._guard = Lock()
        self._unused = Condition(self._guard)
        self._is_closing = False

    @contextlib.contextmanager
    def borrowed(self, address: EntityDirectory) -> Iterator[ExchangeJournal]:
        """The journal of an entity, safe from being closed meanwhile."""
        journal = self.borrow(address)
        try:
            yield journal
        finally:
            self.give_back(address)

    def borrow(self, address: EntityDirectory) -> ExchangeJournal:
        """The same for whoever gives it back by a call."""
        name = address.name
        with self._guard:
            journal = self._journals.get(name)
            if journal is None:
                journal = self._journals[name] = ExchangeJournal(self._shared, address)
            self._journals.move_to_end(name)
            self._users[name] = self._users.get(name, 0) + 1
            return journal

    def give_back(self, address: EntityDirectory) -> None:
        """It may be closed now, if there are too many."""
        name, surplus = address.name, None
        with self._guard:
            users = self._users[name] - 1
            if users:
                self._users[name] = users
            else:
                del self._users[name]
            if len(self._journals) > self._count_max:
                surplus = self._surplus()
            if self._is_closing and not self._users:
                self._unused.notify_all()
        for each in surplus or ():
            each.close()

    def _surplus(self) -> list[ExchangeJournal]:
        """Takes out what is above the limit and in nobody's use, oldest first.

        A journal that is opened again while its old handle is being closed is safe: the lock is between the two.
        """
        excess = len(self._journals) - self._count_max
        idle = [name for name in self._journals if name not in self._users]
        return [self._journals.pop(name) for name in idle[:excess]]

    def peek(self, address: EntityDirectory) -> ExchangeJournal | None:
        """The journal if it is open; for a look at what it knows, not to be used."""
        return self._journals.get(address.name)

    def touched(self, address: EntityDirectory) -> ExchangeJournal | None:
        """The journal if it is open, used just now; it may be closed meanwhile, and whoever asks does not open it.

        Nothing is to be given back: an exception at any instruction leaves nothing behind that a closing waits for.
        """
        with self._guard:
            journal = self._journals.get(address.name)
            if journal is not None:
                self._journals.move_to_end(address.name)
            return journal

    def close(self) -> None:
        """Waits for handles in use, then closes all of them."""
        with self._guard:
            self._is_closing = True
            self._unused.wait_for(lambda: not self._users)
            journals = list(self._journals.values())
            self._journals.clear()
        for journal in journals:
            journal.close()

    def abandon(self) -> None:
        """In a forked child: forgets what belongs to the parent, without touching its files."""
        journals = list(self._journals.values())
        self._journals = OrderedDict()
        self._users = {}
        self._guard = Lock()
        self._unused = Condition(self._guard)
        for journal in journals:
            journal.abandon()
