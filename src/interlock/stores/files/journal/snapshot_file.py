"""`state.json`: a snapshot beside its journal. A cache for whoever loads, and a witness of what was durable.

    {<the snapshot's own fields>,"store":{<where in the journal, recent keys, facts for lists>},"h":"<32 hex>"}

Rule 1: it is written after its entry is durable, under the entity's lock; so a journal that does not reach it, or
does not hold it, was damaged.
Rule 2: bytes that do not carry their own hash are no snapshot and no witness: they are ignored, never an error.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from interlock.model.codec import encode
from interlock.model.event import Event
from interlock.model.journal.record import HASH_HEX, JournalRecord
from interlock.model.snapshot import Snapshot
from interlock.ports.store import Append
from interlock.stores.files.journal.recent_keys import NO_TIMES, RecentKeys, Times

FORMAT = 1
KEYS_STEP = 2_500
"""Keys, about 100 KiB of `state.json`, with each of which snapshots become rarer."""

NO_WORK = b"[]"
_NO_WORK = Raw(NO_WORK)

_END = len(',"h":""}\n') + HASH_HEX


class Position(Struct, frozen=True):
    """A verified place in a journal: behind the record of this version, in the segment that begins with another.

    `beside` are the bytes before it, in this segment, of lines that keep work and are no records.
    """

    version: int
    offset: int
    head: str
    segment: int = 1
    beside: int = 0

    @property
    def ending(self) -> bytes:
        """How the line before this place ends: every kind of line has the head of the chain as its last field."""
        return b'"%b"}\n' % self.head.encode()


class ListFacts(Struct, frozen=True, omit_defaults=True):
    """What lists ask for: when the entity was made and changed, since when it is in each state, its tags, its end."""

    created_ms: int
    changed_ms: int
    entered_ms: dict[str, int]
    tags: tuple[str, ...] = ()
    ended_ms: int | None = None


class StoredSnapshot(Struct, frozen=True):
    """A snapshot as kept, with its place in the journal and the keys up to there.

    The keys stay encoded: they are most of the file, and most readers ask for none. So does unfinished work.
    """

    snapshot: Snapshot
    mark: Position
    facts: ListFacts
    keys: bytes
    work: bytes = NO_WORK
    times: Times = NO_TIMES

    def known_keys(self) -> RecentKeys:
        """The keys and their versions, oldest first."""
        return RecentKeys.decoded(self.keys, self.times)


class _Store(Struct, omit_defaults=True):
    format: int
    segment: int
    offset: int
    head: str
    facts: ListFacts
    keys: Raw
    beside: int = 0
    work: Raw = _NO_WORK
    times: Times = NO_TIMES


class _File(Struct):
    store: _Store


_files = msgspec.json.Decoder(_File)
_snapshots = msgspec.json.Decoder(Snapshot)


def encode_snapshot_file(kept: StoredSnapshot, *, store_key: bytes = b"") -> bytes:
    """The bytes of `state.json`."""
    mark = kept.mark
    work = _NO_WORK if kept.work == NO_WORK else Raw(kept.work)  # the very same: only then it is left out
    place = (mark.segment, mark.offset, mark.head)
    store = encode(_Store(FORMAT, *place, kept.facts, Raw(kept.keys), mark.beside, work, kept.times))
    body = encode(kept.snapshot)[:-1] + b',"store":' + store
    return b'%b,"h":"%b"}\n' % (body, _own_hash(body, store_key))


def decode_snapshot_file(data: bytes, entity: str | None, *, store_key: bytes = b"") -> StoredSnapshot | None:
    """What these bytes keep of an entity; None when they are damaged, or another entity's."""
    body = data[:-_END]
    if data[-_END:] != b',"h":"%b"}\n' % _own_hash(body, store_key):
        return None
    try:
        store = _files.decode(data).store
        snapshot = _snapshots.decode(data)
    except msgspec.MsgspecError:
        return None
    if snapshot.entity != (entity or snapshot.entity) or store.format != FORMAT:
        return None
    mark = Position(snapshot.version, store.offset, store.head, store.segment, store.beside)
    return StoredSnapshot(snapshot, mark, store.facts, bytes(store.keys), bytes(store.work), store.times)


def apart(every: int, keys: int) -> int:
    """How many versions snapshots are apart: with many keys more, or they would cost more than the entries."""
    return every * (1 + keys // KEYS_STEP)


def _own_hash(body: bytes, store_key: bytes) -> bytes:
    return blake2b(body, key=store_key, digest_size=16).hexdigest().encode()


class KnownConfigurations:
    """What a configuration stands for: all active states, and tags. A journal names the atomic states only.

    It is learned from appends and snapshots; a configuration never seen stands for itself, without tags.
    """

    LIMIT = 10_000

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str, ...]], tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def learn(self, revision: str, configuration: tuple[str, ...], facts: ListFacts) -> None:
        """Takes over what is known of an entity."""
        if len(self._known) < self.LIMIT:
            self._known[revision, configuration] = (tuple(facts.entered_ms), facts.tags)

    def after_record(self, facts: ListFacts | None, record: JournalRecord) -> ListFacts:
        """The facts after an entry that another process appended."""
        entry = record.entry
        states, tags = self._known.get((entry.revision, entry.after), (entry.after, ()))
        return _moved(facts, entry.event, states, tags)

    def after_append(self, facts: ListFacts | None, append: Append) -> ListFacts:
        """The facts after an append of our own."""
        moved = _moved(facts, append.entry.event, append.states, append.tags)
        if append.snapshot.ended is not None and moved.ended_ms is None:
            moved = replace(moved, ended_ms=append.entry.event.at_ms)
        self.learn(append.snapshot.revision, append.snapshot.configuration, moved)
        return moved


def _moved(facts: ListFacts | None, event: Event, states: tuple[str, ...], tags: tuple[str, ...]) -> ListFacts:
    now = event.at_ms
    known = {} if facts is None else facts.entered_ms
    created = now if facts is None else facts.created_ms
    ended = None if facts is None else facts.ended_ms
    return ListFacts(created, event.time_ms, {state: known.get(state, now) for state in states}, tags, ended)
