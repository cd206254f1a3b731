r"""A bundle: one entity with its whole journal, its children and every definition that their entries name, as one file.

    {"bundle":1,"entity":"order/1","exported_ms":...}
    {"definition":{...},"kind":"order","revision":"..."}     before the first entry that names it
    {"journal":"order/1","version":3,"digest":"..."}         followed by its entries
    {"entry":{...}}
    {"end":7,"hash":"..."}                                   the number of lines before, and their hash

Rule 1: export reads only, and needs no functions. A journal is exported up to where it was when the export started.
Rule 2: import checks the hash of the whole file before it writes anything.
Rule 3: import replays every entry and writes it only if the step gives what the entry records. The last snapshot must
        have the recorded digest.
Rule 4: entries that exist already must be the same: the import continues after them, so that it can be repeated.
Rule 5: pending timers and invokes are imported as work that no worker claims, unless the caller asks for it: a copy of
        a production entity must not charge a card again. Calls and messages are not imported: they may have been sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct

from interlock.compiler.build import compile_document
from interlock.definition.json.format import read_json
from interlock.errors import ConflictError, CorruptionError, UnavailableError, UsageError
from interlock.evolve.identity import named
from interlock.kernel.step import Kernel
from interlock.model.effect import CHART_TYPES, Effect
from interlock.model.encoding.codec import UNDECODABLE, digested_json, encode
from interlock.model.entity_id import kind_of
from interlock.model.journal.entry import Entry
from interlock.model.journal.work import CHILD_WORK, Work, WorkDelta, WorkId, parse_work_key
from interlock.model.limits import BUNDLE_ENTITIES_MAX, BUNDLE_LINE_BYTES_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.store import PAGE_MAX, Append, Appended, Duplicate, Loaded, Pruned, Store
from interlock.runtime.charts.revisions import Revisions, make_definition, missing_functions
from interlock.runtime.history.children import started_children
from interlock.runtime.history.removed import missing_entity
from interlock.runtime.history.replay import as_recorded, repeat_step
from interlock.runtime.history.verify import difference
from interlock.runtime.request_checks import check_entity

FORMAT_VERSION = 1

_HINT = "interlock bundle export writes bundles"


class BundleSummary(Struct, frozen=True):
    """What a bundle contains, or what was imported: entities, entries, definitions; `present` were there before."""

    entity: str
    entities: tuple[str, ...]
    entries: int
    definitions: int
    present: int = 0
    held: int = 0


class _Line(Struct, omit_defaults=True):
    """Every kind of line; the fields of the others are unset."""

    bundle: int | None = None
    entity: str | None = None
    exported_ms: int | None = None
    definition: Raw = Raw()
    kind: str | None = None
    revision: str | None = None
    journal: str | None = None
    version: int | None = None
    digest: str | None = None
    entry: Entry | None = None
    end: int | None = None
    hash: str | None = None


_lines = msgspec.json.Decoder(_Line)


def snapshot_digest(snapshot: Snapshot) -> str:
    """Return 32 hex digits over a snapshot, without what is derived from it."""
    return blake2b(digested_json(snapshot), digest_size=16).hexdigest()


# Export


async def export_bundle(
    store: Store,
    entity: str,
    revisions: Revisions,
    write: Callable[[bytes], Any],
    *,
    now_ms: int,
    children: bool = True,
) -> BundleSummary:
    """Write the bundle of an entity, line by line, and return what it contains.

    Raises NotFoundError for an unknown entity, ArchivedError if its journal is in an archive, CompactedError if its
    beginning was removed (an import repeats every step from the creation on), UnavailableError if the definition of an
    entry is missing.
    """
    check_entity(entity)
    export = _Export(store, revisions, write)
    export.line({"bundle": FORMAT_VERSION, "entity": entity, "exported_ms": now_ms})
    waiting, seen = deque([entity]), {entity: None}
    while waiting:
        found = await export.journal(waiting.popleft())
        for child in found if children else ():
            if child not in seen:
                seen[child] = None
                waiting.append(child)
        if len(seen) > BUNDLE_ENTITIES_MAX:
            message = f"`{entity}` has more than {BUNDLE_ENTITIES_MAX:,} children"
            raise UsageError(message, code="bundle.size", hint="export without children")
    export.end()
    return BundleSummary(entity, tuple(seen), export.entries, len(export.definitions))


class _Export:
    """Writes lines and hashes them."""

    def __init__(self, store: Store, revisions: Revisions, write: Callable[[bytes], Any]) -> None:
        self._store = store
        self._revisions = revisions
        self._write = write
        self._hash = blake2b(digest_size=16)
        self._count = 0
        self.entries = 0
        self.definitions: dict[tuple[str, str], Kernel] = {}

    def line(self, value: dict[str, Any]) -> None:
        data = encode(value) + b"\n"
        if len(data) > BUNDLE_LINE_BYTES_MAX:
            raise UsageError(f"a line of the bundle has {len(data):,} bytes", code="bundle.size")
        self._write(data)
        self._hash.update(data)
        self._count += 1

    def end(self) -> None:
        """Write the last line, which is not part of the hash."""
        self._write(encode({"end": self._count, "hash": self._hash.hexdigest()}) + b"\n")

    async def journal(self, entity: str) -> list[str]:
        """Write the journal of an entity, and return its children that exist."""
        loaded = await self._store.load(entity)
        if not isinstance(loaded, Loaded):
            raise await missing_entity(self._store, entity)
        head: dict[str, Any] = {"journal": entity, "version": loaded.version}
        if loaded.snapshot is not None and loaded.snapshot.version == loaded.version:
            head["digest"] = snapshot_digest(loaded.snapshot)
        self.line(head)
        children: list[str] = []
        kind, after = kind_of(entity), 0
        while after < loaded.version:
            limit = min(PAGE_MAX, loaded.version - after)
            records = await self._store.read(entity, after=after, limit=limit)
            if not records:
                raise CorruptionError(f"the journal of `{entity}` ends at version {after}", code="journal.short")
            for record in records:
                kernel = await self._definition(kind, record.entry.revision)
                self.line({"entry": record.entry})
                self.entries += 1
                for effect in record.entry.effects:
                    children += await started_children(self._store, kernel, effect)
            after = records[-1].version
        return children

    async def _definition(self, kind: str, revision: str) -> Kernel:
        """The chart of an entry. Its definition is written before the first entry that names it."""
        found = self.definitions.get((kind, revision))
        if found is None:
            definition = await self._revisions.definition(kind, revision)
            found = await self._revisions.for_reading(kind, revision)
            if definition is None or not found.chart.is_revision(revision):
                message = f"the definition of revision {revision} of `{kind}` is not known here"
                raise UnavailableError(message, code="revision.unknown", hint="load that chart too")
            self.line({"definition": Raw(definition.body), "kind": kind, "revision": revision})
            self.definitions[kind, revision] = found
        return found


# Import


@dataclass(slots=True)
class _Importing:
    """One entity on its way into the store."""

    entity: str
    version: int
    digest: str | None
    present: int
    snapshot: Snapshot | None = None
    invokes: dict[str, Effect] = field(default_factory=dict)


class BundleReader:
    """A bundle whose hash was checked. `lines` reads the file from its start, each time it is called."""

    def __init__(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Check the file. Raises UsageError if it is not a bundle, CorruptionError if it is damaged."""
        self._lines = lines
        self.entity = self._check()

    def _check(self) -> str:
        hashed, count, last, entity = blake2b(digest_size=16), 0, b"", None
        for line in self._lines():
            if count == 0:
                entity = _head(line)
            if count:
                hashed.update(last)
            last, count = line, count + 1
        end = _decode(last) if count > 1 else None
        if entity is None:
            raise UsageError("the file is empty", code="bundle.format", hint=_HINT)
        if end is None or end.end != count - 1 or end.hash != hashed.hexdigest():
            message = "the bundle is cut or was changed: its last line does not fit the lines before it"
            raise CorruptionError(message, code="bundle.damaged", hint="export it again")
        return entity

    def __iter__(self) -> Iterator[_Line]:
        """Yield the lines between the first and the last."""
        last: bytes | None = None
        for number, line in enumerate(self._lines()):
            if last is not None:
                yield _decode(last)
            last = line if number else None


