"""Reading an entity from files, without its lock.

Rule 1: `state.json` is read first, the journal after it: then the journal can only be newer.
Rule 2: a reader may see a record that is not yet flushed; what it sees is a version that the entity had or will have.
Rule 3: damage is never judged from one look without the lock: while it reads, a writer may cut a torn tail and write
over it, and old and new halves make a bad line with good ones behind. So: take the lock, read again from the last good
byte, then judge.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from msgspec import Struct

from interlock.model.record import Record
from interlock.ports.store import Loaded
from interlock.stores.files_names import JOURNAL
from interlock.stores.files_shared import Address, Shared, locked, shard_opened, unavailable
from interlock.stores.files_state import Facts, Kept, Mark
from interlock.stores.files_tail import Tail, beginning, corrupt, read_kept, stands


class Seen(Struct, frozen=True):
    """An entity as one reading found it."""

    kept: Kept | None
    records: tuple[Record, ...]
    mark: Mark
    facts: Facts

    def loaded(self) -> Loaded:
        """The same as the port gives it."""
        snapshot = None if self.kept is None else self.kept.snapshot
        return Loaded(self.mark.version, self.facts.changed_ms, snapshot, self.records)

    def version_of(self, key: str) -> int | None:
        """The version that a key was kept with."""
        for record in self.records:
            if record.key == key:
                return record.version
        return None if self.kept is None else self.kept.known_keys().get(key)

    def durable_version(self) -> int:
        """The last version that the bytes themselves show to be durable: the snapshot, and what a `d` covers."""
        version, end = (0, 0) if self.kept is None else (self.kept.mark.version, self.kept.mark.offset)
        durable = max((each.durable for each in self.records), default=0)
        for record in self.records:
            end += len(record.line)
            if end <= durable:
                version = record.version
        return version


class _Opened(Struct):
    directory: int
    file: int


class Reader:
    """Reads entities of one open store; keeps nothing open and nothing in memory."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._fs = shared.fs
        self._settings = shared.settings

    def load(self, address: Address) -> Seen | None:
        """The snapshot beside the journal and the records after it; None when there is no such entity."""
        with self._opened(address) as opened:
            if opened is None:
                return None
            kept = self._kept(address, opened)
            tail = self._tail(opened, self._beginning(address) if kept is None else kept.mark)
            records = list(tail)
            records += self._judged(address, opened, tail, kept)
        facts = None if kept is None else kept.facts
        if kept is not None:
            self._shared.shapes.learn(kept.snapshot.revision, kept.snapshot.configuration, kept.facts)
        for record in records:
            facts = self._shared.shapes.after_record(facts, record)
        return None if facts is None else Seen(kept, tuple(records), _behind(records, tail, kept), facts)

    def read(self, address: Address, *, start: Mark | None, after: int, limit: int) -> tuple[tuple[Record, ...], Mark]:
        """The verified records after a version, and the mark behind the last of them.

        `start` is a place this process verified before; without one that stands, the reading begins at the beginning.
        """
        with self._opened(address) as opened:
            if opened is None:
                return (), self._beginning(address)
            kept = self._kept(address, opened)
            first = self._beginning(address)
            for mark in (start, None if kept is None else kept.mark):
                if mark is not None and first.version < mark.version <= after and stands(self._fs, opened.file, mark):
                    first = mark
            tail = self._tail(opened, first)
            records: list[Record] = []
            for record in tail:
                if record.version > after:
                    records.append(record)
                if len(records) == limit:
                    return tuple(records), tail.mark
            more = self._judged(address, opened, tail, kept)
            records += [each for each in more if each.version > after]
            return tuple(records[:limit]), first if more else tail.mark

    def entity(self, address: Address) -> str:
        """The id of an entity whose name does not tell it; empty until its first snapshot is kept."""
        with self._opened(address) as opened:
            kept = None if opened is None else self._read_kept(address, opened)
        return "" if kept is None else kept.snapshot.entity

    def size(self, address: Address) -> int:
        """The bytes of a journal; 0 when there is none."""
        with self._opened(address) as opened:
            return 0 if opened is None else self._fs.size(opened.file)

    # Parts

    @contextlib.contextmanager
    def _opened(self, address: Address) -> Iterator[_Opened | None]:
        fs = self._fs
        opened = _Opened(-1, -1)
        try:
            try:
                with shard_opened(fs, address.resources, address.shard) as shard:
                    opened.directory = fs.open_directory(shard, address.name)
                opened.file = fs.open_file(opened.directory, JOURNAL)
            except FileNotFoundError:
                yield None
            else:
                yield opened
        except OSError as error:
            raise unavailable(address.entity, "read", error) from error
        finally:
            for descriptor in (opened.file, opened.directory):
                if descriptor >= 0:
                    with contextlib.suppress(OSError):
                        fs.close(descriptor)

    @contextlib.contextmanager
    def _locked(self, address: Address, opened: _Opened) -> Iterator[None]:
        """Holds the entity's lock; the descriptor is closed by whoever opened it, and the lock goes with it."""
        with locked(self._fs, opened.directory, address.entity, self._settings.lock_ms_max, lambda: None):
            yield

    def _beginning(self, address: Address) -> Mark:
        return beginning(address.entity, tenant=self._settings.tenant, store_key=self._settings.store_key)

    def _tail(self, opened: _Opened, mark: Mark) -> Tail:
        return Tail(self._fs, opened.file, mark, store_key=self._settings.store_key)

    def _read_kept(self, address: Address, opened: _Opened) -> Kept | None:
        return read_kept(self._fs, opened.directory, address.entity or None, store_key=self._settings.store_key)

    def _kept(self, address: Address, opened: _Opened) -> Kept | None:
        """The snapshot, once the journal is seen to hold it. Raises CorruptionError when it does not."""
        kept = self._read_kept(address, opened)
        if kept is None or stands(self._fs, opened.file, kept.mark):
            return kept
        with self._locked(address, opened):
            kept = self._read_kept(address, opened)
            if kept is not None and not stands(self._fs, opened.file, kept.mark):
                raise corrupt(address.entity, kept.mark, "the snapshot of this version is not in the journal")
        return kept

    def _judged(self, address: Address, opened: _Opened, tail: Tail, kept: Kept | None) -> list[Record]:
        """What a second look under the lock adds, when the first one ended in what may be damage."""
        if tail.damaged(kept) is None:
            return []
        with self._locked(address, opened):
            again = self._tail(opened, tail.mark)
            records = list(again)
            why = again.damaged(self._read_kept(address, opened))
        if why is not None:
            raise corrupt(address.entity, again.mark, why)
        return records


def _behind(records: list[Record], tail: Tail, kept: Kept | None) -> Mark:
    """The mark behind all records, those of a second look too."""
    if not records or records[-1].version == tail.mark.version:
        return tail.mark
    start = 0 if kept is None else kept.mark.offset
    return Mark(records[-1].version, start + sum(len(each.line) for each in records), records[-1].head)
