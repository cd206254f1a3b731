"""What a runtime needs of a store: append with compare-and-swap, load, read, list, close.

Rule 1: when `append` returns `Appended`, the record is durable, in exactly one place, by the store's own definition
of durable.
Rule 2: a lost swap and a known key are results, not exceptions. The store never retries and never merges.
Rule 3: a store knows no charts. What it loads may be a snapshot, or an older one with the records to replay on it.
Rule 4: what cannot be written raises: UnavailableError (nothing was acknowledged; the same key may be sent again) or
CorruptionError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.encoding.codec import encode
from interlock.model.journal.entry import Entry
from interlock.model.journal.record import JournalRecord
from interlock.model.journal.work import WorkDelta, WorkId
from interlock.model.snapshot import Snapshot
from interlock.ports.definitions import Definitions
from interlock.ports.engine import Engine
from interlock.ports.leases import ClockStamps, Leases
from interlock.ports.reading.field_indexes import FieldIndexes
from interlock.ports.reading.journal_feed import JournalFeed
from interlock.ports.reading.projections import Projections
from interlock.ports.reading.statistics import Statistics
from interlock.ports.store_facts import StoreFacts
from interlock.ports.transactions import CallerTransaction, TransactionEnd
from interlock.ports.trust.audit import AuditLog
from interlock.ports.trust.data_keys import DataKeys
from interlock.ports.trust.retention import Retention
from interlock.ports.wakeups import Wakeups
from interlock.ports.work import WorkQueue

if TYPE_CHECKING:
    from datetime import date, datetime, timedelta
    from decimal import Decimal
    from uuid import UUID

    from interlock.model.conditions import Range

Capability = TypeVar("Capability")

PAGE_MAX = 1_000
"""Rows of one result of `find` and entries of one result of `read`: longer ones are read page by page."""


CONDITIONS_MAX = 16
"""Conditions of one query: twice as many as a chart may have indexed fields."""

ENDED_STATES: Mapping[str | None, str] = {"cancelled": ":cancelled", "failed": ":failed"}
"""Under which name lists and counts show an entity that ended without a final state, by how it ended. It is in no state
any more, so that states contain active and finished entities only. No chart can have a state of such a name."""


def listed_states(ended: str | None, states: tuple[str, ...]) -> tuple[str, ...]:
    """Return the states under which an entity is listed: its own or, ended without a final state, how it ended."""
    return (ENDED_STATES[ended],) if ended in ENDED_STATES else states


class _EncodedField:
    """The deterministic JSON of a field, encoded at its first use and kept with its object."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, append: Append, owner: type) -> bytes:
        found = append.__dict__[self._name] = encode(getattr(append, self._field))
        return found


class Append(Struct, frozen=True, dict=True):
    """One step to write: the entry, the snapshot it leads to, and the version it was computed on (0: creation).

    `states` are the ids of all active states after it, compounds too, and `tags` their tags, for lists and counts. An
    entity that ended without a final state is listed under `ENDED_STATES` instead, without tags. `left` is the work
    that a store which keeps work (`ports.work`) writes with it. With `fence` the step is written only if this work
    exists and this is its newest attempt; otherwise the result is `StaleAttempt`. `sent_ms` is when the event was first
    sent, if known: a store that keeps a fixed number of keys returns `KeyExpired` when it may have had this one.
    `before` is the snapshot that the step started from: a store with indexes on fields compares it with `snapshot`.
    `others` are the names under which readers who may not see the hidden states of the chart find the entity
    (`ports.reading.visible_names`); empty if the chart has none, or if they see no such entity.

    `entry_json` and `snapshot_json` are what a store writes: the driver has measured these very bytes.
    """

    kind: str
    entity: str
    expected: int
    entry: Entry
    snapshot: Snapshot
    states: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    work: WorkDelta = WorkDelta()
    fence: tuple[WorkId, int] | None = None
    sent_ms: int | None = None
    before: Snapshot | None = None
    others: tuple[str, ...] = ()

    entry_json = _EncodedField("entry")
    snapshot_json = _EncodedField("snapshot")

    def with_json(self, *, entry_json: bytes, snapshot_json: bytes) -> Append:
        """Return this append, whose entry and snapshot the caller has encoded already."""
        self.__dict__.update(entry_json=entry_json, snapshot_json=snapshot_json)
        return self


