"""Replacing a file atomically: a reader sees the old content or the new one, also after a crash."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(target: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write a temporary file, flush, rename. On any error the target is unchanged.

    An existing file keeps its mode; a new one gets `mode`, by default that of any new file. Raises OSError.
    """
    if target.exists():
        mode = target.stat().st_mode & 0o7777
    elif mode is None:
        mode = 0o666 & ~_umask()
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".new", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The umask of this process; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
