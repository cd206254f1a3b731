"""The unfinished work of one entity, as its journal and `state.json` record it.

Which worker has claimed it is known only to the process that runs work (`work.dispatcher`).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.model.journal.work_state import NEW, WorkState, cancel
from interlock.stores.files.journal.line_formats import MarkLine, WorkLine, unknown_work


class WorkItem(Struct, frozen=True, omit_defaults=True, rename={"state": "stand"}):
    """One piece of unfinished work and its state."""

    work: Work
    state: WorkState = NEW


class WorkChanges(Struct, frozen=True):
    """The unfinished work of an entity: all of it (`is_whole`), or what changed since it was last published.

    An id without an item was removed. `is_idle`: no work is left.
    """

    items: dict[WorkId, WorkItem | None]
    is_whole: bool
    is_idle: bool

    @staticmethod
    def whole(items: tuple[WorkItem, ...]) -> WorkChanges:
        """All of it."""
        return WorkChanges({each.work.id: each for each in items}, is_whole=True, is_idle=not items)


_items = msgspec.json.Decoder(tuple[WorkItem, ...])


class UnfinishedWork:
    """The unfinished work of one entity, in the order in which it was created.

    Changes are collected from the first publication on: an entity may have thousands of pieces of work, and a step
    changes one or two.
    """

    def __init__(self, items: tuple[WorkItem, ...] = ()) -> None:
        self._items = {each.work.id: each for each in items}
        self._changed: dict[WorkId, None] | None = None

    @staticmethod
    def decode(data: bytes) -> UnfinishedWork:
        """The work in `state.json`. Raises UsageError for an unknown format."""
        try:
            return UnfinishedWork(_items.decode(data))
        except UNDECODABLE as error:
            raise unknown_work(error) from error

    def encode(self) -> bytes:
        """The work for `state.json`."""
        return encode(self.items())

    def __len__(self) -> int:
        return len(self._items)

    def get(self, work_id: WorkId) -> WorkItem | None:
        """A piece of work; None when it does not exist."""
        return self._items.get(work_id)

    def is_newest(self, work_id: WorkId, attempt: int) -> bool:
        """Whether the work exists and this is its newest attempt."""
        item = self._items.get(work_id)
        return item is not None and item.state.attempts == attempt

    def items(self) -> tuple[WorkItem, ...]:
        """All of it, in the order of creation."""
        return tuple(self._items.values())

    def changes(self) -> WorkChanges:
        """What is to be published: all of it the first time, then the changes."""
        if self._changed is None:
            return WorkChanges.whole(self.items())
        changed = {work_id: self._items.get(work_id) for work_id in self._changed}
        return WorkChanges(changed, is_whole=False, is_idle=not self._items)

    def mark_published(self) -> None:
        """A listener has all of it: from here on only changes are published."""
        self._changed = {}

    def mark_unpublished(self) -> None:
        """No listener has it: the next publication is whole."""
        self._changed = None

    def apply_line(self, line: WorkLine | MarkLine) -> None:
        """Apply one line of the journal."""
        if isinstance(line, WorkLine):
            self.apply(line.delta)
        else:
            self.set_state(line.work_id, line.state)

    def apply(self, delta: WorkDelta) -> None:
        """Apply what an entry creates, finishes and cancels."""
        for work in delta.created:
            self._put(work.id, WorkItem(work))
        for work_id in delta.finished:
            self._put(work_id, None)
        for work_id in delta.cancelled:
            item = self._items.get(work_id)
            if item is not None:
                self.set_state(work_id, cancel(item.state))

    def set_state(self, work_id: WorkId, state: WorkState | None) -> None:
        """Set the state of a piece of work; None: remove it."""
        item = self._items.get(work_id)
        if item is not None:
            self._put(work_id, None if state is None else WorkItem(item.work, state))

    def _put(self, work_id: WorkId, item: WorkItem | None) -> None:
        if item is None:
            self._items.pop(work_id, None)
        else:
            self._items[work_id] = item
        if self._changed is not None:
            self._changed[work_id] = None
