"""What retention needs of a store: to remove an ended entity, and the oldest entries of a living one's journal.

Rule 1: an id is used once. A pruned entity leaves a tombstone, and `append` answers a creation of its id with
`ports.store.Pruned`.
Rule 2: the tombstone, or the base of a compacted journal, is durable before the first row is removed. Rows are removed
in bounded steps; a store that is killed in between continues with `remove_rest`.
Rule 3: a store refuses to prune an entity that has changed, is alive or has work, and to compact a journal whose record
is another one. The check and the tombstone (or base) are one write. What a store cannot know (charts, children,
parents, projections) its caller checks before: `operate.retention`.
Rule 4: from the tombstone on the entity is no longer loaded, read or listed, and no step of it can be written. Its
counts leave with its last row.
"""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from interlock.model.snapshot import Snapshot


class Tombstone(Struct, frozen=True, omit_defaults=True):
    """What is left of a pruned entity: its last version, the hash of that record, when, and where its journal is."""

    entity: str
    version: int
    head: str
    pruned_ms: int
    archive: str | None = None


class JournalBase(Struct, frozen=True):
    """Where a compacted journal starts: after `version`, whose record has the hash `head`, with this snapshot.

    `digest` is the hash over the heads of all records that were removed. `time_ms` is the time of that record,
    `created_ms` that of the first one.
    """

    entity: str
    version: int
    head: str
    snapshot: Snapshot
    digest: str
    time_ms: int
    created_ms: int
    compacted_ms: int


Blocked = Literal["changed", "alive", "work", "newest", "archived", "name"]
"""Why a store removes nothing: the entity is at another version or unknown, has not ended, has work that is not done,
has the newest entry of a store that must keep it (SQLite), has its journal in an archive, or has an id that is too long
for the name of its directory (files)."""


class Removal(Struct, frozen=True):
    """The rows, or records, that one call removed; whether nothing is left to remove; or why nothing was done.

    `version` is the one up to which the journal is, or will be, removed: a store may keep more than it was asked to.
    """

    rows: int
    is_done: bool
    version: int = 0
    blocked: Blocked | None = None


class Retention(Protocol):
    """Removes entities and journals for good."""

    async def prune(self, tombstone: Tombstone, *, rows: int) -> Removal:
        """Write the tombstone, and remove about this many rows, if the entity has ended, is at this very record, and
        has no work. A repeated call continues.
        """

    async def compact(self, base: JournalBase, *, newest: Snapshot, rows: int) -> Removal:
        """Write the base, and remove about this many records up to its version, if the journal has this very record.

        The entity must have a later record. A repeated call continues. `newest` is the snapshot of its last version: a
        store that keeps the newest snapshot apart from the journal needs it, and returns `changed` if it is not that.
        """

    async def remove_rest(self, entity: str, *, rows: int) -> Removal:
        """Continue what `prune` or `compact` has started. Nothing is left when neither did."""

    async def unfinished(self, *, limit: int) -> tuple[str, ...]:
        """Return entities of which rows are left that `remove_rest` removes."""

    async def tip(self, entity: str) -> tuple[int, str]:
        """Return the last version of an entity and the hash of that record, wherever the record is; 0 and "" if there
        is no such entity.
        """

    async def tombstone(self, entity: str) -> Tombstone | None:
        """Return the tombstone of a pruned entity; None if it was not pruned."""

    async def tombstones(self, *, after: str | None, limit: int) -> tuple[Tombstone, ...]:
        """Return the tombstones of entities after an id (None: from the first), in an order of the store."""

    async def journal_base(self, entity: str) -> JournalBase | None:
        """Return where a compacted journal starts; None if it was not compacted."""

    async def reclaim(self, *, pages: int) -> int:
        """Return free space to the file system, in a bounded step; return how much was done, 0 when nothing is left.

        Pages of a SQLite file, or partitions of a PostgreSQL journal.
        """
