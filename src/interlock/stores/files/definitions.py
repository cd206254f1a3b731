"""Definitions in files: one per edition.

    <root>/definitions/sequence.json                       {"order":3,...}: the last sequence number of each kind
    <root>/definitions/<kind>/<revision>.<digest>.json     the body in one line, and the facts in the next one

Rule 1: a file is replaced as a whole under the lock of `definitions`. A body never changes, only its facts.
Rule 2: a sequence number is durable before the edition that has it, so none is given twice.
Rule 3: the digest in the name protects the body, `h` the facts. A file whose facts are damaged still has its body; it
counts as an edition without a number until it is saved again.
Rule 4: an edition that is found is not necessarily durable: its writer may have died before the last flush. So saving
flushes all names again, once for each definition of a process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from hashlib import blake2b

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import UsageError
from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.limits import DEFINITION_STORED_BYTES_MAX
from interlock.ports.definitions import (
    Definition,
    Edition,
    StoredDefinition,
    body_digest,
    editions_of_name,
    find_edition,
    next_edition,
    surplus_editions,
)
from interlock.stores.files.durable_io import DirectoryLock, DurableIO, replace_file, unavailable
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.names import definition_folder, is_leftover
from interlock.stores.files.root import Root

DEFINITIONS = "definitions"
SEQUENCE = "sequence.json"
"""No folder of a kind has this name: there is no dot in an encoded kind."""
SUFFIX = ".json"
WHAT = "the definitions of the store"

_READ_BYTES = 1_048_576
_FACTS_BYTES_MAX = 65_536
_FILE_BYTES_MAX = DEFINITION_STORED_BYTES_MAX + _FACTS_BYTES_MAX
_HASH_BYTES = len(',"h":"') + 32 + len('"}')


class _Facts(Struct, frozen=True, omit_defaults=True):
    """The second line of a file, without its hash."""

    kind: str
    revision: str
    sequence: int
    saved_ms: int
    written_name: str
    label: str | None = None
    names: tuple[str, ...] = ()


class FileDefinitions:
    """The definitions below one root."""

    def __init__(self, io: DurableIO, root: Root) -> None:
        self._fs = io.fs
        self._root = root
        self._lock_ms_max = io.settings.lock_ms_max

    def save(self, definition: Definition, *, now_ms: int) -> Edition:
        """Save a definition and its names; return its edition."""
        self._root.check_writable()
        fs = self._fs
        try:
            with contextlib.suppress(FileExistsError):
                fs.make_directory(self._root.directory, DEFINITIONS)
            fs.sync_directory(self._root.directory)
            parent = _Directory(fs, fs.open_directory(self._root.directory, DEFINITIONS))
            try:
                with (
                    DirectoryLock(fs, parent.descriptor, WHAT, self._lock_ms_max, parent.close),
                    self._folder(parent.descriptor, definition.kind) as folder,
                ):
                    return self._save(parent.descriptor, folder, definition, now_ms)
            finally:
                parent.close()
        except OSError as error:
            raise unavailable(WHAT, "write", error) from error

    def read(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        """Return the revisions of a kind that a name means, in their order."""
        stored = self._stored_of(kind)
        bodies = {(each.edition.revision, each.edition.digest): each.body for each in stored}
        found: list[StoredDefinition] = []
        for editions in editions_of_name((each.edition for each in stored), name):
            intact = (each for each in editions if bodies[each.revision, each.digest] is not None)
            edition = next(intact, editions[0])
            found.append(StoredDefinition(edition, bodies[edition.revision, edition.digest]))
        return tuple(found)

    def list_editions(self, kind: str | None) -> tuple[Edition, ...]:
        """Return all editions, of one kind or of all, sorted by kind and sequence."""
        found = self._every_stored() if kind is None else self._stored_of(kind)
        return tuple(sorted((each.edition for each in found), key=lambda each: (each.kind, each.sequence)))

    # Writing

    @contextlib.contextmanager
    def _folder(self, parent: int, kind: str) -> Iterator[int]:
        name = definition_folder(kind)
        with contextlib.suppress(FileExistsError):
            self._fs.make_directory(parent, name)
        with self._opened(parent, name) as folder:
            yield folder

    def _save(self, parent: int, folder: int, definition: Definition, now_ms: int) -> Edition:
        fs = self._fs
        for name in filter(is_leftover, fs.names(folder)):  # a writer died; under the lock no other one is running
            fs.unlink(folder, name)
        stored = [each for each in self._in_folder(folder) if each.edition.kind in (definition.kind, "")]
        editions = [each.edition for each in stored]
        saved = find_edition(editions, definition)
        is_intact = any(each.edition is saved and each.body == definition.body for each in stored)
        if saved is None or not is_intact or not saved.sequence:
            numbers = self._numbers(parent)
            saved = next_edition(editions, definition, last=numbers.get(definition.kind, 0), now_ms=now_ms)
            if saved.sequence > numbers.get(definition.kind, 0):
                replace_file(fs, parent, SEQUENCE, encode({**numbers, definition.kind: saved.sequence}) + b"\n")
            replace_file(fs, folder, _file_name(saved), encode_edition(saved, definition.body))
            editions = [each for each in editions if (each.revision, each.digest) != (saved.revision, saved.digest)]
            for each in surplus_editions((*editions, saved), saved.revision):
                fs.unlink(folder, _file_name(each))
        fs.sync_directory(folder)
        fs.sync_directory(parent)
        return saved

    def _numbers(self, parent: int) -> dict[str, int]:
        """The last sequence number of each kind. If the file is damaged, the editions themselves still have theirs."""
        with contextlib.suppress(FileNotFoundError, *UNDECODABLE):
            return msgspec.json.decode(self._read(parent, SEQUENCE), type=dict[str, int])
        return {}

    # Reading

    def _stored_of(self, kind: str) -> list[StoredDefinition]:
        with self._reading() as parent:
            if parent is None:
                return []
            try:
                with self._opened(parent, definition_folder(kind)) as folder:
                    return [
                        StoredDefinition(replace(each.edition, kind=kind), each.body)
                        for each in self._in_folder(folder)
                        if each.edition.kind in (kind, "")
                    ]
            except FileNotFoundError:
                return []

    def _every_stored(self) -> list[StoredDefinition]:
        found: list[StoredDefinition] = []
        with self._reading() as parent:
            for name in [] if parent is None else self._fs.names(parent):
                if name == SEQUENCE or is_leftover(name):
                    continue
                assert parent is not None
                with contextlib.suppress(NotADirectoryError), self._opened(parent, name) as folder:
                    # Without its facts the kind of a file is that of the others in its folder.
                    stored = self._in_folder(folder)
                    kind = next((each.edition.kind for each in stored if each.edition.kind), name)
                    found += (
                        StoredDefinition(replace(each.edition, kind=each.edition.kind or kind), each.body)
                        for each in stored
                    )
        return found

    @contextlib.contextmanager
    def _reading(self) -> Iterator[int | None]:
        """The open directory, or None when nothing was ever saved."""
        try:
            with self._opened(self._root.directory, DEFINITIONS) as parent:
                yield parent
        except FileNotFoundError:
            yield None
        except OSError as error:
            raise unavailable(WHAT, "read", error) from error

    def _in_folder(self, folder: int) -> list[StoredDefinition]:
        """The files of one folder. The kind of an edition without facts is empty."""
        found: list[StoredDefinition] = []
        for name in sorted(self._fs.names(folder)):
            revision, _, digest = name.removesuffix(SUFFIX).rpartition(".")
            if is_leftover(name) or not name.endswith(SUFFIX) or not revision:
                continue
            try:
                data = self._read(folder, name)
            except FileNotFoundError:  # dropped meanwhile
                continue
            found.append(_decode(data, revision, digest))
        names: dict[str, set[str]] = {}
        for each in found:  # a name belongs to the revision, whichever edition was saved with it
            names.setdefault(each.edition.revision, set()).update(each.edition.names)
        return [
            replace(each, edition=replace(each.edition, names=tuple(sorted(names[each.edition.revision]))))
            for each in found
        ]

    def _read(self, directory: int, name: str) -> bytes:
        fs = self._fs
        file = fs.open_file(directory, name)
        data = b""
        try:
            while len(data) <= _FILE_BYTES_MAX and (chunk := fs.read(file, len(data), _READ_BYTES)):
                data += chunk
        finally:
            fs.close(file)
        return data

    @contextlib.contextmanager
    def _opened(self, at: int, name: str) -> Iterator[int]:
        directory = self._fs.open_directory(at, name)
        try:
            yield directory
        finally:
            self._fs.close(directory)


class _Directory:
    """An open directory that is closed once: by its lock, when that cannot be released, or at the end."""

    def __init__(self, fs: FileSystem, descriptor: int) -> None:
        self._fs = fs
        self.descriptor = descriptor

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            self._fs.close(descriptor)


def _file_name(edition: Edition) -> str:
    return f"{edition.revision}.{edition.digest}{SUFFIX}"


def encode_edition(edition: Edition, body: bytes) -> bytes:
    """The bytes of an edition's file. Raises UsageError if its label and names are too long."""
    facts = encode(
        _Facts(
            edition.kind,
            edition.revision,
            edition.sequence,
            edition.saved_ms,
            edition.written_name,
            edition.label,
            edition.names,
        )
    )
    if len(facts) > _FACTS_BYTES_MAX - 2 * _HASH_BYTES:
        raise UsageError("the label and names of a definition are too long", code="definition.size")
    return body + b"\n" + facts[:-1] + f',"h":"{_hash(facts[:-1])}"}}'.encode() + b"\n"


def _hash(facts: bytes) -> str:
    return blake2b(facts, digest_size=16).hexdigest()


def _decode(data: bytes, revision: str, digest: str) -> StoredDefinition:
    """What a file has. Facts that do not fit their hash, or the name of the file, are left out."""
    body, _, line = data.partition(b"\n")
    content = body if body_digest(body) == digest else None
    line = line.removesuffix(b"\n")
    facts = line[:-_HASH_BYTES]
    if line[-_HASH_BYTES:] == f',"h":"{_hash(facts)}"}}'.encode():
        with contextlib.suppress(*UNDECODABLE):
            found = msgspec.json.decode(facts + b"}", type=_Facts)
            if found.revision == revision:
                edition = Edition(
                    found.kind,
                    revision,
                    digest,
                    found.sequence,
                    found.label,
                    found.saved_ms,
                    found.written_name,
                    found.names,
                )
                return StoredDefinition(edition, content)
    return StoredDefinition(Edition("", revision, digest, 0, None, 0, revision), content)
