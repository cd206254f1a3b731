"""How the files of one open store are locked, flushed and replaced, and which of them a failed flush has poisoned.

Rule 1: a flush that fails poisons its entity or shard until the process ends (`DurableIO.flush`): a second flush may
report success for bytes that the disk does not have. The poison is kept here and not in a journal, so closing a journal
does not clear it.
Rule 2: a lock that cannot be released is released by closing its descriptor.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator

from msgspec import Struct

from interlock.errors import CorruptionError, InterlockError, UnavailableError
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.names import RESOURCES, TEMPORARY

SEGMENT_BYTES_MAX = 16_777_216
"""Bytes of a journal's active segment (16 MiB) before the next one starts: a file that is copied in one go, and one
rotation for about fifty thousand entries."""

BLOCK_BYTES = 4_096
"""The smallest allocation of a file system: a journal grows by whole blocks."""

LOCKED = "store.locked"
"""The code of the error for a lock that others held for as long as the caller waited."""

POISONED = "store.poisoned"
"""The code of the error after a flush that failed in this process."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ENTITY_ERRORS = frozenset(
    {errno.EACCES, errno.EPERM, errno.EINVAL, errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.ELOOP}
)
"""Problems of one file. All others, such as no free descriptor, are problems of the system."""


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of one open store."""

    tenant: str = ""
    store_key: bytes = b""
    snapshot_every: int = 400
    lock_ms_max: int = 5_000
    segment_bytes_max: int = SEGMENT_BYTES_MAX
    block_bytes: int = BLOCK_BYTES


class EntityDirectory(Struct, frozen=True):
    """Where the directory of an entity is: its name, its shard, and the descriptor of `resources`."""

    entity: str
    name: str
    shard: str
    resources: int

    @property
    def folder(self) -> str:
        """The path from the root, for messages."""
        return "/".join(each for each in (RESOURCES, self.shard, self.name) if each)


class DurableIO:
    """The file system of one open store, its settings, and what is poisoned."""

    def __init__(self, fs: FileSystem, settings: Settings, root: str) -> None:
        self.fs = fs
        self.settings = settings
        self.root = root
        self.poisons: dict[str, str] = {}

    def is_poisoned(self, address: EntityDirectory) -> bool:
        """Whether a flush of this entity's directory, journal or shard failed in this process."""
        return address.name in self.poisons or f"{address.shard}/" in self.poisons

    def check_poison(self, address: EntityDirectory) -> None:
        """Raises UnavailableError when an earlier flush for this entity failed."""
        if self.poisons and self.is_poisoned(address):
            reason = self.poisons.get(address.name) or self.poisons[f"{address.shard}/"]
            message = f"`{address.entity}` accepts no appends in this process: {reason}"
            raise UnavailableError(message, code=POISONED, hint="check the disk, then restart the process")

    def flush(self, address: EntityDirectory, flush: Callable[[int], None], descriptor: int, poisoned: str) -> None:
        """Flush once. On failure `poisoned` stays poisoned until the process ends, and UnavailableError is raised."""
        try:
            flush(descriptor)
        except OSError as error:
            self.poisons[poisoned] = f"a flush failed ({error.strerror or error})"
            raise unavailable(address.entity, "flush", error) from error


def replace_file(fs: FileSystem, directory: int, name: str, data: bytes, *, durable: bool = True) -> None:
    """Replace a file as a whole: write a temporary file, fsync, rename, flush the directory.

    Unless `durable`, the last flush is left out: after a power cut the old file may be back, whole.
    """
    temporary = f"{name}{TEMPORARY}{fs.unique()}"
    file = fs.create(directory, temporary)
    try:
        try:
            if fs.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, "the disk accepted only part of the data")
            fs.fsync(file)
        finally:
            fs.close(file)
        fs.rename(directory, temporary, name)
    except OSError:
        with contextlib.suppress(OSError):
            fs.unlink(directory, temporary)
        raise
    if durable:
        fs.sync_directory(directory)


@contextlib.contextmanager
def open_shard(fs: FileSystem, resources: int, shard: str) -> Iterator[int]:
    """The directory that holds entities, open for the moment: 256 open ones would be a quarter of all descriptors."""
    if not shard:
        yield resources
        return
    directory = fs.open_directory(resources, shard)
    try:
        yield directory
    finally:
        fs.close(directory)


class DirectoryLock:
    """Holds the lock of a directory. When it cannot be released, `drop` closes the descriptor.

    `after` is called once the lock is released, with the exception that ended the block; a descriptor that is to be
    closed is closed there and not under the lock, where its number could already be another thread's.
    A class and not a generator: every append uses it, and a generator costs more than the lock.
    """

    __slots__ = ("_after", "_directory", "_drop", "_fs", "_ms_max", "_owner")

    def __init__(
        self,
        fs: FileSystem,
        directory: int,
        owner: str,
        ms_max: int,
        drop: Callable[[], None],
        after: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._owner = owner
        self._ms_max = ms_max
        self._drop = drop
        self._after = after

    def __enter__(self) -> None:
        try:
            self._fs.lock(self._directory, self._ms_max)
        except TimeoutError as error:
            message = f"`{self._owner}` has been locked for {self._ms_max} ms by {error}"
            raise UnavailableError(message, code=LOCKED) from error
        except OSError as error:
            raise unavailable(self._owner, "lock", error) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            try:
                self._fs.unlock(self._directory)
            except OSError:
                self._drop()
        finally:
            if self._after is not None:
                self._after(error)


def is_entity_error(error: InterlockError) -> bool:
    """Whether an error concerns the bytes or files of one entity only: the others can still be read."""
    cause = error.__cause__
    return isinstance(error, CorruptionError) or (isinstance(cause, OSError) and cause.errno in _ENTITY_ERRORS)


def unavailable(entity: str, what: str, error: OSError, *, folder: str = "") -> UnavailableError:
    """The error for a call that the system refused: nothing was acknowledged."""
    place = f" ({folder})" if folder else ""
    message = f"`{entity}`: {what} failed: {error.strerror or error}{place}"
    if error.errno in _FULL:
        return UnavailableError(message, code="store.full", hint="free some space, then send again with the same key")
    return UnavailableError(message, code="store.read_only" if error.errno == errno.EROFS else f"store.{what}")