class Appended(Struct, frozen=True, gc=False):
    """The record is durable."""

    version: int
    head: str


class Duplicate(Struct, frozen=True, gc=False):
    """The key was recorded before, with this version; nothing was written."""

    version: int


class Conflict(Struct, frozen=True, gc=False):
    """The entity is at another version than expected (0: it does not exist); nothing was written."""

    version: int


class StaleAttempt(Struct, frozen=True, gc=False):
    """The work that the entry would finish no longer exists, or has a newer attempt; nothing was written."""

    version: int


class KeyExpired(Struct, frozen=True, gc=False):
    """The key is unknown, but the event is as old as entries whose keys have expired; nothing was written.

    It may have been applied before. `version` is that of the entity, `time_ms` the time up to which keys may have
    expired. Only a store that keeps a fixed number of keys (`FileStore`) returns this; it decides when it looks up the
    key. It never does so without `sent_ms`, or while no key of the entity has expired.
    """

    version: int
    time_ms: int


class Pruned(Struct, frozen=True, gc=False):
    """The entity was removed by retention at this version, and its id is never used again; nothing was written."""

    version: int


AppendResult = Appended | Duplicate | Conflict | StaleAttempt | KeyExpired | Pruned
"""The result of an append."""


class Loaded(Struct, frozen=True, gc=False):
    """What the store has of an entity: a snapshot of it or of an earlier version, and the records after that.

    `time_ms` is the time of its last entry: the next one is never before it.
    """

    version: int
    time_ms: int
    snapshot: Snapshot | None
    records: tuple[JournalRecord, ...] = ()


if TYPE_CHECKING:
    Scalar = str | int | float | bool | datetime | date | Decimal | UUID | timedelta
    Where: TypeAlias = Mapping[str, Scalar | Range[Any]]
else:  # a query is never decoded, and the types of its values depend on the fields
    Where = Mapping[str, Any]


class EntityQuery(Struct, frozen=True, kw_only=True):
    """Which entities to list: by kind, state (atomic or not; or one of `ENDED_STATES`), age, tag, revision and id
    prefix, from a cursor on.

    Entities that have been in their state longest come first; a list by prefix, or `by_id`, is in the order of ids. A
    step never moves an entity in that order, so a walk `by_id` meets each entity once. `limit` is the number of rows of
    a page, from 1 to `PAGE_MAX`.

    `where` finds entities by indexed context fields: `{"customer": "c-7", "amount": Range(at_least=10)}`. Such a list
    is in the order of one of the fields where the store has indexes, and a page may have fewer rows than `limit`, even
    none, and a cursor to continue from. With `context`, each row has the context of its entity.
    """

    kind: str
    state: str | None = None
    entered_before_ms: int | None = None
    tag: str | None = None
    revision: str | None = None
    prefix: str | None = None
    after: str | None = None
    limit: int = 50
    where: Where | None = None
    context: bool = False
    by_id: bool = False

    @property
    def is_in_id_order(self) -> bool:
        """Whether the list is in the order of ids, if it has no `where`."""
        return self.by_id or bool(self.prefix)

    def __post_init__(self) -> None:
        """Raise UsageError for a limit below 1: the empty page would look as if there were no entities."""
        if type(self.limit) is not int or self.limit < 1:
            hint = f"use an integer of 1 or more; a page has at most {PAGE_MAX:,} rows; get the next with `after`"
            raise UsageError(f"limit={self.limit!r:.40} is not a number of rows", code="limit.range", hint=hint)
        where: object = self.where
        if where is None:
            return
        if not isinstance(where, Mapping) or not all(isinstance(each, str) for each in where):
            hint = 'such as {"customer": "c-7"}'
            raise UsageError(
                f"`where` must be a mapping of fields, got {where!r:.60}", code="where.malformed", hint=hint
            )
        if len(where) > CONDITIONS_MAX:
            message = f"`where` has {len(where)} conditions; the limit is {CONDITIONS_MAX}"
            raise UsageError(message, code="where.malformed", hint="filter the rows of a narrower list")


