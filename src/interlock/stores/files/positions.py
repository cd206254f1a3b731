"""Verified places in a long journal, so that no page of it needs a reading from its beginning.

Rule 1: a place is a hint: whoever begins there makes sure that the journal still holds it.
Rule 2: places are some versions apart, and farther with each time that there are too many: a journal of any length has
a bounded number of them.
Rule 3: where readings ended is remembered beside them, of the last few only: the next page begins there. Somebody who
follows a journal ends everywhere, and must not crowd out the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from interlock.stores.files.journal.snapshot_file import Position

PLACES_MAX = 64
"""Places of one journal."""

ENDS_MAX = 8
"""Ends of readings of one journal: so many readers go on where they were."""


class Places:
    """Places in one journal, in order."""

    def __init__(self) -> None:
        self._marks: list[Position] = []
        self._ends: deque[Position] = deque(maxlen=ENDS_MAX)
        self.apart = 256

    def up_to(self, version: int) -> tuple[Position, ...]:
        """The places from which the entry after a version can be read: the nearest first."""
        found = [mark for mark in (*self._marks, *self._ends) if mark.version <= version]
        return tuple(sorted(found, key=_version, reverse=True))

    def add(self, mark: Position) -> None:
        """A reading came by here, or ended here."""
        if mark.version % self.apart:
            self._ends.append(mark)
            return
        at = bisect_left(self._marks, mark.version, key=_version)
        if at < len(self._marks) and self._marks[at].version == mark.version:
            self._marks[at] = mark  # a journal that was put in the place of another begins anew
        else:
            self._marks.insert(at, mark)
        while len(self._marks) > PLACES_MAX:
            self.apart *= 2
            self._marks = [each for each in self._marks if each.version % self.apart == 0]


def _version(mark: Position) -> int:
    return mark.version
