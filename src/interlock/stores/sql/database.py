"""How a rule asks a SQL database, and what a database offers.

A rule is a generator: it yields statements, is sent the rows, and returns its result. So each rule exists once, and is
neither blocking nor asynchronous. SQLite runs it in a thread on one connection, PostgreSQL awaits each answer.

Rule 1: a rule names its statements by the fields of `Statements`. Each database supplies the texts, with its own
placeholders; the values and the columns are the same.
Rule 2: a time that the database compares with its own clock goes through `clock_value`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from interlock.model.audit import AuditRow
from interlock.model.journal.work import Lane, WorkId
from interlock.ports.leases import Downtime
from interlock.ports.store import Append, Appended, Conflict, Duplicate, Pruned, StaleAttempt
from interlock.ports.work import Claim, Settlement
from interlock.stores.stay_tally import StayTally

T = TypeVar("T")

Name = tuple[str, str, str]
"""Tenant, kind and id of an entity."""

SqlAppendResult = Appended | Duplicate | Conflict | StaleAttempt | Pruned
"""The result of an append."""


ANY_STATE = ""
"""The state under which PostgreSQL lists an entity as a whole, with the time when it entered its configuration."""


class Ask(NamedTuple):
    """A statement with its values. With `rows` it applies to each of these rows, whose values follow the others."""

    statement: str
    values: tuple[Any, ...] = ()
    rows: Sequence[tuple[Any, ...]] | None = None


Questions: TypeAlias = Generator[Ask, list[Any], T]
"""A rule: yields what it asks, is sent the rows, returns its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The texts of all shared questions in the language of one database. The values are named where they are used."""

    server_clock: bool
    """Whether the database compares times with its own clock: then they are sent as distances from now."""

    list_by_age: str
    list_by_state: str
    list_by_id: str
    list_by_tag: str
    has_many_tagged: str
    kinds: str

    list_by_field: str
    count_fields: str
    entities_after: str
    entities_named: str
    has_entities: str
    indexes: str
    indexes_of_kind: str
    index_to_build: str
    """Held until the end of the transaction: one process builds an index at a time, and none while it is dropped."""
    declare_index: str
    advance_index: str
    mark_dropping: str
    forget_index: str
    add_fields: str
    delete_fields: str
    projections: str
    record_failure: str
    hold_steps: tuple[str, ...]
    """Wait until no step is in progress, and let none start before the transaction ends; empty with one writer."""
    next_generation: str | None
    """None where a writer notices that another connection has written."""

    records: str

    counts: str
    dwell: str
    rates: str
    count_overdue: str
    add_dwell: str
    add_minutes: str
    delete_dwell: str
    delete_minutes: str
    count_work: str
    last_seen: str
    seen_names: str
    add_seen: str
    delete_seen: str

    lock_audit: str | None
    """None where only one connection writes."""
    last_audit: str
    configurations: str
    insert_audit: str
    audit_before: str
    audit_of_actor_before: str
    audit_after: str
    former_audit_after: str

    acquire_lease: str
    release_lease: str
    alive_ahead: str
    correct_alive: str
    correct_downtimes: str
    correct_statistics: tuple[str, ...]
    downtimes: str
    stamped_after: str

    work: str
    dead_work: str
    work_of_entity: str
    annotate_work: str
    requeue_dead_work: str

    derived_row: str
    present_states: str
    present_tags: str
    journal_keys: str
    state_counts: str
    walk_entities: str | None
    """None where an entity is listed by its own row."""
    walk_states: str
    walk_tags: str
    walk_keys: str
    walk_work: str
    walk_fields: str
    present_fields: str

    tip: str
    tombstone: str
    tombstones: str
    add_tombstone: str
    finish_tombstone: str
    unfinished_tombstones: str
    journal_base: str
    save_base: str
    finish_base: str
    unfinished_bases: str
    delete_base: str
    entity_to_remove: str
    """Held until the end of the transaction."""
    close_entity: str
    anchor_journal: str
    has_work: str
    is_newest: str | None
    """None where the newest entry of the store may be removed."""
    head_of: str
    first_record: str
    delete_records: str
    delete_keys_of_entity: str
    delete_state: str
    delete_tag: str
    delete_field: str
    delete_archive: str | None
    """None where it is a part of the entity's own row."""
    delete_entity: str
    add_count: str
    reclaim: Callable[[int], Questions[int]]
    """From a number of pages: how much was done."""

    key_boundary: str
    move_key_boundary: str
    delete_keys: str
    oldest_key: str | None
    """None where no index leads to it."""

    lock_definitions: str | None
    """None where only one connection writes."""
    definitions: str
    definitions_of_kind: str
    definition_aliases: str
    definition_aliases_of_kind: str
    definition_body: str
    insert_definition_body: str
    insert_definition: str
    insert_definition_alias: str
    delete_definition: str
    delete_unused_body: str

    facts: str
    save_fact: str
    delete_fact: str

    record_heartbeat: Callable[[str, int, int], Questions[Downtime | None]]
    """From tenant, time and gap: the downtime that ends with this heartbeat."""

    release_journal: Callable[[Name, int, str], Questions[bool]]
    """From name, version and archive: whether the journal is released."""

    def clock_value(self, time_ms: int, *, now_ms: int) -> int:
        """Return a time as the statements take it: the distance from now where the server's clock decides."""
        return time_ms - now_ms if self.server_clock else time_ms


class WorkQuestions(Protocol):
    """The rules by which work is held and finished. They differ: PostgreSQL runs them as functions on the server."""

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> Questions[tuple[Claim | None, ...]]:
        """Extend the leases of claims."""

    def settle(self, settlements: tuple[Settlement, ...], *, now_ms: int) -> Questions[tuple[bool, ...]]:
        """Release claims."""

    def release_owner(self, owner: str) -> Questions[int]:
        """Make all claims of an owner that has died due now; return how many."""

    def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> Questions[int | None]:
        """Return when the next work is due or its lease expires."""

    def delete(self, entity: str, work_id: WorkId) -> Questions[bool]:
        """Delete work."""


class SqlDatabase(Protocol):
    """A database that runs questions. A function makes the questions, so that they can be asked again."""

    tenant: str
    statements: Statements
    stays: StayTally

    @property
    def work(self) -> WorkQuestions:
        """The rules of work."""

    async def read(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions that change nothing."""

    async def read_snapshot(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions that change nothing, on the state of one moment."""

    async def change(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions that may be repeated after a lost connection; each statement is complete on its own."""

    async def change_work(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions as `change` does, which change rows of work and no journal."""

    async def change_once(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions in one transaction; after a lost connection the caller decides whether to repeat them."""

    async def change_whole(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions in one transaction that may be repeated, when others hold it up or its connection is lost."""

    async def append(self, append: Append) -> SqlAppendResult:
        """Commit one step."""

    async def find_entity(self, entity: str, key: str | None) -> tuple[int, int, bytes, int | None] | None:
        """Return version, time of the last entry, snapshot, and the version that used the key; None: no such entity.

        A key that is returned is as durable as a receipt.
        """

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work that is due, oldest first."""

    async def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
        """Commit rows of the audit, together with those of other callers."""

    async def close(self) -> None:
        """Finish appends that are in progress, then release all connections."""
