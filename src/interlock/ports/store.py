"""What a driver needs of a store: append under compare-and-swap, load, read, list, close.

Rule 1: when `append` returns `Appended`, the record is durable, in exactly one place, by the store's own definition
of durable.
Rule 2: a lost swap and a known key are answers, not exceptions; the store never retries and never merges.
Rule 3: a store knows no charts: what it loads may be a snapshot, or an older one with the records to replay on it.
Rule 4: what cannot be kept raises: UnavailableError (nothing was acknowledged; the same key may be sent again) or
CorruptionError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.journal.entry import Entry
from interlock.model.journal.record import JournalRecord
from interlock.model.journal.work import WorkDelta, WorkId
from interlock.model.snapshot import Snapshot

PAGE_MAX = 1_000
"""Rows of one answer of `find` and entries of one answer of `read`: longer ones are asked for page by page."""


ENDED_STATES: Mapping[str | None, str] = {"cancelled": ":cancelled", "failed": ":failed"}
"""Where an entity stands in lists and counts once it ended without a final state, by how it ended: in no state any
more, so that states hold the living and those who are done. No chart can name a state so."""


def listed_states(ended: str | None, states: tuple[str, ...]) -> tuple[str, ...]:
    """Where an entity stands in lists and counts: in its states, or, ended without a final one, by how it ended."""
    return (ENDED_STATES[ended],) if ended in ENDED_STATES else states


class Append(Struct, frozen=True):
    """One step to keep: the entry, the snapshot it leads to, and the version it was computed on (0: creation).

    `states` are the ids of all active states after it, compounds too; `tags` those of the active states: for lists
    and counts, in which an entity that ended without a final state stands in `ENDED_STATES` instead, with no tag.
    `left` is
    the work that a store which keeps work (`ports.work`) writes with it. `fence`: only if this work is still there, and
    this its newest attempt; else the answer is `StaleAttempt`. `sent_ms` is when its sender first sent it, if that is
    known: a
    store that forgets keys by their number answers `KeyExpired` where it may have had this one.
    """

    kind: str
    entity: str
    expected: int
    entry: Entry
    snapshot: Snapshot
    states: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    left: WorkDelta = WorkDelta()
    fence: tuple[WorkId, int] | None = None
    sent_ms: int | None = None


class Appended(Struct, frozen=True):
    """The record is durable."""

    version: int
    head: str


class Duplicate(Struct, frozen=True):
    """The key was kept before, with this version; nothing was written."""

    version: int


class Conflict(Struct, frozen=True):
    """The entity is at another version than expected (0: it does not exist); nothing was written."""

    version: int


class StaleAttempt(Struct, frozen=True):
    """The work that the entry would answer is gone, or in newer hands; nothing was written."""

    version: int


class KeyExpired(Struct, frozen=True):
    """The key is not known, but the event was sent no later than entries whose keys are forgotten; nothing was written.

    It may have been kept before. `version` is that of the entity, `time_ms` the time up to which keys may be forgotten.
    Only stores that forget by number (`FileStore`) know this better than a clock does; they decide it in the moment in
    which they look for the key. Without `sent_ms`, and where no key of the entity is forgotten, nobody answers so.
    """

    version: int
    time_ms: int


AppendResult = Appended | Duplicate | Conflict | StaleAttempt | KeyExpired
"""What became of an append."""


class Loaded(Struct, frozen=True):
    """What is known of an entity: a snapshot of it or of an earlier version, and the records after that.

    `time_ms` is the time of its last entry: the next one is never before it.
    """

    version: int
    time_ms: int
    snapshot: Snapshot | None
    records: tuple[JournalRecord, ...] = ()


class EntityQuery(Struct, frozen=True, kw_only=True):
    """Which entities to list: by kind, state (atomic or not; or one of `ENDED_STATES`), age, tag, revision, id
    prefix; from
    a cursor on.

    What has been in its state longest comes first; a list by prefix, where somebody looks for ids, is in their order.
    `limit`: rows of a page, from 1 on; those above `PAGE_MAX` come with the next page.
    """

    kind: str
    state: str | None = None
    entered_before_ms: int | None = None
    tag: str | None = None
    revision: str | None = None
    prefix: str | None = None
    after: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        """Raises UsageError for a limit that asks for nothing: the empty page would look like no entities."""
        if type(self.limit) is not int or self.limit < 1:
            hint = f"a whole number from 1 on; a page has {PAGE_MAX:,} rows at most, and its `after` leads to the next"
            raise UsageError(f"limit={self.limit!r:.40} is no number of rows", code="limit.range", hint=hint)


class EntityRow(Struct, frozen=True):
    """One entity in a list."""

    entity: str
    version: int
    revision: str
    configuration: tuple[str, ...]
    created_ms: int
    entered_ms: int
    changed_ms: int
    ended: str | None = None


class EntityPage(Struct, frozen=True):
    """Rows in order, and the cursor of the next page, or None when this was the last.

    `left_out` names what could not be read, by the store that noticed (`FileStore`): whether it belongs to the list,
    nobody knows. A database lists by its own rows, and notices nothing.
    """

    rows: tuple[EntityRow, ...]
    after: str | None = None
    left_out: tuple[str, ...] = ()


class Refusal(Struct, frozen=True):
    """An attempt that changed nothing: who, what, when, and why not. Kept apart from journals."""

    entity: str
    event: str
    outcome: str
    reason: str
    time_ms: int
    principal: str | None = None
    trace: str | None = None


class Store(Protocol):
    """Where journals live. Safe for many callers at once, in one process and in several."""

    async def append(self, append: Append) -> AppendResult:
        """Keep one step, if the entity still is at the expected version and its key is new."""

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """The entity as it is; None when there is none. With `key`: `Duplicate` when that key was kept before."""

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """The verified records after a version, in order. Raises CorruptionError at the first bad link.

        As many as `limit` says, and `PAGE_MAX` at most; fewer only where the journal ends.
        """

    async def find(self, query: EntityQuery) -> EntityPage:
        """Entities by kind, state, age and tag, oldest in their state first, page by page."""

    async def kinds(self) -> tuple[str, ...]:
        """The kinds that there are entities of, sorted."""

    async def close(self) -> None:
        """Let go of everything. Appends under way end first; later calls raise UnavailableError."""


@runtime_checkable
class RefusalLog(Protocol):
    """A store that also keeps the attempts that were refused."""

    async def refuse(self, refusals: tuple[Refusal, ...]) -> None:
        """Keep refusals; losing some under pressure is allowed, blocking a step is not."""


@runtime_checkable
class EntityNames(Protocol):
    """A store whose lists pass over what is damaged, and which can name that too."""

    async def names(self) -> tuple[str, ...]:
        """Every entity that there is a trace of, readable or not, sorted."""


@runtime_checkable
class DerivedRows(Protocol):
    """A store that keeps, beside its journals, rows that lists, counts and known keys are answered from."""

    async def differences(self, entity: str | None = None) -> tuple[str, ...]:
        """How those differ from journals and snapshots: of one entity; without one, what belongs to no single one."""


@runtime_checkable
class JournalArchive(Protocol):
    """A store that takes over journals written elsewhere."""

    async def adopt(self, append: Append, records: tuple[JournalRecord, ...]) -> int:
        """Keep verified records as they are, byte for byte, after those already here; give the version reached.

        `append` says what the last of them leads to. Records that are here already are passed over, so it may be
        called again. Raises ConflictError when other records stand in their place.
        """


@runtime_checkable
class JournalRelease(Protocol):
    """A store that lets go of journals once an archive has them."""

    async def release(self, entity: str, *, version: int, archive: str) -> bool:
        """Drop the records of an ended entity that is still at this version; False when it is not.

        The entity stays, with its snapshot, the hash of its last record and its keys: an id never lives twice.
        Reading what was dropped raises ArchivedError, naming the archive.
        """
