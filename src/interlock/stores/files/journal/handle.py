"""An entity's directory and journal, open: its descriptors, its mutex, its lock.

Rule 1: a descriptor is closed after the lock is given back, never under it: by then it could be another thread's, and
lose that one its lock.
Rule 2: a handle that failed in reading is closed; the next use opens anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import Lock

from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.durable_io import DurableIO, EntityDirectory, Locked, shard_opened, unavailable


class Handle:
    """Two descriptors of one entity. Whoever uses them holds the mutex, and then the lock."""

    def __init__(self, shared: DurableIO, address: EntityDirectory) -> None:
        self.address = address
        self._shared = shared
        self._fs = shared.fs
        self._settings = shared.settings
        self._directory = -1
        self._file = -1
        self._is_stale = False
        self._mutex = Lock()

    def abandon(self) -> None:
        """Lets go of descriptors that were inherited by a fork: the mutex may be held by a thread that is not here."""
        self._mutex = Lock()
        self._drop()

    def _find_directory(self, *, create: bool) -> bool:
        if self._directory >= 0:
            return True
        fs, address = self._fs, self.address
        try:
            with shard_opened(fs, address.resources, address.shard) as shard:
                if create:
                    with contextlib.suppress(FileExistsError):
                        fs.make_directory(shard, address.name)
                self._directory = fs.open_directory(shard, address.name)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not create:
                return False
            raise unavailable(address.entity, "open", error) from error
        return True

    def _locked(self, ms_max: int | None = None) -> _Held:
        """Holds the entity's lock. Raises UnavailableError, `LOCKED`, when others do for too long."""
        wait = self._settings.lock_ms_max if ms_max is None else ms_max
        return _Held(self._fs, self._directory, self.address.entity, wait, self._drop, self.settle)

    def settle(self, is_refused: bool) -> None:  # noqa: FBT001 - called by its lock only
        """Rule 1: a handle whose reading failed is closed, now that its lock is given back."""
        if is_refused or self._is_stale:
            self._drop()

    def _drop(self) -> None:
        """Closes both descriptors, and with them the lock; the next append opens anew."""
        for descriptor in (self._file, self._directory):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    self._fs.close(descriptor)
        self._file = self._directory = -1
        self._is_stale = False


class _Held(Locked):
    """The lock of a handle. What the system refuses under it is told as such, and the handle is closed after it."""

    __slots__ = ("_settle",)

    def __init__(
        self,
        fs: FileSystem,
        directory: int,
        entity: str,
        ms_max: int,
        drop: Callable[[], None],
        settle: Callable[[bool], None],
    ) -> None:
        super().__init__(fs, directory, entity, ms_max, drop)
        self._settle = settle

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        refused = error if isinstance(error, OSError) else None
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._settle(refused is not None)
        if refused is not None:
            raise unavailable(self._entity, "read", refused) from refused
