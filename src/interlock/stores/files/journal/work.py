"""What is done to the work of one entity without an entry: it is begun, put off, finished, given up, forgotten.

Each of these is a `mark` line in the entity's journal, written under its lock.

Rule 1: a mark is flushed only where a lost one would let something be done that must not be (`is_sure`). Any other may
go with a power cut: the work is then done again under its key, which is what its key is for.
Rule 2: nobody hears of work whose entry is not durable.
Rule 3: a marker is removed only by whoever holds the lock and sees that no work is left.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.model.journal.work import WorkId
from interlock.stores.files.journal.inline import PromptJournal
from interlock.stores.files.journal.rotation import following
from interlock.stores.files.journal.snapshot_file import Position
from interlock.stores.files.journal.work_lines import Row, WorkState, encode_mark

Change = Callable[[Row], WorkState | None]
"""How a piece of work stands from now on; None: it is gone; the same as before: nothing is written."""


class WorkJournal(PromptJournal):
    """The handle of one entity, with what is done to its work."""

    def change(self, place: WorkId, change: Change, *, is_sure: bool = False) -> Row | None:
        """Says how a piece of work stands now, and gives it as it stood before; None when there is no such work."""
        with self._mutex:
            self._shared.check_poison(self.address)
            if not self._find_directory(create=False):
                return None
            with self._locked():
                self._know()
                row = self.rows.get(place)
                if row is not None:
                    stand = change(row)
                    if stand != row.stand:
                        self._write_mark(place, stand, is_sure=is_sure)
                self._tell()
                return row

    def attend(self) -> tuple[Row, ...]:
        """The unfinished work as it stands now; whoever performs hears of it."""
        with self._mutex:
            self._shared.check_poison(self.address)
            if not self._find_directory(create=False):
                return ()
            with self._locked():
                self._know()
                self._confirm_records()
                if self._shared.note is not None:
                    self.rows.told(is_heard=False)  # whoever looks after it hears the whole
                    self._tell()
                return self.rows.listed()

    def retire(self) -> bool:
        """Removes the marker, if no work is left; whether it is gone. Raises OSError when it cannot be removed."""
        with self._mutex:
            self._shared.check_poison(self.address)
            if self._find_directory(create=False):
                with self._locked():
                    self._know()
                    if len(self.rows):
                        return False
                    self._announced_to = None
                    self._shared.markers.remove(self.address)
            return True

    def _know(self) -> None:
        """Everything that the journal says. A part of it is no answer: what a damaged line ended would begin again."""
        self._catch_up()
        self._repair()

    def _write_mark(self, place: WorkId, stand: WorkState | None, *, is_sure: bool) -> None:
        if self._is_full():
            self._rotate(following(self._base, self.mark))
        key = self._settings.store_key
        line = encode_mark(place, stand, self.mark.head, self.durable, store_key=key)
        self._write_line(line)
        mark, size = self.mark, len(line)
        end = mark.offset + size
        if is_sure:
            self._flush_line()
            self.durable = end
        self.mark = Position(mark.version, end, mark.head, mark.segment, mark.beside + size)
        self.rows.stand(place, stand)
        self._is_announced = self._is_announced and len(self.rows) > 0
