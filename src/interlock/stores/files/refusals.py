"""The log of refusals of a root: JSON lines in `<root>/refusals.log`, one per attempt that changed nothing.

Rule 1: an ordinary refusal is best effort; nobody waits for its flush.
Rule 2: what an operator does to work is recorded in the same log, flushed before the act itself (`is_sure`). A process
that dies in between leaves the row of an act that did not happen, never an act without its row.
"""

from __future__ import annotations

import errno

from interlock.model.codec import encode
from interlock.ports.store import Refusal
from interlock.stores.files.filesystem import FileSystem

REFUSALS = "refusals.log"
REFUSALS_BYTES_MAX = 16_777_216
"""Bytes of the log of refusals (16 MiB) before it is put aside, in place of the one put aside before."""


def append_refusals(fs: FileSystem, directory: int, refusals: tuple[Refusal, ...], *, is_sure: bool = False) -> None:
    """Append refusals to the log of a root; with `is_sure` they are durable on return. Raises OSError."""
    data = b"".join(encode(each) + b"\n" for each in refusals)
    file = fs.open_append(directory, REFUSALS)
    try:
        size = fs.size(file)
        if is_sure and size and fs.read(file, size - 1, 1) != b"\n":  # a full disk or a power cut left part of a line
            data = b"\n" + data
        if fs.write(file, data) < len(data) and is_sure:
            raise OSError(errno.ENOSPC, "only part of the line was written")
        if is_sure:
            fs.fdatasync(file)
        if fs.size(file) > REFUSALS_BYTES_MAX:
            fs.rename(directory, REFUSALS, f"{REFUSALS}.1")
        if is_sure:
            fs.sync_directory(directory)
    finally:
        fs.close(file)
