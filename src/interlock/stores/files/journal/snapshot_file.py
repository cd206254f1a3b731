"""`state.json`: the stored snapshot of an entity. A cache for loading, and proof of what was durable.

    {<the fields of the snapshot>,"store":{<position in the journal, recent keys, facts for lists>},"h":"<32 hex>"}

Rule 1: it is written after its entry is durable, under the entity's lock. So a journal that ends before it, or does not
contain it, is damaged.
Rule 2: bytes without their own hash are not a snapshot and prove nothing: they are ignored, never an error.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.event import Event
from interlock.model.held import HELD_TAG, HOLD, RESUME
from interlock.model.journal.record import HASH_HEX, JournalRecord
from interlock.model.snapshot import Snapshot
from interlock.ports.store import Append
from interlock.ports.trust.retention import JournalBase
from interlock.stores.files.journal.line_formats import Position
from interlock.stores.files.journal.recent_keys import NO_TIMES, RecentKeys, Times

FORMAT = 1
KEYS_PER_INTERVAL = 2_500
"""For each so many keys, about 100 KiB of `state.json`, snapshots become rarer by one interval."""

NO_WORK = b"[]"
_NO_WORK = Raw(NO_WORK)

_END = len(',"h":""}\n') + HASH_HEX


class ListFacts(Struct, frozen=True, omit_defaults=True):
    """What lists need: when the entity was created and changed, since when it is in each state, its tags, its end."""

    created_ms: int
    changed_ms: int
    entered_ms: dict[str, int]
    tags: tuple[str, ...] = ()
    ended_ms: int | None = None


class StoredSnapshot(Struct, frozen=True):
    """A snapshot with its position in the journal and the recent keys up to there.

    Keys and unfinished work stay encoded: they are most of the file, and most readers need neither.
    """

    snapshot: Snapshot
    position: Position
    facts: ListFacts
    keys: bytes
    work: bytes = NO_WORK
    times: Times = NO_TIMES

    def recent_keys(self) -> RecentKeys:
        """The keys and their versions, oldest first."""
        return RecentKeys.decode(self.keys, self.times)


class _Store(Struct, omit_defaults=True, rename={"work_bytes": "beside"}):
    format: int
    segment: int
    offset: int
    head: str
    facts: ListFacts
    keys: Raw
    work_bytes: int = 0
    work: Raw = _NO_WORK
    times: Times = NO_TIMES


class _File(Struct):
    store: _Store


_files = msgspec.json.Decoder(_File)
_snapshots = msgspec.json.Decoder(Snapshot)
_bases = msgspec.json.Decoder(JournalBase)


def encode_snapshot_file(stored: StoredSnapshot, *, store_key: bytes = b"") -> bytes:
    """The bytes of `state.json`."""
    position = stored.position
    work = _NO_WORK if stored.work == NO_WORK else Raw(stored.work)  # only the very default is left out
    place = (position.segment, position.offset, position.head)
    store = encode(_Store(FORMAT, *place, stored.facts, Raw(stored.keys), position.work_bytes, work, stored.times))
    body = encode(stored.snapshot)[:-1] + b',"store":' + store
    return b'%b,"h":"%b"}\n' % (body, _hash(body, store_key))


def decode_snapshot_file(data: bytes, entity: str | None, *, store_key: bytes = b"") -> StoredSnapshot | None:
    """The snapshot of an entity in these bytes; None when they are damaged, or another entity's."""
    body = data[:-_END]
    if data[-_END:] != b',"h":"%b"}\n' % _hash(body, store_key):
        return None
    try:
        store = _files.decode(data).store
        snapshot = _snapshots.decode(data)
    except UNDECODABLE:
        return None
    if snapshot.entity != (entity or snapshot.entity) or store.format != FORMAT:
        return None
    position = Position(snapshot.version, store.offset, store.head, store.segment, store.work_bytes)
    return StoredSnapshot(snapshot, position, store.facts, bytes(store.keys), bytes(store.work), store.times)


def encode_base_file(base: JournalBase, *, store_key: bytes = b"") -> bytes:
    """The bytes of the file with the snapshot at which a compacted journal starts."""
    body = encode(base)[:-1]
    return b'%b,"h":"%b"}\n' % (body, _hash(body, store_key))


def decode_base_file(data: bytes, entity: str, *, store_key: bytes = b"") -> JournalBase | None:
    """The base of an entity in these bytes; None when they are damaged, or another entity's."""
    body = data[:-_END]
    if data[-_END:] != b',"h":"%b"}\n' % _hash(body, store_key):
        return None
    try:
        base = _bases.decode(data)
    except msgspec.MsgspecError:
        return None
    return base if base.entity == base.snapshot.entity == entity and base.snapshot.version == base.version else None


def snapshot_interval(every: int, keys: int) -> int:
    """How many versions lie between two snapshots: more with many keys, which would cost more than the entries."""
    return every * (1 + keys // KEYS_PER_INTERVAL)


def _hash(body: bytes, store_key: bytes) -> bytes:
    return blake2b(body, key=store_key, digest_size=16).hexdigest().encode()


class KnownConfigurations:
    """All active states and tags of each known configuration; a journal has the names of atomic states only.

    They are learned from appends and snapshots. An unknown configuration has its atomic states and no tags.
    """

    LIMIT = 10_000

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str, ...]], tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def learn(self, revision: str, configuration: tuple[str, ...], facts: ListFacts) -> None:
        """Remember the states and tags of an entity in this configuration."""
        if len(self._known) < self.LIMIT:
            tags = tuple(each for each in facts.tags if each != HELD_TAG)  # of one entity, not of its states
            self._known[revision, configuration] = (tuple(facts.entered_ms), tags)

    def after_record(self, facts: ListFacts | None, record: JournalRecord) -> ListFacts:
        """The facts after an entry that was read from a journal."""
        entry = record.entry
        states, tags = self._known.get((entry.revision, entry.after), (entry.after, ()))
        was_held = facts is not None and HELD_TAG in facts.tags
        if entry.event.name == HOLD or (was_held and entry.event.name != RESUME):
            tags = (HELD_TAG, *tags)
        return _after_event(facts, entry.event, states, tags)

    def after_append(self, facts: ListFacts | None, append: Append) -> ListFacts:
        """The facts after an append of this process."""
        after = _after_event(facts, append.entry.event, append.states, append.tags)
        if append.snapshot.ended is not None and after.ended_ms is None:
            after = replace(after, ended_ms=append.entry.event.at_ms)
        self.learn(append.snapshot.revision, append.snapshot.configuration, after)
        return after


def _after_event(facts: ListFacts | None, event: Event, states: tuple[str, ...], tags: tuple[str, ...]) -> ListFacts:
    now = event.at_ms
    known = {} if facts is None else facts.entered_ms
    created = now if facts is None else facts.created_ms
    ended = None if facts is None else facts.ended_ms
    return ListFacts(created, event.time_ms, {state: known.get(state, now) for state in states}, tags, ended)
