"""The log of refusals of a root: JSON lines in `<root>/refusals.log`, one per attempt that changed nothing.

Rule 1: an ordinary refusal is best effort and is not flushed.
Rule 2: what an operator does to work is recorded in the same log, and flushed before the act itself (`durable`). A
crash in between leaves the row of an act that did not happen, never an act without its row.
"""

from __future__ import annotations

import errno

from interlock.model.codec import encode
from interlock.ports.refusals import Refusal
from interlock.stores.files.filesystem import FileSystem

REFUSALS = "refusals.log"
REFUSALS_BYTES_MAX = 16_777_216
"""Bytes of the log of refusals (16 MiB) before it is renamed to `refusals.log.1`, replacing the previous one."""


def append_refusals(fs: FileSystem, directory: int, refusals: tuple[Refusal, ...], *, durable: bool = False) -> None:
    """Append refusals to the log of a root; with `durable` they are on disk on return. Raises OSError."""
    data = b"".join(encode(each) + b"\n" for each in refusals)
    file = fs.open_append(directory, REFUSALS)
    try:
        size = fs.size(file)
        if durable and size and fs.read(file, size - 1, 1) != b"\n":  # a full disk or a power cut left a part of a line
            data = b"\n" + data
        if fs.write(file, data) < len(data) and durable:
            raise OSError(errno.ENOSPC, "only part of the line was written")
        if durable:
            fs.fdatasync(file)
        if fs.size(file) > REFUSALS_BYTES_MAX:
            fs.rename(directory, REFUSALS, f"{REFUSALS}.1")
        if durable:
            fs.sync_directory(directory)
    finally:
        fs.close(file)