def check_plain(query: EntityQuery) -> None:
    """Raise UsageError for a query that a store without indexes on fields cannot answer: the runtime answers it."""
    if query.where or query.context:
        hint = "ask the runtime: `runtime.list(query)`"
        raise UsageError("this store does not know the context of an entity", code="index.unsupported", hint=hint)


class EntityRow(Struct, frozen=True):
    """One entity in a list. `entered_ms`: since when it is in the state of the query, or in its configuration.

    `context` is that of its newest version, if the query asks for it.
    """

    entity: str
    version: int
    revision: str
    configuration: tuple[str, ...]
    created_ms: int
    entered_ms: int
    changed_ms: int
    ended: str | None = None
    context: dict[str, Any] | None = None


class EntityPage(Struct, frozen=True):
    """Rows in order, and the cursor of the next page, or None when this is the last.

    `unreadable` names entities that `FileStore` could not read: whether they belong to the list is unknown. A database
    lists by its own rows and does not read journals.
    """

    rows: tuple[EntityRow, ...]
    after: str | None = None
    unreadable: tuple[str, ...] = ()


class EntityVerification(Protocol):
    """What `verify` asks a store beyond its journals."""

    async def entity_names(self) -> tuple[str, ...] | None:
        """Return every entity of which there is a trace, readable or not, sorted; None where `find` lists them all."""

    async def differences(self, entity: str | None = None) -> tuple[str, ...]:
        """Return how the rows derived from journals, for lists, counts and keys, differ from them.

        Of one entity; without one, the rows that belong to no entity.
        """


class JournalArchive(Protocol):
    """Adopts journals written elsewhere."""

    async def adopt(self, append: Append, records: tuple[JournalRecord, ...]) -> int:
        """Write verified records byte for byte after the existing ones; return the version reached.

        `append` is the step of the last of them. Existing records are skipped, so it may be called again. Raises
        ConflictError when other records have the same versions.
        """


class JournalRelease(Protocol):
    """Releases journals once an archive has them."""

    async def release_journal(self, entity: str, *, version: int, archive: str) -> bool:
        """Delete the records of an ended entity that is still at this version; False when it is not.

        The entity stays, with its snapshot, the hash of its last record and its keys: an id is never used twice.
        Reading the records then raises ArchivedError, which names the archive.
        """


class Itself(Generic[Capability]):
    """A capability that a store has itself: `work = Itself[WorkQueue]()`."""

    def __get__(self, store: Capability, owner: type) -> Capability:
        return store


