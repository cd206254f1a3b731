"""The root of a file store: its format, its shard directories, and where each entity stands.

    <root>/format.json                     {"format":1,"layout":"A","shard_digits":2}
    <root>/resources/<2 hex>/<entity>/     events.log, state.json
    <root>/pending/, changed               which entities have unfinished work (`files_pending`)
    <root>/dispatch                        the lock of the one process that performs work
    <root>/leases/                         leases and downtimes
    <root>/refusals.log                    attempts that changed nothing, JSON lines, best effort; operators' acts on
                                           work, flushed before the act

Rule 1: an unknown format is refused, never guessed. A root keeps the tenant it was begun with: whoever names none opens
it as what it is, and can prove its journals; whoever names another is refused.
Rule 2: every opening makes the shard directories that are missing and flushes the root and `resources`, always: whoever
made them may have died before its own flush.
Rule 3: a root that cannot be written can still be read, if its format is there.
Rule 4: `format.json` is durable before anything stands in `resources`: a root that has something there and no format
has lost it, and is no new store. One that died while it was begun has at most empty directories.
Rule 5: a folder that holds a journal and is no entity of this root is not read, and not passed over either: `strays`
names it for whoever verifies. What else a person left beside entities is nobody's business.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator
from pathlib import PurePath

import msgspec
from msgspec import Struct, structs

from interlock.errors import CorruptionError, NotFoundError, UnavailableError, UsageError
from interlock.model.codec import encode
from interlock.model.limits import ENTITY_ID_BYTES_MAX
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.durable_io import (
    EntityDirectory,
    Locked,
    Settings,
    shard_opened,
    unavailable,
    write_whole,
)
from interlock.stores.files.names import (
    JOURNAL,
    RESOURCES,
    SNAPSHOT,
    TEMPORARY,
    directory_name,
    entity_named,
    is_cut,
    is_leftover,
    sealed_first,
    shard_name,
    shard_names,
    tenant_named,
    tenant_prefix,
)
from interlock.stores.replaced_files import replaced

FORMAT_FILE = "format.json"
PENDING = "pending"
LAYOUT = "A"
"""The only layout: one journal for each entity. `format.json` names it."""

REMOVED_LAYOUT = "C"
"""One write-ahead log for all entities, without effects; removed by decision record 0049."""

REMOVED_LAYOUT_DIRECTORY = "wal"

ADDRESSES_MAX = 10_000
"""Addresses remembered: a name is encoded and hashed once for each entity that is busy."""

TENANTS_SHOWN_MAX = 5
"""Tenants told of a root that lost its format and has entities of several."""

_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NO_FOLDER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_UNREAD = frozenset({errno.EACCES, errno.EPERM, errno.EIO})


class Format(Struct, frozen=True, forbid_unknown_fields=True):
    """What `format.json` says."""

    format: int = 1
    layout: str = LAYOUT
    shard_digits: int = 2
    tenant: str = ""

    def encoded(self) -> bytes:
        """The file's bytes. A root without a tenant says nothing of one."""
        said = msgspec.to_builtins(self)
        if not self.tenant:
            del said["tenant"]
        return encode(said) + b"\n"


def removed_layout(root: str) -> UsageError:
    """The error for a root of layout C. Nothing was changed."""
    hint = (
        "open and close it once with the release that wrote it, so that every entry is in its journal; then set "
        f'"layout" to "{LAYOUT}" in {FORMAT_FILE} and delete {REMOVED_LAYOUT_DIRECTORY}/; for group commit use SQLite'
    )
    return UsageError(f"{root} has layout {REMOVED_LAYOUT}, which is not supported", code="store.layout", hint=hint)


