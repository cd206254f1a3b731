"""The root of a file store: its format, its shard directories, and where the directory of each entity is.

    <root>/format.json                     {"format":1,"layout":"A","shard_digits":2}
    <root>/resources/<2 hex>/<entity>/     events.log, state.json
    <root>/pending/, changed               which entities have unfinished work (`work.markers`)
    <root>/dispatch                        the lock of the one process that runs work
    <root>/leases/                         leases and downtimes
    <root>/facts.json                      settings that every process follows
    <root>/definitions/                    the definitions of charts
    <root>/feed/                           the order of the feed, once one was read
    <root>/refusals.log                    attempts that changed nothing, JSON lines, best effort; operators' acts on
                                           work, flushed before the act

Rule 1: an unknown format is refused, unless it says that a release which knows this one may use it
(`"oldest_reader":1`); its further fields are then ignored. A root keeps the tenant it was created with: without a
tenant in the URL it is opened with its own; with another one it is refused.
Rule 2: every opening creates missing shard directories and flushes the root and `resources`, always: the process that
created them may have died before its own flush.
Rule 3: a root that cannot be written can still be read, if its format exists.
Rule 4: `format.json` is durable before anything is created in `resources`: a root with entities and without a format
has lost it, and is not a new store. A root whose creation was interrupted has at most empty directories.
Rule 5: a directory with a journal that is not an entity of this root is not read. `strays` lists it, for verification.
Other files are ignored.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator
from pathlib import PurePath

import msgspec
from msgspec import Struct, structs

from interlock.errors import CorruptionError, NotFoundError, UnavailableError, UsageError
from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.limits import ENTITY_ID_BYTES_MAX
from interlock.stores.file_identity import replaced_error
from interlock.stores.files.durable_io import (
    DirectoryLock,
    EntityDirectory,
    Settings,
    open_shard,
    replace_file,
    unavailable,
)
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.names import (
    FORMAT_BYTES_MAX,
    FORMAT_FILE,
    FORMAT_NEWEST,
    JOURNAL,
    REMOVED,
    RESOURCES,
    SNAPSHOT,
    TEMPORARY,
    directory_name,
    entity_of_name,
    is_cut,
    is_leftover,
    segment_first_version,
    shard_name,
    shard_names,
    tenant_of_name,
    tenant_prefix,
)

PENDING = "pending"
LAYOUT = "A"
"""The only layout: one journal for each entity. `format.json` names it."""

REMOVED_LAYOUT = "C"
"""One write-ahead log for all entities, without effects; removed by decision record 0049."""

REMOVED_LAYOUT_DIRECTORY = "wal"

ADDRESSES_MAX = 10_000
"""Addresses remembered: the name of a busy entity is encoded and hashed once."""

TENANTS_SHOWN_MAX = 5
"""Tenants listed in the error for a root that lost its format and has entities of several."""

_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NO_FOLDER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_NO_DIRECTORY = (FileNotFoundError, NotADirectoryError)
_UNREAD = frozenset({errno.EACCES, errno.EPERM, errno.EIO})


class Format(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `format.json`."""

    format: int = 1
    layout: str = LAYOUT
    shard_digits: int = 2
    tenant: str = ""

    def encode(self) -> bytes:
        """The bytes of the file. Without a tenant the field is left out."""
        fields = msgspec.to_builtins(self)
        if not self.tenant:
            del fields["tenant"]
        return encode(fields) + b"\n"


class LaterFormat(Struct, frozen=True):
    """What this release reads of a `format.json` that a later one wrote."""

    format: int
    oldest_reader: int = 2**31
    layout: str = LAYOUT
    shard_digits: int = 2
    tenant: str = ""


def removed_layout(root: str) -> UsageError:
    """The error for a root of layout C. Nothing was changed."""
    hint = (
        "open and close it once with the release that wrote it, so that every entry is in its journal; then set "
        f'"layout" to "{LAYOUT}" in {FORMAT_FILE} and delete {REMOVED_LAYOUT_DIRECTORY}/; for group commit use SQLite'
    )
    return UsageError(f"{root} has layout {REMOVED_LAYOUT}, which is not supported", code="store.layout", hint=hint)