class Store(Protocol):
    """Where journals are kept. Safe for concurrent callers, in one process and in several.

    What a store can do beyond its methods is an attribute each, and None when it cannot. It may be the store itself
    (`Itself`) or a separate object. A class that names `Store` as its base inherits None where it sets nothing.
    """

    @property
    def work(self) -> WorkQueue | None:
        """The work queue. Without one, a chart that asks for effects, timers or messages is refused."""
        return None

    @property
    def wakeups(self) -> Wakeups | None:
        """Signals between the processes of the store; without them, work of other processes is found by polling."""
        return None

    @property
    def data_keys(self) -> DataKeys | None:
        """The keys of personal data. Without them, a chart with personal data is refused."""
        return None

    @property
    def facts(self) -> StoreFacts | None:
        """Settings that every process of the store follows."""
        return None

    @property
    def leases(self) -> Leases | None:
        """Leases and downtimes, for reconcilers and timers."""
        return None

    @property
    def clock_stamps(self) -> ClockStamps | None:
        """Finds entities whose time is ahead."""
        return None

    @property
    def statistics(self) -> Statistics | None:
        """Populations, rates and dwell times."""
        return None

    @property
    def audit(self) -> AuditLog | None:
        """Records attempts that no journal records, and what operators did."""
        return None

    @property
    def journal_feed(self) -> JournalFeed | None:
        """The entries of all entities in the order in which they were written."""
        return None

    @property
    def field_indexes(self) -> FieldIndexes | None:
        """Indexes on context fields. Without them, the runtime finds entities by reading them one by one."""
        return None

    @property
    def projections(self) -> Projections | None:
        """Positions of projections, in the transaction of what they write."""
        return None

    @property
    def journal_archive(self) -> JournalArchive | None:
        """Adopts journals of other stores."""
        return None

    @property
    def journal_release(self) -> JournalRelease | None:
        """Releases journals that an archive has."""
        return None

    @property
    def retention(self) -> Retention | None:
        """Removes ended entities, and the beginnings of journals."""
        return None

    @property
    def definitions(self) -> Definitions | None:
        """The definitions of charts. Without them, a process runs the entities of its own charts only."""
        return None

    @property
    def verification(self) -> EntityVerification | None:
        """What can be verified beyond journals."""
        return None

    @property
    def joins(self) -> Joins | None:
        """Writes in a transaction of the caller."""
        return None

    @property
    def engine(self) -> Engine | None:
        """The system of another vendor that runs the entities; without one, our own driver does."""
        return None

    async def append(self, append: Append) -> AppendResult:
        """Write one step, if the entity is still at the expected version and its key is new."""

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """Return the entity; None when it does not exist. With `key`: `Duplicate` when that key was recorded before."""

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """Return the verified records after a version, in order. Raises CorruptionError at the first bad link.

        At most `limit` and `PAGE_MAX` records; fewer only where the journal ends.
        """

    async def find(self, query: EntityQuery) -> EntityPage:
        """Return entities by kind, state, age and tag, oldest in their state first, page by page."""

    async def kinds(self) -> tuple[str, ...]:
        """Return the kinds that have entities, sorted."""

    async def close(self) -> None:
        """Close the store. Pending appends end first; later calls raise UnavailableError."""


class JoinedStore(Store, Protocol):
    """A store on a connection of the caller, for one call: the caller's next statement may undo what it has read.

    It reads and writes on that connection only. It commits nothing, and undoes nothing that the caller has written: the
    caller's COMMIT makes its entries durable. A database error that means that another transaction was first raises
    ConflictError (`conflict.joined`), one that means that this connection cannot be joined UsageError (`join.*`).
    """

    @property
    def mark(self) -> object | None:
        """What the call has written, by which `Joins` recognizes the transaction; None: nothing."""

    async def lock(self, entities: Sequence[str]) -> None:
        """Lock entities, in an order that is the same for every caller. Unknown ones are skipped."""

    async def look(self, entity: str) -> Loaded | None:
        """Return the entity as the transaction sees it, without a lock; None when it does not exist."""


class Joins(Protocol):
    """Writes in transactions of the caller."""

    @property
    def one_writer(self) -> bool:
        """Whether the store's own connections cannot write while a transaction of the caller does."""

    def joined(self, transaction: CallerTransaction, *, wait: bool = True) -> JoinedStore:
        """Return this store on a connection of the caller. Raises UsageError for a connection to another database.

        With `wait=False`, an entity that another transaction has locked raises ConflictError immediately.
        """

    async def ended(self, marks: Sequence[object]) -> Sequence[TransactionEnd]:
        """Return the state of transactions, as the store's own connections see it."""

    def committed(self, mark: object) -> None:
        """Count what a transaction has written, in the event loop of the runtime, once it is committed."""


CAPABILITIES = tuple(name for name, member in vars(Store).items() if isinstance(member, property))
"""The attributes of `Store` that say what a store can do."""


def check_capabilities(store: Store) -> None:
    """Raise UsageError (`store.capabilities`) for a store that does not say what it can do."""
    missing = [each for each in CAPABILITIES if not hasattr(store, each)]
    if missing:
        message = f"the store {type(store).__name__} has no {', '.join(f'`{each}`' for each in missing)}"
        hint = "name `interlock.ports.store.Store` as a base class, or set each to None when the store cannot do it"
        raise UsageError(message, code="store.capabilities", hint=hint)
