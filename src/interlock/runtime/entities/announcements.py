"""What this process announces after an append is durable: to watchers of the entity, to followers, and to workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from interlock.model.journal.work import WorkDelta
from interlock.ports.store import Append

OnWork = Callable[[str, WorkDelta], None]
"""Called with an entity and the work of an entry that is durable."""

OnAppend = Callable[[Append], None]
"""Called with a step that is durable."""


class Announcements:
    """The watchers, followers and workers that are notified of the appends of one connection."""

    def __init__(self) -> None:
        # Weak: an event exists as long as a watcher waits on it.
        self._watchers: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        self._has_watched = False
        self._followers: set[asyncio.Event] = set()
        self._work_listeners: list[OnWork] = []
        self.on_entry: Callable[[], None] | None = None
        """Called after each durable entry of this process: wakes readers in other processes."""
        self._append_listeners: list[OnAppend] = []

    def on_work(self, listener: OnWork) -> Callable[[], None]:
        """Call a function with the entity and the work that each entry of this process creates or cancels.

        Returns what unregisters it.
        """
        self._work_listeners.append(listener)
        return lambda: self._work_listeners.remove(listener)

    def changed(self, entity: str) -> asyncio.Event:
        """Return an event that is set at the next append to the entity, or when the runtime closes."""
        self._has_watched = True
        return self._watchers.setdefault(entity, asyncio.Event())

    @contextmanager
    def following(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever this process appends to any entity, and when the runtime closes."""
        changed = asyncio.Event()
        self._followers.add(changed)
        try:
            yield changed
        finally:
            self._followers.discard(changed)

    def on_append(self, listener: OnAppend) -> Callable[[], None]:
        """Call a function with each step of this process after it is durable; it must neither wait nor raise.

        Steps in transactions of callers are left out. Returns what unregisters it.
        """
        self._append_listeners.append(listener)
        return lambda: self._append_listeners.remove(listener)

    def appended(self, append: Append) -> None:
        """Announce a durable append."""
        self._announce(append.entity, append.work)
        if self._append_listeners:
            for listener in self._append_listeners:
                listener(append)

    def _announce(self, entity: str, work: WorkDelta) -> None:
        if self._has_watched and (changed := self._watchers.pop(entity, None)) is not None:
            changed.set()
        for each in self._followers:
            each.set()
        if self.on_entry is not None:
            self.on_entry()
        if work.created or work.cancelled:
            for listener in self._work_listeners:
                listener(entity, work)

    def committed(self, entity: str, work: Iterable[WorkDelta]) -> None:
        """Announce the appends to an entity in a transaction of a caller, which is committed."""
        self._announce(entity, WorkDelta())
        for delta in work:
            for listener in self._work_listeners:
                listener(entity, delta)

    def closed(self) -> None:
        """Wake every watcher and follower: there are no further appends."""
        for changed in (*self._watchers.values(), *self._followers):
            changed.set()