def lost_format(root: str, *, names: Iterable[str]) -> CorruptionError:
    """What is said of a root without its format that has entities in folders of these names, which tell the tenant."""
    tenants = sorted({tenant for tenant in map(tenant_named, names) if tenant is not None})
    tenant = tenants[0] if len(tenants) == 1 else ""
    hint = f"restore that file, one line: {Format(tenant=tenant).encoded().decode().strip()}"
    if len(tenants) > 1:
        shown = [encode(each).decode() for each in tenants[:TENANTS_SHOWN_MAX]]
        shown += ["…"] if len(tenants) > TENANTS_SHOWN_MAX else []
        hint += f"; with the `tenant` that it had: there are folders of {', '.join(shown)}"
    elif not tenants:
        hint += "; one of a tenant has its `tenant`, too"
    message = f"{root} holds entities and no {FORMAT_FILE}: a part of it is missing"
    return CorruptionError(message, code="store.format", hint=hint)


class Root:
    """An open root. `read_only` says why it takes no appends; None when it does."""

    def __init__(self, fs: FileSystem, root: str, settings: Settings, *, shard_digits: int = 2) -> None:
        if len(settings.tenant.encode(errors="replace")) > ENTITY_ID_BYTES_MAX:
            message = f"the tenant `{settings.tenant[:20]}…` has more than {ENTITY_ID_BYTES_MAX} bytes"
            raise UsageError(message, code="store.tenant")
        self.read_only: str | None = None
        self._fs = fs
        self.settings = settings
        self._root = root
        self.path = fs.resolved(root)
        self._open: list[int] = []
        self._addresses: dict[str, EntityDirectory] = {}
        try:
            self._open_all(Format(shard_digits=shard_digits, tenant=settings.tenant))
            self._check_tenant(settings.tenant)
            self.settings = structs.replace(settings, tenant=self._format.tenant)
        except BaseException:
            self.close()
            raise

    def _check_tenant(self, asked: str) -> None:
        """Raises UsageError when this is another's root: in it, none of the asker's hashes would follow."""
        found = self._format.tenant
        if asked and asked != found:
            whose = f"tenant `{found}`" if found else "no tenant"
            hint = "each tenant has a folder of its own; without ?tenant= one is opened as what it is"
            raise UsageError(f"{self._root} is of {whose}, not of `{asked}`", code="store.tenant", hint=hint)

    def _open_all(self, wanted: Format) -> None:
        try:
            self.directory = self._directory()
            kind = self._fs.network(self.directory)
            if kind is not None:
                raise UsageError(f"{self._root} is on a network file system ({kind})", code="store.network")
            self._format = self._prepared(wanted)
            self._resources = self._prepared_shards()
            self.pending = self._prepared_markers()
        except OSError as error:
            raise unavailable(self._root, "open", error) from error

    def _directory(self) -> int:
        fs = self._fs
        try:
            parent, name = fs.parent(self._root)
        except (FileNotFoundError, NotADirectoryError):
            message = f"there is no folder {PurePath(self._root).parent}"
            raise NotFoundError(message, code="store.folder", hint="make it first") from None
        try:
            try:
                fs.make_directory(parent, name)
            except FileExistsError:
                pass
            except OSError as error:
                self._note_read_only(error)
            if self.read_only is None:
                with self._noting_read_only():
                    fs.sync_directory(parent)
            return self._kept(fs.open_directory(parent, name))
        except FileNotFoundError:
            if self.read_only is None:
                raise
            raise UnavailableError(f"there is no {self._root}, and {self.read_only}", code="store.open") from None
        finally:
            fs.close(parent)

    def _prepared(self, wanted: Format) -> Format:
        """The format found, or written now. Two processes that begin one store at once agree by the root's lock."""
        fs = self._fs
        with Locked(fs, self.directory, self._root, self.settings.lock_ms_max, self._give_up):
            found = self._read_format()
            if found is None:
                self._check_new()
                if self.read_only is not None:
                    raise UnavailableError(f"{self._root} is no store, and {self.read_only}", code="store.open")
                self._sweep()
                write_whole(fs, self.directory, FORMAT_FILE, wanted.encoded())
                found = wanted
            with self._noting_read_only():
                for name in (RESOURCES, PENDING):
                    with contextlib.suppress(FileExistsError):
                        fs.make_directory(self.directory, name)
                fs.sync_directory(self.directory)
        return found

    def _check_new(self) -> None:
        """Raises CorruptionError where entities stand already."""
        there = set(self._fs.names(self.directory))
        for name in (REMOVED_LAYOUT_DIRECTORY, RESOURCES):
            if name in there:
                with shard_opened(self._fs, self.directory, name) as directory:
                    if self._fs.names(directory):
                        if name == REMOVED_LAYOUT_DIRECTORY:
                            raise removed_layout(self._root)
                        raise lost_format(self._root, names=self._names_below(there))

    def _names_below(self, there: set[str]) -> Iterator[str]:
        """The names of all folders of entities, where no format says how they are spread."""
        if RESOURCES not in there:
            return
        with shard_opened(self._fs, self.directory, RESOURCES) as resources:
            names = self._fs.names(resources)
            yield from names
            for shard in {*shard_names(1), *shard_names(2)}.intersection(names):
                with contextlib.suppress(OSError), shard_opened(self._fs, resources, shard) as directory:
                    yield from self._fs.names(directory)

    def _sweep(self) -> None:
        """Removes what a process left that died while it began this store; under the lock no live one owns it."""
        for name in self._fs.names(self.directory):
            if TEMPORARY in name:
                self._fs.unlink(self.directory, name)

    def _give_up(self) -> None:
        """A root whose lock cannot be given back is not used: closing it, as the error does, frees the lock."""
        raise UnavailableError(f"{self._root} cannot be unlocked", code="store.open")

    def _read_format(self) -> Format | None:
        try:
            file = self._fs.open_file(self.directory, FORMAT_FILE)
        except FileNotFoundError:
            return None
        try:
            data = self._fs.read(file, 0, 4_096)
        finally:
            self._fs.close(file)
        try:
            found = msgspec.json.decode(data, type=Format)
        except msgspec.MsgspecError as error:
            raise UsageError(f"{self._root}/{FORMAT_FILE} is not readable: {error}", code="store.format") from error
        if found.format == 1 and found.layout == REMOVED_LAYOUT:
            raise removed_layout(self._root)
        if found.format != 1 or found.layout != LAYOUT or not 0 <= found.shard_digits <= 2:
            message = f"{self._root} has format {found.format}, layout {found.layout}, which is not known here"
            raise UsageError(message, code="store.format", hint="a newer Interlock may know it")
        return found

    def _prepared_shards(self) -> int:
        """The directory that holds the shards, or, without any, the entities themselves."""
        fs = self._fs
        resources = self._kept(fs.open_directory(self.directory, RESOURCES))
        if self._format.shard_digits:
            there = set(fs.names(resources))
            with self._noting_read_only():
                for name in self._shards():
                    if name not in there:
                        with contextlib.suppress(FileExistsError):
                            fs.make_directory(resources, name)
                fs.sync_directory(resources)
        return resources

    def _prepared_markers(self) -> int:
        """The directory of markers; -1 where there is none and none can be made."""
        try:
            return self._kept(self._fs.open_directory(self.directory, PENDING))
        except FileNotFoundError:
            if self.read_only is None:
                raise
            return -1

    def _shards(self) -> list[str]:
        digits = self._format.shard_digits
        return shard_names(digits) if digits else [""]

    @contextlib.contextmanager
    def _noting_read_only(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._note_read_only(error)

    def _note_read_only(self, error: OSError) -> None:
        if error.errno not in _READ_ONLY:
            raise error
        self.read_only = f"it cannot be written: {error.strerror or error}"

    def _kept(self, descriptor: int) -> int:
        self._open.append(descriptor)
        return descriptor

    def address(self, entity: str) -> EntityDirectory:
        """Where an entity's directory stands. Raises UsageError for an id that no store keeps."""
        found = self._addresses.get(entity)
        if found is None:
            name = directory_name(entity, tenant=self.settings.tenant)
            found = EntityDirectory(entity, name, self.shard(name), self._resources)
            if len(self._addresses) >= ADDRESSES_MAX:
                self._addresses.clear()
            self._addresses[entity] = found
        return found

    def shard(self, name: str) -> str:
        """The shard of an entity's directory name."""
        return shard_name(name, self._format.shard_digits)

    def shards_in(self, directory: int) -> list[str]:
        """The shard directories that somebody made in another one; what else a person left there is none."""
        shards = self._shards()
        return sorted({*shards} & {*self._fs.names(directory)}) if self._format.shard_digits else shards

    def addresses(self, prefix: str) -> Iterator[EntityDirectory]:
        """The places of all entities whose directory names begin so; the id is empty where the name tells none."""
        for shard, name in self._folders():
            if name.startswith(prefix):
                entity = entity_named(name, tenant=self.settings.tenant)
                if entity is not None or is_cut(name):
                    yield EntityDirectory(entity or "", name, shard, self._resources)

    def strays(self) -> Iterator[str]:
        """The names of folders that hold a journal and are no entity's here: another tenant's, or in a wrong shard."""
        tenant = self.settings.tenant
        prefix = tenant_prefix(tenant)
        for shard, name in self._folders():
            is_ours = name.startswith(prefix) if is_cut(name) else entity_named(name, tenant=tenant) is not None
            if not (is_ours and self.shard(name) == shard) and self._holds_journal(shard, name):
                yield name

    def _folders(self) -> Iterator[tuple[str, str]]:
        """All that stands where entities do, with its shard."""
        for shard in self._shards():
            try:
                with shard_opened(self._fs, self._resources, shard) as directory:
                    names = self._fs.names(directory)
            except OSError as error:
                raise unavailable(self._root, "list", error) from error
            for name in names:
                yield shard, name

    def _holds_journal(self, shard: str, name: str) -> bool:
        fs = self._fs
        try:
            with shard_opened(fs, self._resources, shard) as directory, shard_opened(fs, directory, name) as folder:
                return any(each in (JOURNAL, SNAPSHOT) or sealed_first(each) for each in fs.names(folder))
        except OSError as error:
            if error.errno in _NO_FOLDER:
                return False
            if error.errno in _UNREAD:
                return tenant_named(name) is not None
            raise unavailable(self._root, "list", error) from error

    def is_begun(self, address: EntityDirectory) -> bool:
        """Whether anything was written into an entity's folder, by whoever had its lock until now.

        Whoever died before the first byte left it empty, or with an empty journal.
        """
        fs = self._fs
        try:
            with (
                shard_opened(fs, address.resources, address.shard) as shard,
                shard_opened(fs, shard, address.name) as folder,
                Locked(fs, folder, address.name, self.settings.lock_ms_max, lambda: None),
            ):
                names = [each for each in fs.names(folder) if not is_leftover(each)]
                return names != [] and (names != [JOURNAL] or self._has_bytes(folder))
        except OSError as error:
            if error.errno in _NO_FOLDER:
                return False
            raise unavailable(address.name, "read", error, folder=address.folder) from error

    def _has_bytes(self, folder: int) -> bool:
        file = self._fs.open_file(folder, JOURNAL)
        try:
            return self._fs.size(file) > 0
        finally:
            self._fs.close(file)

    def check_path(self) -> None:
        """Raises UnavailableError (`store.replaced`) when the root was moved, replaced or deleted since its opening."""
        if self._fs.identity_at(self.path) != self._fs.identity(self.directory):
            raise replaced(f"{self.path} was moved, replaced or deleted")

    def check_writable(self) -> None:
        """Raises UnavailableError when the root is read-only."""
        if self.read_only is not None:
            raise UnavailableError(f"{self._root}: {self.read_only}", code="store.read_only")

    def close(self) -> None:
        """Closes all descriptors."""
        while self._open:
            with contextlib.suppress(OSError):
                self._fs.close(self._open.pop())
