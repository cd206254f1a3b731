"""Tombstones: which entities retention removed from a root, so that their ids are never used again.

    <root>/pruned/<2 hex>/<entity>                  the tombstone, one JSON line
    <root>/resources/<2 hex>/<entity>#pruned        files of a pruned entity that are not removed yet

Rule 1: a tombstone is on disk before its entity goes. The entity goes with the renaming of its directory: until then
the tombstone says nothing, because a process may have died between the two. So a tombstone counts where the entity's
directory is missing.
Rule 2: `#` is in no name of an entity: directories that are being removed are not listed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from interlock.errors import CorruptionError
from interlock.ports.trust.retention import Tombstone
from interlock.stores.files.durable_io import DurableIO, EntityDirectory, open_shard, replace_file, unavailable
from interlock.stores.files.names import REMOVED, entity_of_name
from interlock.stores.files.root import Root

PRUNED = "pruned"
"""The directory of the tombstones."""

_BYTES_MAX = 4_096
_tombstones = msgspec.json.Decoder(Tombstone)


class Tombstones:
    """The tombstones below one root."""

    def __init__(self, io: DurableIO, root: Root) -> None:
        self._io = io
        self._fs = io.fs
        self._root = root
        self._flushed: set[str] = set()

    def write(self, address: EntityDirectory, tombstone: Tombstone) -> None:
        """Write the tombstone of an entity that is about to go; it is on disk on return."""
        fs, root = self._fs, self._root.directory
        try:
            if address.shard not in self._flushed:  # their creator may have died before its own flush
                with contextlib.suppress(FileExistsError):
                    fs.make_directory(root, PRUNED)
                fs.sync_directory(root)
                with open_shard(fs, root, PRUNED) as directory:
                    if address.shard:
                        with contextlib.suppress(FileExistsError):
                            fs.make_directory(directory, address.shard)
                    fs.sync_directory(directory)
                self._flushed.add(address.shard)
            with open_shard(fs, root, PRUNED) as directory, open_shard(fs, directory, address.shard) as shard:
                replace_file(fs, shard, address.name, msgspec.json.encode(tombstone) + b"\n")
        except OSError as error:
            raise unavailable(address.entity, "prune", error) from error

    def stored(self, address: EntityDirectory) -> Tombstone | None:
        """Return the tombstone that was written for an entity. It counts if the entity has no entry here any more.

        Raises CorruptionError when it cannot be decoded.
        """
        fs, file = self._fs, -1
        try:
            with (
                open_shard(fs, self._root.directory, PRUNED) as directory,
                open_shard(fs, directory, address.shard) as shard,
            ):
                file = fs.open_file(shard, address.name)
            data = fs.read(file, 0, _BYTES_MAX)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unavailable(address.entity, "read", error) from error
        finally:
            if file >= 0:
                with contextlib.suppress(OSError):
                    fs.close(file)
        try:
            return _tombstones.decode(data)
        except msgspec.MsgspecError as error:
            message = f"the tombstone of `{address.entity}` is damaged: {error}"
            raise CorruptionError(message, code="entity.tombstone") from error

    def find(self, address: EntityDirectory) -> Tombstone | None:
        """Return the tombstone of a removed entity; None for any other."""
        found = self.stored(address)
        return None if found is None or self._root.has_entry(address) else found

    def listed(self, after: str | None, limit: int) -> tuple[Tombstone, ...]:
        """Return the tombstones after an entity, by their files. One that cannot be decoded has version 0."""
        start = None if after is None else self._root.address(after)
        found: list[Tombstone] = []
        for address in self._written():
            if start is not None and (address.shard, address.name) <= (start.shard, start.name):
                continue
            try:
                tombstone = self.find(address)
            except CorruptionError:
                tombstone = Tombstone(address.entity, 0, "", 0)
            if tombstone is not None:
                found.append(tombstone)
            if len(found) >= limit:
                break
        return tuple(found)

    def _written(self) -> Iterator[EntityDirectory]:
        """The entities that a tombstone was written for, in the order of shards and names."""
        fs, root = self._fs, self._root
        try:
            with open_shard(fs, root.directory, PRUNED) as directory:
                for shard in root.shards_in(directory):
                    with open_shard(fs, directory, shard) as files:
                        names = sorted(fs.names(files))
                    for name in names:
                        entity = entity_of_name(name, tenant=self._io.settings.tenant)
                        if entity is not None and root.shard(name) == shard:
                            yield root.address(entity)
        except FileNotFoundError:
            return
        except OSError as error:
            raise unavailable(PRUNED, "list", error) from error

    def removed(self, limit: int) -> tuple[str, ...]:
        """Return entities whose files are not removed yet."""
        found: list[str] = []
        for name in self._root.names_ending(REMOVED):
            entity = entity_of_name(name, tenant=self._io.settings.tenant)
            if entity is not None:
                found.append(entity)
        return tuple(sorted(found)[:limit])

    def remove_files(self, address: EntityDirectory) -> int:
        """Remove the remaining files of a removed entity; return how many there were."""
        fs, count = self._fs, 0
        try:
            with open_shard(fs, address.resources, address.shard) as shard:
                if address.name + REMOVED not in fs.names(shard):
                    return 0
                self._io.flush(address, fs.sync_directory, shard, f"{address.shard}/")  # the renaming, before any file
                try:
                    directory = fs.open_directory(shard, address.name + REMOVED)
                except FileNotFoundError:
                    return 0
                try:
                    for name in fs.names(directory):
                        with contextlib.suppress(FileNotFoundError):  # another process removes them, too
                            fs.unlink(directory, name)
                            count += 1
                finally:
                    with contextlib.suppress(OSError):
                        fs.close(directory)
                with contextlib.suppress(FileNotFoundError):
                    fs.remove_directory(shard, address.name + REMOVED)
        except OSError as error:
            raise unavailable(address.entity, "prune", error) from error
        return count
