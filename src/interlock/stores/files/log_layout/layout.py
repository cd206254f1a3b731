"""The file store of layout C as plain calls: many steps of many entities are kept by one write and one flush.

A batch goes to the write-ahead log (`files_wal`); the journals are written from it later, at a checkpoint, with the
very records that the log has. So a step costs a part of a flush, and an entity's directory is what it is in layout A.

Rule 1: one process owns the log for as long as it has the store open, by the lock of `wal/`. Others read; their appends
are told who the owner is, or take over when it is gone. Taking over means to write the journals from the log first.
Rule 2: steps are checked against a table in memory, including the earlier steps of the same batch. The table advances
after the flush: what it says is durable, and so is every answer, duplicates too. A batch that cannot be kept fails.
Rule 3: a checkpoint writes and flushes every journal, then says so in `checkpoint.json`, then removes the log's older
segments. Writing a journal from the log passes over what is there already, so it may be done again after any crash.
Rule 4: the callers of `commit`, `settle`, `adopt` and `release` wait for each other; readers wait for nobody.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from threading import Lock

from msgspec import Struct

from interlock.errors import InterlockError, RejectedError, UnavailableError, UsageError
from interlock.model.journal.record import JournalRecord, chain_start, encode_record
from interlock.model.limits import ENTRY_BYTES_MAX
from interlock.ports.store import PAGE_MAX, Append, Appended, Conflict, Duplicate, EntityQuery, KeyExpired, Loaded
from interlock.stores.files.direct_layout import DirectLayout, ListedEntity
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.durable_io import EntityDirectory, Settings, unavailable
from interlock.stores.files.journal.journal import ENVELOPE_BYTES_MAX
from interlock.stores.files.journal.recent_keys import RecentKeys
from interlock.stores.files.journal.snapshot_file import ListFacts, Position
from interlock.stores.files.log_layout.follower import Follower
from interlock.stores.files.log_layout.wal import WHAT, Wal
from interlock.stores.files.root import WAL, Root

LIVES_MAX = 10_000
"""Entities in the table beside those that wait for a checkpoint; others are read from their journals again."""

WAL_GROWTH_MAX = 4
"""How many times the length that calls for a checkpoint the log may have while checkpoints fail."""

Answer = Appended | Duplicate | Conflict | KeyExpired

_logger = logging.getLogger(__name__)


class Life(Struct):
    """An entity as the table has it. `durable` are the bytes of its journal at the last checkpoint, `waiting` the
    records since.
    """

    version: int
    head: str
    durable: int
    keys: RecentKeys
    facts: ListFacts | None
    loaded: Loaded | None
    waiting: list[JournalRecord] = []
    listed: ListedEntity | None = None


class _Staged(Struct):
    """What a batch adds to a life."""

    life: Life
    records: list[JournalRecord]
    appends: list[Append]
    keys: dict[str, int]

    @property
    def version(self) -> int:
        return self.records[-1].version if self.records else self.life.version

    @property
    def head(self) -> str:
        return self.records[-1].head if self.records else self.life.head


class BatchedJournals(DirectLayout):
    """All journals below one root of layout C."""

    def __init__(self, root: Root, fs: FileSystem, settings: Settings, *, count_max: int | None = None) -> None:
        super().__init__(root, fs, settings, count_max=count_max)
        self._lives: OrderedDict[str, Life] = OrderedDict()
        self._wal: Wal | None = None
        self._log = -1
        self._due = settings.wal_bytes_max
        self._writing = Lock()
        self._follower = Follower(fs, root.settings)
        try:
            self._open_log()
            if root.read_only is None:
                with contextlib.suppress(_OwnedError):
                    self._own()
        except BaseException:
            self.close()
            raise

    # Owning the log

    def _open_log(self) -> None:
        try:
            self._log = self._fs.open_directory(self._root.directory, WAL)
        except OSError as error:
            raise unavailable(WHAT, "open", error) from error
        self._follower.directory = self._log

    def _own(self) -> Wal:
        """The log, open for writing. Raises UnavailableError when another process has it."""
        if self._wal is not None:
            return self._wal
        self._root.check_writable()
        try:
            self._fs.lock(self._log, 0)
        except TimeoutError as error:
            message = f"the store is written by {error}"
            hint = "layout C has one writer: send through that process, or end it"
            raise _OwnedError(message, code="store.owned", hint=hint) from error
        except OSError as error:
            raise unavailable(WHAT, "lock", error) from error
        try:
            self._wal = self._recovered()
        except OSError as error:
            self._give_up()
            raise unavailable(WHAT, "recover", error) from error
        except BaseException:
            self._give_up()
            raise
        return self._wal

    def _give_up(self) -> None:
        with contextlib.suppress(OSError):
            self._fs.unlock(self._log)

    def _recovered(self) -> Wal:
        """Rule 1: everything that the log still has is written to the journals; then the log begins anew."""
        wal = Wal(self._fs, self._log, root=self._root.path, store_key=self.shared.settings.store_key)
        lines: dict[str, list[bytes]] = {}
        for line in wal.recovered():
            lines.setdefault(line.entity, []).append(line.record)
        for entity, records in lines.items():
            with self._handles.borrowed(self._root.address(entity)) as journal:
                journal.take_over(records, None, None)
        wal.checkpoint(wal.begin())
        return wal

    # Writing

    def append(self, append: Append) -> Answer:
        """Keep one step, if the entity still is at the expected version and its key is new."""
        (answer,) = self.commit([append])
        self.settle()
        if isinstance(answer, InterlockError):
            raise answer
        return answer

    def append_at_once(self, append: Append) -> None:
        """Never: an entry goes through the log."""

    def commit(self, appends: list[Append]) -> list[Answer | InterlockError]:
        """Keeps a batch; an answer or an error for each, in order. All that it says is durable."""
        with self._writing:
            try:
                wal = self._own()
                wal.check()
                self._check_length(wal)
            except InterlockError as error:
                return [error] * len(appends)
            self._trim()
            staged: dict[str, _Staged] = {}
            answers = [self._answer(append, staged) for append in appends]
            batch = [(entity, each.line) for entity, stage in staged.items() for each in stage.records]
            try:
                if batch:
                    wal.append(batch)
                else:
                    wal.check_name()  # a known key is an acknowledgement, too
            except UnavailableError as error:
                return [each if isinstance(each, InterlockError) else error for each in answers]
            self._advance(staged)
            return answers

    def _check_length(self, wal: Wal) -> None:
        if wal.offset >= WAL_GROWTH_MAX * self.shared.settings.wal_bytes_max:
            message = f"{WHAT} has {wal.offset:,} bytes, and no checkpoint succeeds"
            raise UnavailableError(message, code="wal.full", hint="see the log for why the journals cannot be written")

    def _answer(self, append: Append, staged: dict[str, _Staged]) -> Answer | InterlockError:
        try:
            return self._decided(append, staged)
        except InterlockError as error:
            return error

    def _decided(self, append: Append, staged: dict[str, _Staged]) -> Answer:
        """What a step comes to after those before it in the batch."""
        entry = append.entry
        stage = staged.get(append.entity)
        if stage is None:
            stage = _Staged(self._life(append.entity), [], [], {})
        known = stage.life.keys.get(entry.key) or stage.keys.get(entry.key)
        if known is not None:
            return Duplicate(known)
        if append.sent_ms is not None and stage.life.keys.may_have_had(append.sent_ms):
            return KeyExpired(stage.version, stage.life.keys.forgotten_ms)
        if stage.version != append.expected:
            return Conflict(stage.version)
        if entry.version != stage.version + 1:
            message = f"entry {entry.version} cannot follow version {stage.version} of `{append.entity}`"
            raise UsageError(message, code="entry.version")
        key = self.shared.settings.store_key
        record = encode_record(entry, durable=stage.life.durable, previous=stage.head, store_key=key)
        if len(record.line) > ENTRY_BYTES_MAX + ENVELOPE_BYTES_MAX:
            raise RejectedError(f"the entry has more than {ENTRY_BYTES_MAX:,} bytes", code="entry.size")
        stage.records.append(record)
        stage.appends.append(append)
        stage.keys[entry.key] = entry.version
        staged[append.entity] = stage
        return Appended(record.version, record.head)

    def _life(self, entity: str) -> Life:
        """The entity in the table; only the writer puts one there, so nothing older can ever replace it."""
        address = self._root.address(entity)
        self.shared.check_poison(address)
        life = self._lives.get(entity)
        if life is None:
            life = self._read_life(address)
            with self._guard:
                self._lives[entity] = life
        return life

    def _read_life(self, address: EntityDirectory) -> Life:
        seen = self._reader.load(address)
        if seen is None:
            settings = self.shared.settings
            head = chain_start(address.entity, tenant=settings.tenant, store_key=settings.store_key)
            return Life(0, head, 0, RecentKeys(), None, None)
        keys = RecentKeys() if seen.kept is None else seen.kept.known_keys()
        for record in seen.records:
            keys.remember(record.key, record.version, record.entry.event.time_ms)
        return Life(seen.mark.version, seen.mark.head, seen.mark.offset, keys, seen.facts, seen.loaded())

    def _advance(self, staged: dict[str, _Staged]) -> None:
        """Rule 2: the table says what is durable."""
        for entity, stage in staged.items():
            life, last = stage.life, stage.appends[-1]
            facts = life.facts
            for append in stage.appends:
                facts = self.shared.shapes.after_append(facts, append)
            assert facts is not None
            with self._guard:
                for record in stage.records:
                    life.keys.remember(record.key, record.version, record.entry.event.time_ms)
                life.version, life.head, life.facts = stage.version, stage.head, facts
                life.loaded = Loaded(stage.version, facts.changed_ms, last.snapshot)
                life.waiting.extend(stage.records)
                life.listed = ListedEntity.of(entity, Position(life.version, -1, life.head), facts, last.snapshot)
                self._lives.move_to_end(entity)

    # Checkpoints

    def settle(self, *, now: bool = False) -> None:
        """Makes a checkpoint when it is due. Its errors are logged, never raised: what was kept is in the log."""
        with self._writing:
            wal = self._wal
            if wal is None or wal.poison is not None or wal.offset == 0:
                return
            if not now and wal.offset < self._due:
                return
            try:
                self._checkpoint(wal)
                self._due = self.shared.settings.wal_bytes_max
            except (InterlockError, OSError) as error:
                self._due = wal.offset + self.shared.settings.wal_bytes_max  # not again at every step
                _logger.warning("a checkpoint failed", extra={"error": str(error), "wal_bytes": wal.offset})

    def _checkpoint(self, wal: Wal) -> None:
        """Rule 3."""
        for entity, life in list(self._lives.items()):
            if life.waiting:
                self._write_journal(entity, life)
        wal.checkpoint(wal.begin())

    def _trim(self) -> None:
        """Forgets what was not asked for lately and does not wait for a checkpoint."""
        excess = len(self._lives) - LIVES_MAX
        if excess > 0:
            idle = [entity for entity, life in islice(self._lives.items(), 2 * excess) if not life.waiting]
            with self._guard:
                for entity in idle[:excess]:
                    del self._lives[entity]

    def _write_journal(self, entity: str, life: Life) -> None:
        loaded = life.loaded
        snapshot = None if loaded is None else loaded.snapshot
        with self._handles.borrowed(self._root.address(entity)) as journal:
            mark = journal.take_over([each.line for each in life.waiting], snapshot, life.facts)
        with self._guard:
            life.waiting, life.durable, life.listed = [], mark.offset, None

    # Records that come and go

    def adopt(self, append: Append, records: tuple[JournalRecord, ...]) -> int:
        """Keep verified records as they are, byte for byte, after those already here; give the version reached."""
        with self._writing, self._written(append.entity):
            return super().adopt(append, records)

    def release(self, entity: str, *, version: int, archive: str) -> bool:
        """Drop the records of an ended entity that is still at this version; False when it is not."""
        with self._writing, self._written(entity):
            return super().release(entity, version=version, archive=archive)

    @contextlib.contextmanager
    def _written(self, entity: str) -> Iterator[None]:
        """The entity has its journal, and is read anew afterwards."""
        self._own().check()
        life = self._lives.get(entity)
        if life is not None and life.waiting:
            self._write_journal(entity, life)
        try:
            yield
        finally:
            with self._guard:
                self._lives.pop(entity, None)

    # Reading

    def load(self, entity: str, key: str | None = None) -> Loaded | Duplicate | None:
        """The entity as it is; None when there is none. With `key`: `Duplicate` when that key was kept before."""
        address = self._root.address(entity)
        if self._wal is None:
            found = self._follower.load(entity, key, lambda: self._reader.load(address))
        else:
            found = self._known(address, key)
        if isinstance(found, Duplicate):
            self._root.check_path()
        return found

    def _known(self, address: EntityDirectory, key: str | None) -> Loaded | Duplicate | None:
        """The same for the owner of the log: from the table, or from the journal."""
        with self._guard:
            life = self._lives.get(address.entity)
            if life is not None:
                known = None if key is None else life.keys.get(key)
                return life.loaded if known is None else Duplicate(known)
        seen = self._reader.load(address)
        known = None if key is None or seen is None else seen.version_of(key)
        return Duplicate(known) if known is not None else (None if seen is None else seen.loaded())

    def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """The verified records after a version, in order. Raises CorruptionError at the first bad link."""
        self._root.address(entity)
        waiting = self._waiting(entity)  # first: what leaves the log meanwhile is in the journal then
        records = super().read(entity, after=after, limit=limit)
        last = records[-1].version if records else after
        more = [each for each in waiting if each.version > last]
        return (*records, *more)[: max(0, min(limit, PAGE_MAX))]

    def _waiting(self, entity: str) -> tuple[JournalRecord, ...]:
        if self._wal is None:
            return self._follower.records(entity, lambda: self._reader.load(self._root.address(entity)))
        with self._guard:
            life = self._lives.get(entity)
            return () if life is None else tuple(life.waiting)

    # Lists

    def _in_memory(self) -> dict[str, ListedEntity]:
        with self._guard:
            return {entity: life.listed for entity, life in self._lives.items() if life.listed is not None}

    def _entities(self, query: EntityQuery) -> Iterator[str]:
        others = {*self._in_memory(), *(self._follower.entities() if self._wal is None else ())}
        beginning = f"{query.kind}/{query.prefix or ''}"
        here = {entity for entity in others if entity.startswith(beginning)}
        here.update(super()._entities(query))  # last: what leaves the log meanwhile has its directory then
        yield from here

    def names(self) -> tuple[str, ...]:
        """Every entity that has a folder or stands in the log, readable or not, sorted."""
        others = {*self._in_memory(), *(self._follower.entities() if self._wal is None else ())}
        return tuple(sorted({*super().names(), *others}))

    def kinds(self) -> tuple[str, ...]:
        """The kinds that there are entities of, sorted."""
        others = {*self._in_memory(), *(self._follower.entities() if self._wal is None else ())}
        return tuple(sorted({*super().kinds(), *(each.partition("/")[0] for each in others)}))

    def _seen(self, entity: str) -> ListedEntity | None:
        with self._guard:
            life = self._lives.get(entity)
            if life is not None and life.listed is not None:
                return life.listed
        return super()._seen(entity) if self._wal is not None else self._followed(entity)

    def _followed(self, entity: str) -> ListedEntity | None:
        """The same beside the owner, where a journal that did not grow says nothing about the log."""
        address = self._root.address(entity)
        seen = self._follower.seen(entity, lambda: self._reader.load(address), self.shared.shapes)
        return None if seen is None else self._list_seen(address, seen)

    # The end

    def close(self) -> None:
        """Writes the journals and closes everything."""
        if self._wal is not None:
            self.settle(now=True)
            self._wal.close()
            self._wal = None
        super().close()
        self._close_log()

    def abandon(self) -> None:
        """In a forked child: the log is the parent's."""
        self._writing = Lock()
        self._follower.abandon()
        super().abandon()
        if self._wal is not None:
            self._wal.close()
            self._wal = None
        self._lives = OrderedDict()
        self._close_log()
        self._open_log()

    def _close_log(self) -> None:
        if self._log >= 0:
            with contextlib.suppress(OSError):
                self._fs.close(self._log)
        self._log = -1


class _OwnedError(UnavailableError):
    """Another process has the log."""


def opened_journals(
    root: str, fs: FileSystem, settings: Settings, *, layout: str | None = None, count_max: int | None = None
) -> DirectLayout:
    """The journals below a root, in the layout it has; a new root gets the one that is asked for, or A."""
    opened = Root(fs, root, settings, layout=layout)
    if opened.layout == "C":
        return BatchedJournals(opened, fs, settings, count_max=count_max)
    return DirectLayout(opened, fs, settings, count_max=count_max)