def _head(line: bytes) -> str:
    try:
        found = _lines.decode(line)
    except UNDECODABLE:
        found = _Line()
    if found.bundle is None or found.entity is None:
        raise UsageError("the file is not a bundle", code="bundle.format", hint=_HINT)
    if found.bundle > FORMAT_VERSION:
        message = f"the bundle has format {found.bundle}; this release reads format {FORMAT_VERSION}"
        raise UnavailableError(message, code="bundle.newer", hint="install the release that wrote it")
    return found.entity


def _decode(line: bytes) -> _Line:
    try:
        return _lines.decode(line)
    except UNDECODABLE as error:
        raise CorruptionError(f"a line of the bundle is invalid: {error}", code="bundle.damaged") from error


async def import_bundle(
    store: Store, bundle: BundleReader, revisions: Revisions, *, now_ms: int, with_work: bool = False
) -> BundleSummary:
    """Write the entities of a bundle to a store, and return what was written.

    `revisions` is that of the store, with the functions of each kind.

    Raises ConflictError if an entity exists with other entries, UnavailableError if a function is not registered,
    CorruptionError if an entry or a definition does not match its own hash or name.
    """
    importing = BundleImport(store, revisions, now_ms=now_ms, with_work=with_work)
    for line in bundle:
        await importing.apply(line)
    await importing.finish()
    return importing.summary(bundle.entity)


