"""Markers: which entities have unfinished work, so that nobody has to read all of them to find it.

    <root>/pending/<2 hex>/<entity>    empty; of an entity whose name was cut, its id
    <root>/changed                     names of entities whose work was changed by a process that performs none

Rule 1: a marker is on disk before the entry that leaves work: made, and its directory flushed, even if the name was
there: whoever made it may have died before the flush. It is removed when all work has ended, without a flush: what a
crash leaves is at worst a marker too many.
Rule 2: markers are made and removed under the entity's lock, by whoever holds it; else a removal could cross an append.
Rule 3: `changed` is a hint, for the one who performs to look sooner. What is lost of it is found by the next walk.
Rule 4: a marker that tells an id goes on telling it. One that does not was left by somebody who died before the entry.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from threading import Lock

from interlock.errors import UnavailableError
from interlock.stores.files.journal.durable_io import DurableIO, EntityDirectory, shard_opened, unavailable
from interlock.stores.files.names import entity_named, is_cut
from interlock.stores.files.root import Root

CHANGED = "changed"
CHANGED_BYTES_MAX = 1_048_576
"""Bytes of hints that nobody has heard (1 MiB): beyond that none are added, and whoever performs walks instead."""

RING_MS_MAX = 100
"""How long a hint may wait for its turn; it is not worth more."""

_ID_BYTES_MAX = 4_096


class WorkMarkers:
    """The markers below one root."""

    def __init__(self, shared: DurableIO, root: Root) -> None:
        self._shared = shared
        self._fs = shared.fs
        self._root = root
        self._directory = root.pending
        self._flushed: set[str] = set()
        self._changed = -1
        self._ringing = Lock()

    def announce(self, address: EntityDirectory) -> None:
        """Rule 1: the marker of an entity is on disk when this returns. Raises UnavailableError when it cannot be."""
        fs, shared, shard = self._fs, self._shared, address.shard
        poisoned = _poisoned(address)
        if poisoned in shared.poisons:
            message = f"`{address.entity}` can leave no work in this process: {shared.poisons[poisoned]}"
            raise UnavailableError(message, code="store.poisoned", hint="check the disk, then start anew")
        try:
            if shard and shard not in self._flushed:
                with contextlib.suppress(FileExistsError):
                    fs.make_directory(self._directory, shard)
                shared.flushed(address, fs.sync_directory, self._directory, poisoned)
                self._flushed.add(shard)
            with shard_opened(fs, self._directory, shard) as directory:
                self._make(address, directory)
                shared.flushed(address, fs.sync_directory, directory, poisoned)
        except OSError as error:
            raise unavailable(address.entity, "announce", error) from error

    def _make(self, address: EntityDirectory, directory: int) -> None:
        fs = self._fs
        file = fs.open_append(directory, address.name)
        try:
            if is_cut(address.name):
                self._tell(address, file)
        finally:
            fs.close(file)

    def _tell(self, address: EntityDirectory, file: int) -> None:
        """Rule 4: whoever dies here, or finds the disk full, has cut off nothing that leads to work.

        What stands there is read as the disk has it: it may be from a process whose flush failed.
        """
        fs, shared, entity = self._fs, self._shared, address.entity.encode()
        shared.flushed(address, fs.fdatasync, file, _poisoned(address))
        fs.forget(file)
        if fs.read(file, 0, _ID_BYTES_MAX) != entity:
            fs.truncate(file, 0)
            if fs.write(file, entity) < len(entity):
                raise OSError(errno.ENOSPC, "the disk took only a part")
            shared.flushed(address, fs.fdatasync, file, _poisoned(address))

    def remove(self, address: EntityDirectory) -> None:
        """The marker of an entity without work goes. Raises OSError when it cannot."""
        with contextlib.suppress(FileNotFoundError), shard_opened(self._fs, self._directory, address.shard) as shard:
            self._fs.unlink(shard, address.name)

    def addresses(self) -> Iterator[EntityDirectory]:
        """The entities that have a marker. Raises OSError when they cannot be listed."""
        fs = self._fs
        for shard in self._root.shards_in(self._directory) if self._directory >= 0 else ():
            with shard_opened(fs, self._directory, shard) as directory:
                names = fs.names(directory)
            yield from filter(None, map(self.address, names))

    def address(self, name: str) -> EntityDirectory | None:
        """Whose marker a name is; None when it is of another tenant, or there is none."""
        entity = self._told(name) if is_cut(name) else entity_named(name, tenant=self._shared.settings.tenant)
        address = None if entity is None else self._root.address(entity)
        return address if address is not None and address.name == name else None

    def _told(self, name: str) -> str | None:
        """The id that a marker holds."""
        fs = self._fs
        try:
            with shard_opened(fs, self._directory, self._root.shard(name)) as directory:
                file = fs.open_file(directory, name)
        except FileNotFoundError:
            return None
        try:
            kind, slash, rest = fs.read(file, 0, _ID_BYTES_MAX).decode(errors="replace").partition("/")
        finally:
            fs.close(file)
        return f"{kind}/{rest}" if kind and slash and rest else None

    # Hints

    def ring(self, address: EntityDirectory) -> None:
        """Tells whoever performs that the work of an entity was changed. Nothing is lost when that fails."""
        with contextlib.suppress(OSError), self._listening() as file:
            if self._fs.size(file) < CHANGED_BYTES_MAX:
                self._fs.write(file, f"{address.name}\n".encode())

    def heard(self) -> tuple[set[str], bool]:
        """The names told since the last time, and whether there were too many to tell. Raises OSError."""
        fs = self._fs
        if fs.size(self._opened()) == 0:
            return set(), False
        with self._listening() as file:
            data = fs.read(file, 0, 2 * CHANGED_BYTES_MAX)
            fs.truncate(file, 0)
        return {each.decode(errors="replace") for each in data.splitlines()}, len(data) >= CHANGED_BYTES_MAX

    @contextlib.contextmanager
    def _listening(self) -> Iterator[int]:
        with self._ringing:
            file = self._opened()
            self._fs.lock(file, RING_MS_MAX)
            try:
                yield file
            finally:
                self._unlock(file)

    def _unlock(self, file: int) -> None:
        """A lock that cannot be given back is given up with its descriptor, or nobody would hear a hint any more."""
        try:
            self._fs.unlock(file)
        except OSError:
            self._drop()

    def _opened(self) -> int:
        if self._changed < 0:
            self._changed = self._fs.open_append(self._root.directory, CHANGED)
        return self._changed

    def close(self) -> None:
        """Lets go of the hints."""
        self._ringing = Lock()
        self._drop()

    def _drop(self) -> None:
        if self._changed >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(self._changed)
        self._changed = -1


def _poisoned(address: EntityDirectory) -> str:
    return f"pending/{address.shard}/"
