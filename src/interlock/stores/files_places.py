"""Verified places in a long journal, so that no page of it needs a reading from its beginning.

Rule 1: a place is a hint: whoever begins there makes sure that the journal still holds it.
Rule 2: places are some versions apart, and farther with each time that there are too many: a journal of any length has
a bounded number of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from interlock.stores.files_state import Mark

PLACES_MAX = 64
"""Places of one journal."""


class Places:
    """Places in one journal, in order."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self.apart = 256

    def up_to(self, version: int) -> tuple[Mark, ...]:
        """The places from which the entry after a version can be read: the nearest first."""
        end = bisect_right(self._marks, version, key=_version)
        return tuple(reversed(self._marks[:end]))

    def add(self, mark: Mark) -> None:
        """A reading came by here, or ended here."""
        at = bisect_left(self._marks, mark.version, key=_version)
        if at < len(self._marks) and self._marks[at].version == mark.version:
            self._marks[at] = mark  # a journal that was put in the place of another begins anew
        else:
            self._marks.insert(at, mark)
        if len(self._marks) > PLACES_MAX:
            self.apart *= 2
            self._marks = self._marks[1::2]


def _version(mark: Mark) -> int:
    return mark.version
