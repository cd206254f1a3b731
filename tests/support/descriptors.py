"""The open descriptors of this process, by number and target.

Look only at *new* descriptors: older ones may be closed at any time, with garbage of other tests.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def opened() -> set[tuple[str, str]]:
    """Return the number and the target of every open descriptor."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.add((each.name, str(each.readlink())))
    return found
