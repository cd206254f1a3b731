"""What the journals of one open store share: settings, poison, counts; and how they lock, flush and replace files.

Rule 1: a flush that failed poisons what it was for, for the life of the process (`DurableIO.flushed`). It stands
here, and
not in a handle, so that closing a handle forgets no failure.
Rule 2: a lock that cannot be given back is given up with its descriptor.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from typing import Protocol

from msgspec import Struct

from interlock.errors import CorruptionError, InterlockError, UnavailableError
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.padding import BLOCK_BYTES
from interlock.stores.files.journal.snapshot_file import KnownConfigurations, Position
from interlock.stores.files.journal.work_lines import WorkChanges
from interlock.stores.files.names import RESOURCES, TEMPORARY

SEGMENT_BYTES_MAX = 16_777_216
"""Bytes of a journal's active segment (16 MiB) before the next one is begun: a file that is copied in one go, and yet
one rotation for about fifty thousand entries."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_OF_ONE = frozenset({errno.EACCES, errno.EPERM, errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.ELOOP})
"""What is wrong with a file; all else, such as no free descriptor, is wrong with the system."""


class Settings(Struct, frozen=True, kw_only=True):
    """What all journals of a store have in common."""

    tenant: str = ""
    store_key: bytes = b""
    snapshot_every: int = 400
    lock_ms_max: int = 5_000
    segment_bytes_max: int = SEGMENT_BYTES_MAX
    block_bytes: int = BLOCK_BYTES


class EntityDirectory(Struct, frozen=True):
    """Where an entity's directory stands."""

    entity: str
    name: str
    shard: str
    resources: int

    @property
    def folder(self) -> str:
        """The same as people find it, from the root on."""
        return "/".join(each for each in (RESOURCES, self.shard, self.name) if each)


class Markers(Protocol):
    """Which entities have unfinished work (`files_pending`)."""

    def announce(self, address: EntityDirectory) -> None:
        """The marker of an entity is on disk when this returns."""

    def remove(self, address: EntityDirectory) -> None:
        """The marker of an entity without work goes."""

    def ring(self, address: EntityDirectory) -> None:
        """Tells whoever performs that the work of an entity was changed."""


LOCKED = "store.locked"
"""The code of an error: others held a lock for as long as it was waited for."""

OnWorkChanged = Callable[[EntityDirectory, WorkChanges, Position], None]
"""Told of the unfinished work of an entity, once its entries are durable, while the entity is locked; and up to which
place of its journal that holds."""


class DurableIO:
    """The file system of one open store, what is poisoned there, what was learned, and counts.

    `note` is set in the process that performs work.
    """

    markers: Markers

    def __init__(self, fs: FileSystem, settings: Settings, root: str) -> None:
        self.root = root
        self.note: OnWorkChanged | None = None
        self.fs = fs
        self.settings = settings
        self.poisons: dict[str, str] = {}
        self.shapes = KnownConfigurations()
        self.snapshot_failures = 0

    def is_poisoned(self, address: EntityDirectory) -> bool:
        """Whether a flush of this entity's directory, journal or shard failed in this process."""
        return address.name in self.poisons or f"{address.shard}/" in self.poisons

    def check_poison(self, address: EntityDirectory) -> None:
        """Raises UnavailableError when a flush failed here before."""
        if self.poisons and self.is_poisoned(address):
            reason = self.poisons.get(address.name) or self.poisons[f"{address.shard}/"]
            message = f"`{address.entity}` takes no appends in this process: {reason}"
            raise UnavailableError(message, code="store.poisoned", hint="check the disk, then start anew")

    def flushed(self, address: EntityDirectory, flush: Callable[[int], None], descriptor: int, poisoned: str) -> None:
        """Flushes once. A failure poisons for good, for no later flush can be believed."""
        try:
            flush(descriptor)
        except OSError as error:
            self.poisons[poisoned] = f"a flush failed ({error.strerror or error})"
            raise unavailable(address.entity, "flush", error) from error


def write_whole(fs: FileSystem, directory: int, name: str, data: bytes, *, is_sure: bool = True) -> None:
    """Puts a whole file in a name's place: other file, write, fsync, rename, flush of the directory.

    Unless it `is_sure`, the flush is left out: after a power cut the old file may be there, whole, in place of the new.
    """
    temporary = f"{name}{TEMPORARY}{fs.unique()}"
    file = fs.create(directory, temporary)
    try:
        try:
            if fs.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, "the disk took only a part")
            fs.fsync(file)
        finally:
            fs.close(file)
        fs.rename(directory, temporary, name)
    except OSError:
        with contextlib.suppress(OSError):
            fs.unlink(directory, temporary)
        raise
    if is_sure:
        fs.sync_directory(directory)


@contextlib.contextmanager
def shard_opened(fs: FileSystem, resources: int, shard: str) -> Iterator[int]:
    """The directory that holds entities, for the moment: 256 descriptors kept open would be a quarter of all."""
    if not shard:
        yield resources
        return
    directory = fs.open_directory(resources, shard)
    try:
        yield directory
    finally:
        fs.close(directory)


class Locked:
    """Holds the lock of an entity's directory. When it cannot be given back, `drop` closes the descriptor.

    A class and no generator: every append goes through here, and a generator costs more than the lock.
    """

    __slots__ = ("_directory", "_drop", "_entity", "_fs", "_ms_max")

    def __init__(self, fs: FileSystem, directory: int, entity: str, ms_max: int, drop: Callable[[], None]) -> None:
        self._fs = fs
        self._directory = directory
        self._entity = entity
        self._ms_max = ms_max
        self._drop = drop

    def __enter__(self) -> None:
        try:
            self._fs.lock(self._directory, self._ms_max)
        except TimeoutError as error:
            message = f"`{self._entity}` has been locked for {self._ms_max} ms by {error}"
            raise UnavailableError(message, code=LOCKED) from error
        except OSError as error:
            raise unavailable(self._entity, "lock", error) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._fs.unlock(self._directory)
        except OSError:
            self._drop()


def is_of_one(error: InterlockError) -> bool:
    """Whether an error is of one entity, of its bytes or its files: the others can be read all the same."""
    cause = error.__cause__
    return isinstance(error, CorruptionError) or (isinstance(cause, OSError) and cause.errno in _OF_ONE)


def unavailable(entity: str, what: str, error: OSError, *, folder: str = "") -> UnavailableError:
    """The error of a call that the system refused: nothing was acknowledged."""
    place = f" ({folder})" if folder else ""
    message = f"`{entity}`: {what} failed: {error.strerror or error}{place}"
    if error.errno in _FULL:
        return UnavailableError(message, code="store.full", hint="free some space, then send again with the same key")
    return UnavailableError(message, code="store.read_only" if error.errno == errno.EROFS else f"store.{what}")