def lost_format(root: str, *, names: Iterable[str]) -> CorruptionError:
    """The error for a root with entities and without a format. The names of their directories contain the tenant."""
    tenants = sorted({tenant for tenant in map(tenant_of_name, names) if tenant is not None})
    tenant = tenants[0] if len(tenants) == 1 else ""
    hint = f"restore that file, one line: {Format(tenant=tenant).encode().decode().strip()}"
    if len(tenants) > 1:
        shown = [encode(each).decode() for each in tenants[:TENANTS_SHOWN_MAX]]
        shown += ["…"] if len(tenants) > TENANTS_SHOWN_MAX else []
        hint += f"; add the `tenant` that it had: there are folders of {', '.join(shown)}"
    elif not tenants:
        hint += "; if it had a `tenant`, add it"
    message = f"{root} contains entities but no {FORMAT_FILE}: a part of it is missing"
    return CorruptionError(message, code="store.format", hint=hint)


class Root:
    """An open root. `read_only` says why it accepts no appends; None when it does."""

    def __init__(self, fs: FileSystem, root: str, settings: Settings, *, shard_digits: int = 2) -> None:
        if len(settings.tenant.encode(errors="replace")) > ENTITY_ID_BYTES_MAX:
            message = f"the tenant `{settings.tenant[:20]}…` has more than {ENTITY_ID_BYTES_MAX} bytes"
            raise UsageError(message, code="store.tenant")
        self.read_only: str | None = None
        self._fs = fs
        self.settings = settings
        self._root = root
        self.path = fs.resolve(root)
        self._open: list[int] = []
        self._addresses: dict[str, EntityDirectory] = {}
        try:
            self._open_all(Format(shard_digits=shard_digits, tenant=settings.tenant))
            self._check_tenant(settings.tenant)
            self.settings = structs.replace(settings, tenant=self._format.tenant)
        except BaseException:
            self.close()
            raise

    def _check_tenant(self, tenant: str) -> None:
        """Raises UsageError when the root is another tenant's: no hash of the given tenant would match."""
        found = self._format.tenant
        if tenant and tenant != found:
            owner = f"tenant `{found}`" if found else "no tenant"
            hint = "use one folder per tenant; without ?tenant= a folder is opened with its own tenant"
            raise UsageError(f"{self._root} belongs to {owner}, not to `{tenant}`", code="store.tenant", hint=hint)

    def _open_all(self, wanted: Format) -> None:
        try:
            self.directory = self._open_directory()
            kind = self._fs.network_type(self.directory)
            if kind is not None:
                raise UsageError(f"{self._root} is on a network file system ({kind})", code="store.network")
            self._format = self._prepare(wanted)
            self._resources = self._prepare_shards()
            self.pending = self._open_markers()
        except OSError as error:
            raise unavailable(self._root, "open", error) from error

    def _open_directory(self) -> int:
        fs = self._fs
        try:
            parent, name = fs.parent(self._root)
        except (FileNotFoundError, NotADirectoryError):
            message = f"folder {PurePath(self._root).parent} does not exist"
            raise NotFoundError(message, code="store.folder", hint="create it first") from None
        try:
            try:
                fs.make_directory(parent, name)
            except FileExistsError:
                pass
            except OSError as error:
                self._note_read_only(error)
            if self.read_only is None:
                with self._detecting_read_only():
                    fs.sync_directory(parent)
            return self._track(fs.open_directory(parent, name))
        except FileNotFoundError:
            if self.read_only is None:
                raise
            raise UnavailableError(f"{self._root} does not exist, and {self.read_only}", code="store.open") from None
        finally:
            fs.close(parent)

    def _prepare(self, wanted: Format) -> Format:
        """The format found, or written now. The root's lock serializes two processes that create one store."""
        fs = self._fs
        with DirectoryLock(fs, self.directory, self._root, self.settings.lock_ms_max, self._give_up):
            found = self._read_format()
            if found is None:
                self._check_new()
                if self.read_only is not None:
                    raise UnavailableError(f"{self._root} is not a store, and {self.read_only}", code="store.open")
                self._sweep()
                replace_file(fs, self.directory, FORMAT_FILE, wanted.encode())
                found = wanted
            self._check_log()
            with self._detecting_read_only():
                for name in (RESOURCES, PENDING):
                    with contextlib.suppress(FileExistsError):
                        fs.make_directory(self.directory, name)
                fs.sync_directory(self.directory)
        return found

    def _check_new(self) -> None:
        """Raises CorruptionError when there are entities already."""
        there = set(self._fs.names(self.directory))
        for name in (REMOVED_LAYOUT_DIRECTORY, RESOURCES):
            if name in there:
                with open_shard(self._fs, self.directory, name) as directory:
                    if self._fs.names(directory):
                        if name == REMOVED_LAYOUT_DIRECTORY:
                            raise removed_layout(self._root)
                        raise lost_format(self._root, names=self._entity_names(there))

    def _check_log(self) -> None:
        """Raises UsageError when a log of the removed layout has entries, which may be in no journal."""
        fs = self._fs
        with contextlib.suppress(*_NO_DIRECTORY), open_shard(fs, self.directory, REMOVED_LAYOUT_DIRECTORY) as directory:
            for name in fs.names(directory):
                file = fs.open_file(directory, name)
                try:
                    if name.endswith(".log") and fs.size(file):
                        raise removed_layout(self._root)
                finally:
                    fs.close(file)

    def _entity_names(self, there: set[str]) -> Iterator[str]:
        """The names of all entity directories, without a format that says how they are sharded."""
        if RESOURCES not in there:
            return
        with open_shard(self._fs, self.directory, RESOURCES) as resources:
            names = self._fs.names(resources)
            yield from names
            for shard in {*shard_names(1), *shard_names(2)}.intersection(names):
                with contextlib.suppress(OSError), open_shard(self._fs, resources, shard) as directory:
                    yield from self._fs.names(directory)

    def _sweep(self) -> None:
        """Remove temporary files of a process that died while it created this store; the caller holds the lock."""
        for name in self._fs.names(self.directory):
            if TEMPORARY in name:
                self._fs.unlink(self.directory, name)

    def _give_up(self) -> None:
        """A root whose lock cannot be released is not used: the error closes it, which releases the lock."""
        raise UnavailableError(f"{self._root} cannot be unlocked", code="store.open")

    def _read_format(self) -> Format | None:
        try:
            file = self._fs.open_file(self.directory, FORMAT_FILE)
        except FileNotFoundError:
            return None
        try:
            data = self._fs.read(file, 0, FORMAT_BYTES_MAX)
        finally:
            self._fs.close(file)
        try:
            later = msgspec.json.decode(data, type=LaterFormat)
            if later.format > FORMAT_NEWEST and later.oldest_reader <= FORMAT_NEWEST:
                return Format(layout=later.layout, shard_digits=later.shard_digits, tenant=later.tenant)
            if later.format > FORMAT_NEWEST:
                raise self._newer(later)
            found = msgspec.json.decode(data, type=Format)
        except UNDECODABLE as error:
            raise UsageError(f"{self._root}/{FORMAT_FILE} is invalid: {error}", code="store.format") from error
        if found.format == 1 and found.layout == REMOVED_LAYOUT:
            raise removed_layout(self._root)
        if found.format != 1 or found.layout != LAYOUT or not 0 <= found.shard_digits <= 2:
            message = f"{self._root} has the unknown format {found.format}, layout {found.layout}"
            raise UsageError(message, code="store.format", hint="a newer release of Interlock may support it")
        return found

    def _newer(self, found: LaterFormat) -> UsageError:
        needs = min(found.oldest_reader, found.format)
        message = (
            f"{self._root} has format {found.format}, which needs a release that knows format {needs}; this release "
            f"supports up to {FORMAT_NEWEST}"
        )
        return UsageError(message, code="store.format", hint="use the release that wrote it, or a newer one")

    def _prepare_shards(self) -> int:
        """The directory that contains the shards or, without shards, the entities."""
        fs = self._fs
        resources = self._track(fs.open_directory(self.directory, RESOURCES))
        if self._format.shard_digits:
            there = set(fs.names(resources))
            with self._detecting_read_only():
                for name in self._shards():
                    if name not in there:
                        with contextlib.suppress(FileExistsError):
                            fs.make_directory(resources, name)
                fs.sync_directory(resources)
        return resources

    def _open_markers(self) -> int:
        """The directory of markers; -1 when it is missing and cannot be created."""
        try:
            return self._track(self._fs.open_directory(self.directory, PENDING))
        except FileNotFoundError:
            if self.read_only is None:
                raise
            return -1

    def _shards(self) -> list[str]:
        digits = self._format.shard_digits
        return shard_names(digits) if digits else [""]

    @contextlib.contextmanager
    def _detecting_read_only(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._note_read_only(error)

    def _note_read_only(self, error: OSError) -> None:
        if error.errno not in _READ_ONLY:
            raise error
        self.read_only = f"it cannot be written: {error.strerror or error}"

    def _track(self, descriptor: int) -> int:
        self._open.append(descriptor)
        return descriptor

    def address(self, entity: str) -> EntityDirectory:
        """Where the directory of an entity is. Raises UsageError for an invalid id."""
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
        """The shard directories in another directory; other names there are ignored."""
        shards = self._shards()
        return sorted({*shards} & {*self._fs.names(directory)}) if self._format.shard_digits else shards

    def addresses(self, prefix: str) -> Iterator[EntityDirectory]:
        """The directories whose names start with a prefix; the id is empty when the name does not contain it."""
        for shard, name in self._names():
            if name.startswith(prefix):
                entity = entity_of_name(name, tenant=self.settings.tenant)
                if entity is not None or is_cut(name):
                    yield EntityDirectory(entity or "", name, shard, self._resources)

    def strays(self) -> Iterator[str]:
        """The names of directories with a journal that are not entities here: another tenant's, or in a wrong shard."""
        tenant = self.settings.tenant
        prefix = tenant_prefix(tenant)
        for shard, name in self._names():
            if name.endswith(REMOVED):
                continue
            is_ours = name.startswith(prefix) if is_cut(name) else entity_of_name(name, tenant=tenant) is not None
            if not (is_ours and self.shard(name) == shard) and self._has_journal(shard, name):
                yield name

    def names_ending(self, end: str) -> Iterator[str]:
        """The names in the directories of entities that end with this, without it."""
        return (name.removesuffix(end) for _, name in self._names() if name.endswith(end))

    def _names(self) -> Iterator[tuple[str, str]]:
        """All names in the directories of entities, each with its shard."""
        for shard in self._shards():
            try:
                with open_shard(self._fs, self._resources, shard) as directory:
                    names = self._fs.names(directory)
            except OSError as error:
                raise unavailable(self._root, "list", error) from error
            for name in names:
                yield shard, name

    def _has_journal(self, shard: str, name: str) -> bool:
        fs = self._fs
        try:
            with open_shard(fs, self._resources, shard) as directory, open_shard(fs, directory, name) as folder:
                return any(each in (JOURNAL, SNAPSHOT) or segment_first_version(each) for each in fs.names(folder))
        except OSError as error:
            if error.errno in _NO_FOLDER:
                return False
            if error.errno in _UNREAD:
                return tenant_of_name(name) is not None
            raise unavailable(self._root, "list", error) from error

    def has_entry(self, address: EntityDirectory) -> bool:
        """Whether anything was written into an entity's directory. Waits for a writer that holds its lock.

        A writer that died before the first byte leaves it empty, or with an empty journal.
        """
        fs = self._fs
        try:
            with (
                open_shard(fs, address.resources, address.shard) as shard,
                open_shard(fs, shard, address.name) as folder,
                DirectoryLock(fs, folder, address.name, self.settings.lock_ms_max, lambda: None),
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
        """Raises UnavailableError (`store.replaced`) when the root was moved, replaced or deleted meanwhile."""
        if self._fs.identity_at(self.path) != self._fs.identity(self.directory):
            raise replaced_error(f"{self.path} was moved, replaced or deleted")

    def check_writable(self) -> None:
        """Raises UnavailableError when the root is read-only."""
        if self.read_only is not None:
            raise UnavailableError(f"{self._root}: {self.read_only}", code="store.read_only")

    def close(self) -> None:
        """Close all descriptors."""
        while self._open:
            with contextlib.suppress(OSError):
                self._fs.close(self._open.pop())
