"""What this process has open: descriptors by number and by what they lead to.

Compare what is *new* since some moment: what was there before may go at any time, with the garbage of other tests.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def opened() -> set[tuple[str, str]]:
    """Every open descriptor: its number, and where it leads."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.add((each.name, str(each.readlink())))
    return found
