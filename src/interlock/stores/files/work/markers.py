"""Markers: which entities have unfinished work, so that it is found without reading all entities.

    <root>/pending/<2 hex>/<entity>    empty; for an entity whose directory name was cut, its id
    <root>/changed                     hints: entities whose work was changed by a process that runs none

Rule 1: a marker is on disk before the entry that creates work: it is created and its directory flushed, even if the
name exists, because its creator may have died before the flush. It is deleted after all work has ended, without a
flush: at worst a crash leaves a marker too many.
Rule 2: markers are created and deleted under the entity's lock; otherwise a deletion could overlap an append.
Rule 3: `changed` is a hint for an earlier poll. The next scan finds work whose hint was lost.
Rule 4: a marker that contains an id keeps it. One that does not was left by a process that died before the entry.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from threading import Lock

from interlock.errors import UnavailableError
from interlock.stores.files.durable_io import DurableIO, EntityDirectory, open_shard, unavailable
from interlock.stores.files.names import entity_of_name, is_cut
from interlock.stores.files.root import Root

CHANGED = "changed"
CHANGED_BYTES_MAX = 1_048_576
"""Bytes of unread hints (1 MiB): beyond that none are added, and the process that runs work scans all markers."""

HINT_MS_MAX = 100
"""How long a hint may wait for the lock; it is not worth more."""

_ID_BYTES_MAX = 4_096


class WorkMarkers:
    """The markers below one root."""

    def __init__(self, io: DurableIO, root: Root) -> None:
        self._io = io
        self._fs = io.fs
        self._root = root
        self._directory = root.pending
        self._flushed: set[str] = set()
        self._changed = -1
        self._hinting = Lock()

    def create(self, address: EntityDirectory) -> None:
        """Rule 1: the marker of an entity is on disk on return. Raises UnavailableError when it cannot be written."""
        fs, io, shard = self._fs, self._io, address.shard
        poisoned = _poison_key(address)
        if poisoned in io.poisons:
            message = f"`{address.entity}` cannot create work in this process: {io.poisons[poisoned]}"
            raise UnavailableError(message, code="store.poisoned", hint="check the disk, then restart the process")
        try:
            if shard and shard not in self._flushed:
                with contextlib.suppress(FileExistsError):
                    fs.make_directory(self._directory, shard)
                io.flush(address, fs.sync_directory, self._directory, poisoned)
                self._flushed.add(shard)
            with open_shard(fs, self._directory, shard) as directory:
                self._write(address, directory)
                io.flush(address, fs.sync_directory, directory, poisoned)
        except OSError as error:
            raise unavailable(address.entity, "announce", error) from error

    def _write(self, address: EntityDirectory, directory: int) -> None:
        fs = self._fs
        file = fs.open_append(directory, address.name)
        try:
            if is_cut(address.name):
                self._write_id(address, file)
        finally:
            fs.close(file)

    def _write_id(self, address: EntityDirectory, file: int) -> None:
        """Rule 4: a crash or a full disk here destroys no id that leads to work.

        The file is read as the disk has it: it may be from a process whose flush failed.
        """
        fs, io, entity = self._fs, self._io, address.entity.encode()
        io.flush(address, fs.fdatasync, file, _poison_key(address))
        fs.drop_cache(file)
        if fs.read(file, 0, _ID_BYTES_MAX) != entity:
            fs.truncate(file, 0)
            if fs.write(file, entity) < len(entity):
                raise OSError(errno.ENOSPC, "the disk accepted only part of the data")
            io.flush(address, fs.fdatasync, file, _poison_key(address))

    def delete(self, address: EntityDirectory) -> None:
        """Delete the marker of an entity without work. Raises OSError when it cannot be deleted."""
        with contextlib.suppress(FileNotFoundError), open_shard(self._fs, self._directory, address.shard) as shard:
            self._fs.unlink(shard, address.name)

    def addresses(self) -> Iterator[EntityDirectory]:
        """The entities that have a marker. Raises OSError when they cannot be listed."""
        fs = self._fs
        for shard in self._root.shards_in(self._directory) if self._directory >= 0 else ():
            with open_shard(fs, self._directory, shard) as directory:
                names = fs.names(directory)
            yield from filter(None, map(self.address, names))

    def address(self, name: str) -> EntityDirectory | None:
        """The entity of a marker's name; None when it is another tenant's, or unknown."""
        entity = self._read_id(name) if is_cut(name) else entity_of_name(name, tenant=self._io.settings.tenant)
        address = None if entity is None else self._root.address(entity)
        return address if address is not None and address.name == name else None

    def _read_id(self, name: str) -> str | None:
        """The id in a marker."""
        fs = self._fs
        try:
            with open_shard(fs, self._directory, self._root.shard(name)) as directory:
                file = fs.open_file(directory, name)
        except FileNotFoundError:
            return None
        try:
            kind, slash, rest = fs.read(file, 0, _ID_BYTES_MAX).decode(errors="replace").partition("/")
        finally:
            fs.close(file)
        return f"{kind}/{rest}" if kind and slash and rest else None

    # Hints

    def notify(self, address: EntityDirectory) -> None:
        """Hint that the work of an entity changed. Nothing is lost when that fails."""
        with contextlib.suppress(OSError), self._locked_hints() as file:
            if self._fs.size(file) < CHANGED_BYTES_MAX:
                self._fs.write(file, f"{address.name}\n".encode())

    def take_hints(self) -> tuple[set[str], bool]:
        """The names hinted since the last call, and whether some were left out. Raises OSError."""
        fs = self._fs
        if fs.size(self._open_hints()) == 0:
            return set(), False
        with self._locked_hints() as file:
            data = fs.read(file, 0, 2 * CHANGED_BYTES_MAX)
            fs.truncate(file, 0)
        return {each.decode(errors="replace") for each in data.splitlines()}, len(data) >= CHANGED_BYTES_MAX

    @contextlib.contextmanager
    def _locked_hints(self) -> Iterator[int]:
        with self._hinting:
            file = self._open_hints()
            self._fs.lock(file, HINT_MS_MAX)
            try:
                yield file
            finally:
                self._unlock(file)

    def _unlock(self, file: int) -> None:
        """A lock that cannot be released is released by closing its descriptor; otherwise hints would stop."""
        try:
            self._fs.unlock(file)
        except OSError:
            self._close_hints()

    def _open_hints(self) -> int:
        if self._changed < 0:
            self._changed = self._fs.open_append(self._root.directory, CHANGED)
        return self._changed

    def close(self) -> None:
        """Close the file of hints."""
        self._hinting = Lock()
        self._close_hints()

    def _close_hints(self) -> None:
        if self._changed >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(self._changed)
        self._changed = -1


def _poison_key(address: EntityDirectory) -> str:
    return f"pending/{address.shard}/"