class BundleImport:
    """Writes the entries of a bundle, one by one."""

    def __init__(self, store: Store, revisions: Revisions, *, now_ms: int, with_work: bool) -> None:
        self.definitions: dict[tuple[str, str], Kernel] = {}
        self._store = store
        self._revisions = revisions
        self._now_ms = now_ms
        self._with_work = with_work
        self._current: _Importing | None = None
        self._entities: list[str] = []
        self._entries = self._present = self._held = 0

    def summary(self, entity: str) -> BundleSummary:
        """Return what was imported."""
        return BundleSummary(
            entity, tuple(self._entities), self._entries, len(self.definitions), self._present, self._held
        )

    async def apply(self, line: _Line) -> None:
        """Apply one line."""
        if line.entry is not None and self._current is not None:
            await self._add_entry(self._current, line.entry)
        elif line.journal is not None and line.version is not None:
            await self.finish()
            await self._start(line.journal, line.version, line.digest)
        elif line.kind is not None and line.revision is not None:
            await self._add_definition(line.kind, line.revision, bytes(line.definition))
        else:
            raise CorruptionError("a line of the bundle has no meaning here", code="bundle.damaged")

    async def _add_definition(self, kind: str, revision: str, data: bytes) -> None:
        """Check a definition, and save it in the store before the first entry that names it."""
        document = read_json(data, source=f"<{kind} {revision}>").document
        compiled = None if document is None else compile_document(document).chart
        definition = None if compiled is None else make_definition(named(compiled))
        if definition is None or definition.kind != kind:
            message = f"the definition of revision {revision} of `{kind}` cannot be read"
            raise CorruptionError(message, code="bundle.definition")
        if revision not in (definition.revision, *definition.names):
            message = f"the definition of revision {revision} of `{kind}` is another one: {definition.revision}"
            raise CorruptionError(message, code="bundle.definition", hint="export it again")
        if self._store.definitions is not None:
            await self._store.definitions.save_definition(definition, now_ms=self._now_ms)
        self.definitions[kind, revision] = await self._revisions.for_reading(kind, revision)

    async def _start(self, entity: str, version: int, digest: str | None) -> None:
        check_entity(entity)
        loaded = await self._store.load(entity)
        present = loaded.version if isinstance(loaded, Loaded) else 0
        if present > version:
            message = f"`{entity}` exists here at version {present}; the bundle ends at version {version}"
            raise ConflictError(message, code="bundle.exists", hint="import it to another store")
        self._current = _Importing(entity, version, digest, present)
        self._entities.append(entity)

    async def _add_entry(self, current: _Importing, entry: Entry) -> None:
        kernel = self.definitions.get((kind_of(current.entity), entry.revision))
        if kernel is None:
            message = f"the bundle has no definition of revision {entry.revision} of `{current.entity}`"
            raise CorruptionError(message, code="bundle.definition")
        before = current.snapshot
        step = repeat_step(kernel, current.entity, before, entry)
        missing = self._revisions.missing_call(kernel)
        if missing is not None:
            raise missing_functions(kernel.chart, (missing,))
        problem = difference(entry, before, step)
        if problem is not None:
            message = f"version {entry.version} of `{current.entity}` does not replay: {problem}"
            hint = "a function of the chart may differ from the one that ran: pass the right one with --chart"
            raise CorruptionError(message, code="bundle.divergence", hint=hint)
        current.snapshot = as_recorded(step.snapshot, entry)
        current.invokes |= {each.key: each for each in entry.effects if each.type == "invoke"}
        waiting = {each.key for each in step.snapshot.invokes}
        current.invokes = {key: each for key, each in current.invokes.items() if key in waiting}
        if entry.version == current.version:
            self._check_end(current, step.snapshot)
        if entry.version <= current.present:
            await self._check_present(current.entity, entry)
            self._present += 1
        else:
            await self._append(current, entry, kernel)

    def _check_end(self, current: _Importing, snapshot: Snapshot) -> None:
        if current.digest is not None and snapshot_digest(snapshot) != current.digest:
            message = f"the entries of `{current.entity}` do not lead to the snapshot that was exported"
            hint = "a function of the chart may differ from the one that ran: pass the right one with --chart"
            raise CorruptionError(message, code="bundle.divergence", hint=hint)

    async def _check_present(self, entity: str, entry: Entry) -> None:
        records = await self._store.read(entity, after=entry.version - 1, limit=1)
        if not records or encode(records[0].entry) != encode(entry):
            message = f"`{entity}` exists here with another entry at version {entry.version}"
            raise ConflictError(message, code="bundle.exists", hint="import it to another store")

    async def _append(self, current: _Importing, entry: Entry, kernel: Kernel) -> None:
        snapshot = current.snapshot
        assert snapshot is not None
        states = kernel.active(snapshot)
        work = WorkDelta()
        if entry.version == current.version and self._store.work is not None:
            work = WorkDelta(created=tuple(self._work(current, snapshot, entry.event.at_ms)))
            self._held += 0 if self._with_work else len(work.created)
        append = Append(
            snapshot.kind,
            snapshot.entity,
            entry.version - 1,
            entry,
            snapshot,
            tuple(each.id for each in states),
            tuple(sorted({tag for each in states for tag in each.tags})),
            work,
        )
        result = await self._store.append(append)
        if not isinstance(result, Appended):
            what = "the key of an entry is used" if isinstance(result, Duplicate) else "it changed during the import"
            if isinstance(result, Pruned):
                what = "it was removed here by retention, and an id is never used again"
            message = f"`{current.entity}` cannot be imported at version {entry.version}: {what}"
            raise ConflictError(message, code="bundle.exists", hint="import it to another store")
        self._entries += 1

    def _work(self, current: _Importing, snapshot: Snapshot, time_ms: int) -> Iterator[Work]:
        """The work of the timers and invokes that are pending; without a time it is not claimed."""
        for timer in snapshot.timers:
            work_id = WorkId("timer", timer.version, timer.ordinal)
            yield Work(work_id, timer.name, {"event": timer.event}, timer.due_ms if self._with_work else None)
        for key, effect in current.invokes.items():
            _, version, ordinal = parse_work_key(key)
            is_child = effect.payload.get("type") in CHART_TYPES
            name = CHILD_WORK if is_child else str(effect.payload.get("src"))
            work_id = WorkId("effect", version, ordinal)
            yield Work(work_id, name, effect.payload, time_ms if self._with_work else None)

    async def finish(self) -> None:
        """End the current entity. Raises CorruptionError if entries are missing."""
        current, self._current = self._current, None
        if current is None:
            return
        version = 0 if current.snapshot is None else current.snapshot.version
        if version != current.version:
            message = f"the journal of `{current.entity}` ends at version {version} of {current.version}"
            raise CorruptionError(message, code="bundle.damaged")
