r"""Spare room: a blank line behind the last line of a journal, over which the next ones are written.

    {"v":7, ... ,"h":"<32 hex>"}\n
                                                                      \n

A file that grows has a new size, which a disk must be told of with every flush; one whose bytes are there already has
not. So a line that does not fit into the room behind the last one brings more of it along, in the same write, up to the
end of a block: those bytes would be the file's anyway. A longer journal gets some blocks more.

Rule 1: blanks mean nothing, wherever a journal may end: they are no torn tail. Anything else among them is one.
Rule 2: every line begins with another byte. So whoever knows a last line, and finds it still in its place, sees by the
one byte behind it whether lines followed. That a power cut may leave blank what a later byte follows, only a whole
reading finds: each handle begins with one, and keeps in mind what it found until that is cut off.
Rule 3: how far the room reaches is a hint. Too much believed: a flush takes longer. Too little: blanks are written over
blanks.
"""

from __future__ import annotations

from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.snapshot_file import Position

BLANKS = b" \n"

BLOCK_BYTES = 4_096
"""What a file system gives a file at least."""

SPARE_SHARE = 2
"""The room beyond a block is this part of the journal: so it grows seldom, and never to twice its size."""

SPARE_BYTES_MAX = 65_536
"""And not more than this: it is written while somebody waits."""


def spare(end: int, block_bytes: int) -> bytes:
    """The room behind a journal that ends here."""
    far = end + min(end // SPARE_SHARE, SPARE_BYTES_MAX)
    size = far + -far % block_bytes - end
    return b" " * (size - 1) + b"\n" if size else b""


def without_spare(rest: bytes) -> bytes:
    """What stands behind a last line; nothing when it is only room."""
    return rest if rest.strip(BLANKS) else b""


def ends_at(fs: FileSystem, file: int, mark: Position) -> bool:
    """Whether a journal ends at a place, and with the line that this is behind; never at one that is in no journal.

    Blanks alone prove nothing: others may stand there by now, behind fewer lines, or in the middle of one.
    """
    line = mark.ending if mark.offset else b""
    if mark.offset < len(line):
        return False
    found = fs.read(file, mark.offset - len(line), len(line) + 1)
    return found.startswith(line) and found[len(line) :] in BLANKS
