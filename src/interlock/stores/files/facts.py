"""Facts about a root: one small file each in the folder `facts`.

Rule 1: a fact is written to a temporary file, flushed and renamed, under the lock of the folder.
Rule 2: an earlier release ignores the folder.
"""

from __future__ import annotations

import contextlib

import msgspec

from interlock.errors import CorruptionError
from interlock.model.codec import encode
from interlock.stores.files.definitions import OpenDirectory, read_small_file
from interlock.stores.files.durable_io import DirectoryLock, DurableIO, replace_file, unavailable
from interlock.stores.files.root import Root

FACTS = "facts"
WHAT = "the facts"
"""What locks and errors call the folder."""


class FileFacts:
    """The facts of one root."""

    def __init__(self, io: DurableIO, root: Root) -> None:
        self._fs = io.fs
        self._root = root
        self._lock_ms_max = io.settings.lock_ms_max

    def read(self, name: str) -> str | None:
        """Return the value of a fact; None when it was never written. Raises CorruptionError if it is damaged."""
        try:
            folder = self._fs.open_directory(self._root.directory, FACTS)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unavailable(WHAT, "read", error) from error
        try:
            return self._read(folder, name)
        except OSError as error:
            raise unavailable(WHAT, "read", error) from error
        finally:
            self._fs.close(folder)

    def write(self, name: str, value: str, *, expected: str | None) -> bool:
        """Write a fact if it has the expected value; return whether it was written."""
        self._root.check_writable()
        fs = self._fs
        try:
            with contextlib.suppress(FileExistsError):
                fs.make_directory(self._root.directory, FACTS)
            fs.sync_directory(self._root.directory)
            folder = OpenDirectory(fs, fs.open_directory(self._root.directory, FACTS))
            try:
                with DirectoryLock(fs, folder.descriptor, WHAT, self._lock_ms_max, folder.close):
                    if self._read(folder.descriptor, name) != expected:
                        return False
                    replace_file(fs, folder.descriptor, name, encode({"value": value}) + b"\n")
                    fs.sync_directory(folder.descriptor)
                    return True
            finally:
                folder.close()
        except OSError as error:
            raise unavailable(WHAT, "write", error) from error

    def _read(self, folder: int, name: str) -> str | None:
        try:
            data = read_small_file(self._fs, folder, name)
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=dict[str, str])["value"]
        except (msgspec.MsgspecError, KeyError) as error:
            hint = f"restore the file {FACTS}/{name} from a backup"
            raise CorruptionError(f"the fact `{name}` is damaged", code="store.fact", hint=hint) from error
