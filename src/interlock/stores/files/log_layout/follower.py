"""Reading a store of layout C beside its owner: what the write-ahead log has and the journals do not yet have.

Rule 1: the log is read first, the journal after it: what leaves the log meanwhile is in the journal then.
Rule 2: a reader may see a record that is not yet flushed, as in layout A. But it says `Duplicate` only for what a later
line, or the journal, shows to be durable: that answer is an acknowledgement.
Rule 3: nothing is judged here. A line that does not read ends the log for a reader; the owner tells torn from damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from msgspec import Struct
from msgspec.structs import replace

from interlock.model.journal.record import InvalidRecord, JournalRecord, chain_start, decode_record
from interlock.ports.store import Duplicate, Loaded
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.durable_io import Settings, unavailable
from interlock.stores.files.journal.snapshot_file import KnownConfigurations, Position
from interlock.stores.files.log_layout.wal import WHAT, Line, Scan, segment_name, segment_numbers
from interlock.stores.files.reader import EntityView

LOOKS_MAX = 3
"""How often a list of segments is made again because one of them is gone: a checkpoint passes in a moment."""

Load = Callable[[], EntityView | None]


class _Segment(Struct):
    scan: Scan
    lines: dict[str, list[Line]]


class Follower:
    """What the log has, as far as it was read; each question reads on from there."""

    def __init__(self, fs: FileSystem, settings: Settings) -> None:
        self.directory = -1
        self._fs = fs
        self._settings = settings
        self._segments: dict[int, _Segment] = {}
        self._guard = Lock()

    def abandon(self) -> None:
        """In a forked child: reads anew; a thread of the parent may have held the lock, in the middle of a reading."""
        self._segments, self._guard = {}, Lock()

    def entities(self) -> set[str]:
        """Those that the log has records of."""
        with self._guard:
            self._refresh()
            return {entity for segment in self._segments.values() for entity in segment.lines}

    def records(self, entity: str, load: Load) -> tuple[JournalRecord, ...]:
        """The records behind those that the journal has."""
        return self._after(entity, load)[1]

    def load(self, entity: str, key: str | None, load: Load) -> Loaded | Duplicate | None:
        """The entity as it is, or `Duplicate` when its key is known to be durable."""
        seen, more, durable = self._after(entity, load)
        if key is not None:
            found = {record.key: record.version for record in more if record.version <= durable}
            known = found.get(key) or (None if seen is None else seen.version_of(key))
            if known is not None:
                return Duplicate(known)
        if seen is None:
            return Loaded(more[-1].version, more[-1].entry.event.time_ms, None, more) if more else None
        time_ms = more[-1].entry.event.time_ms if more else seen.facts.changed_ms
        loaded = seen.loaded()
        return Loaded(loaded.version + len(more), time_ms, loaded.snapshot, loaded.records + more)

    def seen(self, entity: str, load: Load, shapes: KnownConfigurations) -> EntityView | None:
        """The same for lists."""
        seen, more, durable = self._after(entity, load)
        facts = None if seen is None else seen.facts
        for record in more:
            facts = shapes.after_record(facts, record)
        if facts is None:
            return None
        last = more[-1] if more else None
        if seen is None:
            assert last is not None
            return EntityView(None, more, Position(last.version, -1, last.head), facts, durable)
        mark = seen.mark if last is None else Position(last.version, -1, last.head)
        return replace(seen, records=seen.records + more, mark=mark, facts=facts)

    def _after(self, entity: str, load: Load) -> tuple[EntityView | None, tuple[JournalRecord, ...], int]:
        """The entity's journal, the records that the log has behind it, and which version of them is durable."""
        with self._guard:
            self._refresh()
            found = [
                (line, line.end <= segment.scan.durable)
                for segment in self._segments.values()
                for line in segment.lines.get(entity, ())
            ]
        seen = load()
        settings = self._settings
        head = chain_start(entity, tenant=settings.tenant, store_key=settings.store_key)
        version, durable = 0, 0
        if seen is not None:
            head, version, durable = seen.mark.head, seen.mark.version, seen.mark.version
        records: list[JournalRecord] = []
        for line, is_durable in found:
            record = decode_record(line.record, previous=head, version=version + 1, store_key=settings.store_key)
            if isinstance(record, InvalidRecord):
                continue  # the journal has it already
            head, version = record.head, record.version
            durable = version if is_durable else durable
            records.append(record)
        return seen, tuple(records), durable

    def _refresh(self) -> None:
        try:
            for _ in range(LOOKS_MAX):
                numbers = segment_numbers(self._fs.names(self.directory))
                self._segments = {number: self._segments.get(number) or self._begun(number) for number in numbers}
                if all(self._read_on(self._segments[number]) for number in numbers):
                    return
        except OSError as error:
            raise unavailable(WHAT, "read", error) from error

    def _begun(self, number: int) -> _Segment:
        return _Segment(Scan(number, store_key=self._settings.store_key), {})

    def _read_on(self, segment: _Segment) -> bool:
        """Whether the segment is still there. One whose end changed under us, by an undone batch, is read anew."""
        try:
            file = self._fs.open_file(self.directory, segment_name(segment.scan.number))
        except FileNotFoundError:
            return False
        try:
            self._take(segment, file)
            if segment.scan.rest or self._fs.size(file) < segment.scan.offset:
                segment.scan, segment.lines = Scan(segment.scan.number, store_key=self._settings.store_key), {}
                self._take(segment, file)
        finally:
            self._fs.close(file)
        return True

    def _take(self, segment: _Segment, file: int) -> None:
        for line in segment.scan.lines(self._fs, file):
            segment.lines.setdefault(line.entity, []).append(line)
