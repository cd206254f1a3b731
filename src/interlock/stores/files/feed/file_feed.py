"""The feed of a root: the entries of all entities, in an order that is made when they are found.

Journals of different entities have no common order, so a log gives them one (`order_log`): a reader of the feed adds
what has grown since. The entries of one entity come in the order of their versions; those of different entities come
about in the order in which they were written.

Rule 1: what has grown is found by hints of the writers (`hints`) and by a walk of all entities: until hints are trusted
at each read, then at most every `WALK_SECONDS`, and for at most a twentieth of the time.
Entries that a walk finds are put in the order of their times, if they are not too many.
Rule 2: a version gets a position when it is durable: by a hint, or by a flush under the entity's lock. A reader may
see a record that its writer takes back (`reader`, rule 2); such a record gets no position.
Rule 3: a journal that cannot be read is logged and left out until it can be read. But an entry that has a position
and is missing or damaged stops the feed there: it is never passed over, unless it was released to an archive.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from threading import Lock

from interlock.errors import ArchivedError, CompactedError, CorruptionError, InterlockError, UsageError
from interlock.model.entity_id import kind_of
from interlock.model.journal.record import JournalRecord
from interlock.ports.reading.journal_feed import (
    FeedEntry,
    FeedPage,
    cursor_ahead,
    invalid_feed_cursor,
    numbered_cursor,
    read_numbered_cursor,
)
from interlock.ports.store import PAGE_MAX
from interlock.stores.files.durable_io import (
    LOCKED,
    POISONED,
    DurableIO,
    EntityDirectory,
    is_entity_error,
    unavailable,
)
from interlock.stores.files.entity_list import EntityList
from interlock.stores.files.feed.hints import Growth, HintReader
from interlock.stores.files.feed.order_log import WHAT, OrderLine, OrderLog
from interlock.stores.files.journal.line_formats import Position
from interlock.stores.files.journal.open_journals import OpenJournals
from interlock.stores.files.reader import EntityReader
from interlock.stores.files.root import Root
from interlock.stores.files.tombstones import Tombstones

SCHEME = "files"

WALK_SECONDS = 30.0
"""How often all entities are walked: an entry whose hint was lost waits for so long at most."""

WALK_SHARE = 20
"""The pause after a walk is at least this many times its length."""

TIMED_MAX = 10_000
"""Entries of one walk whose times are read, about a second. Of more, those of each entity stay together."""

_LEFT_OUT = frozenset({LOCKED, POISONED})
"""Codes of errors that concern one entity: its next hint, or the next walk, tries again."""

_logger = logging.getLogger(__name__)


class FileFeed:
    """The feed of one root, in one process. Safe for several threads."""

    def __init__(
        self,
        io: DurableIO,
        root: Root,
        journals: OpenJournals,
        reader: EntityReader,
        entities: EntityList,
        tombstones: Tombstones,
    ) -> None:
        self._fs = io.fs
        self._root = root
        self._journals = journals
        self._reader = reader
        self._entities = entities
        self._tombstones = tombstones
        self._log = OrderLog(io, root)
        self._hints = HintReader(io.fs, self._log.path)
        self._ends: dict[str, Position] = {}
        self._next_walk = float("-inf")
        self._log_id = ""
        self._guard = Lock()

    # Reading

    def read(self, after: str | None, kinds: tuple[str, ...] | None, limit: int) -> FeedPage:
        """Return the entries after a cursor. Those of other kinds are passed over."""
        with self._guard:
            position = self._open(after)
            if self._log.last - position <= limit:
                self._extend()
            lines = self._log.read(position + 1, limit)
            scheme, newest = self._scheme(), self._log.last
        wanted = [each for each in _parts(lines, position, limit) if kinds is None or kind_of(each.e) in kinds]
        read_to = min(lines[-1].last, position + limit) if lines else position
        records = self._read_records(wanted)
        entries = tuple(
            FeedEntry(line.e, record.entry, numbered_cursor(scheme, line.p + version - line.a), record.head)
            for line in wanted
            for version in range(line.a, line.b + 1)
            if (record := records.get((line.e, version))) is not None
        )
        return FeedPage(entries, numbered_cursor(scheme, read_to), is_last=read_to >= newest)

    def cursor_at(self, time_ms: int) -> str:
        """Return the cursor before the entries from this time on."""
        with self._guard:
            self._open(None)
            self._extend()
            return numbered_cursor(self._scheme(), self._log.position_at(time_ms))

    def _open(self, after: str | None) -> int:
        """Open the log, and return the position that a cursor names in it."""
        if after is not None and not after.startswith(f"{SCHEME}-"):
            raise invalid_feed_cursor(after)
        self._log.refresh()
        if self._log.id != self._log_id:
            self._log_id, self._ends = self._log.id, {}
            self._hints.close()
        position = read_numbered_cursor(self._scheme(), after)
        if position > self._log.last:
            raise cursor_ahead(position, self._log.last)
        return position

    def _scheme(self) -> str:
        return f"{SCHEME}-{self._log.id}"

    def _read_records(self, lines: list[OrderLine]) -> dict[tuple[str, int], JournalRecord]:
        """The records of these lines. The lines of one entity follow each other, so each journal is read once."""
        ranges: dict[str, tuple[int, int]] = {}
        for line in lines:
            first, _ = ranges.get(line.e, (line.a, 0))
            ranges[line.e] = (first, line.b)
        return {
            (entity, record.version): record
            for entity, (first, last) in ranges.items()
            for record in self._records(entity, first, last)
        }

    def _records(self, entity: str, first: int, last: int) -> Iterator[JournalRecord]:
        """The records of an entity, without those that were released or removed. Rule 3."""
        address = self._root.address(entity)
        while first <= last:
            try:
                page = self._reader.read(address, after=first - 1, limit=min(PAGE_MAX, last - first + 1))
            except ArchivedError:
                return
            except CompactedError as error:
                first = error.since + 1
                continue
            if not page:
                if self._tombstones.find(address) is not None:
                    return
                raise _journal_behind(entity, first)
            yield from page
            first = page[-1].version + 1

    # Finding what has grown

    def _extend(self) -> None:
        """Give positions to everything that is durable by now (rule 1)."""
        try:
            growths = self._hints.take(self._log.directory)
        except OSError as error:
            raise unavailable(WHAT, "look", error) from error
        if not self._hints.is_trusted or self._fs.seconds() >= self._next_walk:
            growths += self._walk()
        if growths:
            self._log.extend(growths)

    def _walk(self) -> list[Growth]:
        start = self._fs.seconds()
        with self._hints.walking():
            found = [growth for entity in self._entities.names() if (growth := self._try_growth(entity)) is not None]
        if sum(version - self._log.versions.get(entity, 0) for entity, version, _ in found) <= TIMED_MAX:
            found = [each for growth in found for each in self._timed(*growth)]
        now = self._fs.seconds()
        self._next_walk = now + max(WALK_SECONDS, WALK_SHARE * (now - start))
        return sorted(found, key=lambda each: (each[2], each[0], each[1]))

    def _timed(self, entity: str, version: int, time_ms: int) -> Iterator[Growth]:
        """A growth as one for each of its entries, with the time of each."""
        last = 0
        with contextlib.suppress(CorruptionError):  # the reader of these entries gets the error
            for record in self._records(entity, self._log.versions.get(entity, 0) + 1, version):
                last = record.version
                yield entity, last, record.entry.event.time_ms
        if last < version:  # released to an archive, or damaged
            yield entity, version, time_ms

    def _try_growth(self, entity: str) -> Growth | None:
        try:
            return self._growth(self._root.address(entity)) if "/" in entity else None
        except InterlockError as error:
            if not is_entity_error(error) and error.code not in _LEFT_OUT:
                raise
            facts = {"entity_id": entity, "code": error.code, "error": error.message}
            _logger.warning("an unreadable journal is left out of the feed", extra=facts)
            return None

    def _growth(self, address: EntityDirectory) -> Growth | None:
        """How far the journal of an entity is durable (rule 2); None when all of that has a position."""
        entity, end = address.entity, self._ends.get(address.entity)
        known = self._log.versions.get(entity, 0)
        if end is not None and end.version <= known and self._reader.is_end(address, end):
            return None
        view = self._reader.load(address)
        if view is None:
            return None
        if view.position.version < known:
            raise _journal_behind(entity, known)
        self._ends[entity] = view.position
        version, time_ms = view.position.version, view.facts.changed_ms
        opened = self._journals.peek(address)
        if version > max(known, view.durable_version(), 0 if opened is None else opened.durable_version()):
            with self._journals.using(address) as journal:
                version, time_ms = journal.confirm_all()
        return (entity, version, time_ms) if version > known else None

    # Closing

    def close(self) -> None:
        """Close all files."""
        self._guard = Lock()  # in a forked child: a thread of the parent may hold it
        self._log.close()
        self._hints.close()
        self._ends = {}


def _parts(lines: list[OrderLine], position: int, limit: int) -> Iterator[OrderLine]:
    """These lines without the positions up to `position`, and without those that are more than `limit` after it."""
    for each in lines:
        first, last = max(each.p, position + 1), min(each.last, position + limit)
        if first <= last:
            yield OrderLine(first, each.e, each.a + first - each.p, each.a + last - each.p, each.m)


def _journal_behind(entity: str, version: int) -> UsageError:
    message = f"the feed has version {version} of `{entity}`, which is not in its journal: the store is an older copy"
    hint = "delete the folder `feed` of the store, and read the feed from its start into a new table"
    return UsageError(message, code="feed.ahead", hint=hint)
