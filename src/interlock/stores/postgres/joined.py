"""A PostgreSQL store on a connection of the caller: load and append in the caller's transaction.

Rule 1: the caller has its own search path and settings, so every name is qualified with the schema (`qualify`), and no
setting outlives the transaction.
Rule 2: loading locks the entity. In READ COMMITTED the swap cannot be lost then: a second caller waits instead of
repeating its whole transaction. In the stricter isolation levels the server reports the conflict.
Rule 3: a creation holds a lock on the name of its entity, by which batches of other processes recognize that it is
being created (`writer`, rule 7).
Rule 4: a transaction that commits asynchronously is made to wait for its flush, as every COMMIT of ours does. A key
that is found in a transaction that writes nothing else waits for standbys as well (`standbys`).
Rule 5: counters are written on a stripe of the transaction, which no other one waits for (`JOINED_STRIPE`).
Rule 6: which database the connection leads to is checked in the statement that loads, every time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

from interlock.errors import ConflictError, InterlockError, UsageError
from interlock.ports.store import Append, Appended, Conflict, Duplicate, Loaded, Pruned
from interlock.ports.transactions import PostgresTransaction, TransactionEnd
from interlock.stores.postgres.commit import (
    CREATION_LOCK,
    JOIN_CREATION,
    JOIN_CREATION_WITH_WORK,
    JOIN_STEP,
    JOIN_STEP_WITH_LISTS,
    JOIN_STEP_WITH_WORK,
    WAITS,
    KeptFields,
    PreparedStep,
    prepare_step,
    values_of_step,
    values_of_steps,
    values_with_work,
)
from interlock.stores.postgres.connection import LOCK_TIMEOUT, LOSING, OTHER_GENERATION, run_questions
from interlock.stores.postgres.standbys import CONFIRM
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.sql.commit_plan import CommitPlan, JournalTip, split_entity, tip_of_new_entity
from interlock.stores.sql.database import Ask, Questions, SqlAppendResult
from interlock.stores.sql.field_index import indexed_fields
from interlock.stores.sql.join_errors import joined_conflict_error, other_database_error, read_only_error
from interlock.stores.sql.joined import JoinedSqlStore
from interlock.stores.sql.store import check_text, decode_loaded

_LOSING = ", ".join(f"'{each}'" for each in sorted(LOSING))
FLUSH = f"""
    CASE WHEN current_setting('synchronous_commit') IN ({_LOSING})
    THEN set_config('synchronous_commit', 'on', true) END"""
"""Makes the COMMIT of this transaction wait until it is flushed; the setting ends with the transaction."""

_GENERATION = "coalesce((SELECT generation FROM field_generation WHERE tenant = $1), 0)"

SELECT_IDENTITY = "SELECT id, current_database() FROM store_identity"
SELECT_JOINED = f"""
    SELECT s.id, current_database(), {FLUSH}, {_GENERATION}, (
        SELECT k.version FROM event_key AS k WHERE k.tenant = $1 AND k.kind = $2 AND k.id = $3 AND k.key = $4), {WAITS},
      e.changed_ms, e.snapshot, e.version, e.revision, e.active, e.tags, e.head, e.journal_bytes, e.entered_ms
    FROM store_identity AS s LEFT JOIN LATERAL (
      SELECT * FROM entity WHERE tenant = $1 AND kind = $2 AND id = $3 FOR NO KEY UPDATE{{wait}}) AS e ON true"""  # noqa: S608 - made of constants
LOOK_AT_JOINED = """
    SELECT s.id, current_database(), e.version, e.changed_ms, e.snapshot
    FROM store_identity AS s LEFT JOIN entity AS e ON e.tenant = $1 AND e.kind = $2 AND e.id = $3"""
_LOCK_NAME = CREATION_LOCK.format(schema="$4::text", tenant="$1::text", kind="$2::text", id="$3::text")
LOCK_CREATION = f"""
    SELECT s.id, current_database(), {FLUSH}, {_GENERATION}, pg_advisory_xact_lock({_LOCK_NAME})
    FROM store_identity AS s"""  # noqa: S608 - made of constants
TRY_LOCK_CREATION = LOCK_CREATION.replace("pg_advisory_xact_lock", "pg_try_advisory_xact_lock")
SELECT_ENDS = """
    SELECT pg_xact_status(i.number::xid8) FROM unnest($1::text[]) WITH ORDINALITY AS i (number, n) ORDER BY i.n"""

ENDS = {
    "in progress": TransactionEnd.OPEN,
    "aborted": TransactionEnd.UNDONE,
    "committed": TransactionEnd.COMMITTED,
}
"""The states of a transaction, as `pg_xact_status` names them."""

Identity = tuple[str, str]
"""The row of `store_identity`, and the name of the database: a copy of a database has the same row."""

_NAMES = re.compile(
    r"\b(FROM|JOIN|INTO|UPDATE) "
    r"(entity|journal|event_key|entity_state|entity_tag|state_count|work|store_identity"
    r"|definition|definition_alias|definition_body|field_generation|field_index|entity_field|entity_tombstone|journal_base)\b"
    r"|\b(keep_work|keep_fields|refuse_generation|refuse_pruned|clock_ms)(?=\()"
    r"|\bcurrent_schema\(\)"
)
"""The names of tables and functions in statements of a joined transaction."""

_MISSING = frozenset({"3F000", "42P01", "42883", "42703"})
"""The server's codes when a schema, table, function or column does not exist."""


T = TypeVar("T")


class JoinedTransaction(NamedTuple):
    """What a call has written, and the number of its transaction."""

    number: str
    plan: CommitPlan


def select_ends(numbers: list[str]) -> Questions[list[Any]]:
    """Return the states of transactions, in order."""
    return (yield Ask(SELECT_ENDS, (numbers,)))


@cache
def qualify(statement: str, schema: str) -> str:
    """Return a statement that finds the tables of a schema on any search path."""

    def qualified(found: re.Match[str]) -> str:
        keyword, table, function = found.groups()
        if table:
            return f'{keyword} "{schema}".{table}'
        return f'"{schema}".{function}' if function else f"'{schema}'"

    return _NAMES.sub(qualified, statement)


class KnownFields:
    """The indexed fields as they were when they were last read: they change rarely."""

    def __init__(self) -> None:
        self.kept = KeptFields(-1, {})


class QualifiedConnection:
    """A connection of the caller whose statements find the tables of a schema."""

    def __init__(self, transaction: PostgresTransaction, schema: str) -> None:
        self._transaction = transaction
        self._schema = schema

    async def fetch(self, query: str, *values: Any) -> list[Any]:
        """Return all rows of a statement."""
        try:
            return await self._transaction.fetch(qualify(query, self._schema), values)
        except InterlockError:
            raise
        except Exception as error:
            found = translate_driver_error(error, self._schema)
            if found is None:
                raise
            raise found from error


class JoinedPostgresStore(JoinedSqlStore):
    """A store on a connection of the caller."""

    def __init__(
        self,
        transaction: PostgresTransaction,
        *,
        tenant: str,
        schema: str,
        identity: Identity,
        fields: KnownFields,
        wait: bool,
    ) -> None:
        super().__init__(STATEMENTS, tenant)
        self._connection = QualifiedConnection(transaction, schema)
        self._schema = schema
        self._identity = identity
        self._wait = wait
        self._fields = fields
        self._tips: dict[str, JournalTip] = {}

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """Lock and return the entity; None when it does not exist. With `key`: `Duplicate` when it was used before."""
        check_text(entity)
        check_text(key or "", "key")
        statement = SELECT_JOINED.format(wait="" if self._wait else " NOWAIT")
        rows = await self._connection.fetch(statement, self._tenant, *split_entity(entity), key)
        self._check(rows)
        await self._keep_fields(rows[0][3])
        key_version, waits_for_standbys, changed_ms, snapshot, version, *tip = tuple(rows[0])[4:]
        if version is None or version < 0:  # unknown, or being removed
            return None
        if key_version is not None:
            if waits_for_standbys:
                await self._connection.fetch(CONFIRM)
            return Duplicate(key_version)
        self._tips[entity] = JournalTip(version, *tip)
        return decode_loaded(entity, version, changed_ms, snapshot)

    async def look(self, entity: str) -> Loaded | None:
        """Return the entity as the transaction sees it, without a lock; None when it does not exist."""
        check_text(entity)
        rows = await self._connection.fetch(LOOK_AT_JOINED, self._tenant, *split_entity(entity))
        self._check(rows)
        _, _, version, changed_ms, snapshot = tuple(rows[0])
        return None if version is None or version < 0 else decode_loaded(entity, version, changed_ms, snapshot)

    async def append(self, append: Append) -> SqlAppendResult:
        """Write one step, if the entity is still at the expected version and the key is new."""
        check_text(append.entity)
        check_text(append.entry.key, "key")
        assert append.fence is None, "results of work are not sent by callers"
        step = await self._prepared(append)
        if step is not None:
            statement, values = self._statement(step, is_new=append.expected == 0)
            rows = await self._connection.fetch(statement, *values)
            if rows:
                tip = step.plan.tip
                self.mark = JoinedTransaction(rows[0][1], step.plan)
                self._tips[append.entity] = tip
                return Appended(tip.version, tip.head)
        found = await self.load(append.entity, key=append.entry.key)
        if isinstance(found, Duplicate):
            return found
        if found is None and (pruned := await self.tombstone(append.entity)) is not None:
            return Pruned(pruned.version)
        return Conflict(0 if found is None else found.version)

    async def _prepared(self, append: Append) -> PreparedStep | None:
        """Return the rows of a step; None when the entity is at another version."""
        if append.expected:
            tip = self._tips.pop(append.entity, None)
            return (
                None if tip is None or tip.version != append.expected else prepare_step(append, tip, self._fields.kept)
            )
        name = split_entity(append.entity)
        statement = LOCK_CREATION if self._wait else TRY_LOCK_CREATION
        rows = await self._connection.fetch(statement, self._tenant, *name, self._schema)
        self._check(rows)
        if rows[0][4] is False:
            raise conflict_error(None)
        await self._keep_fields(rows[0][3])
        return prepare_step(append, tip_of_new_entity(append.entity, self._tenant), self._fields.kept)

    async def _keep_fields(self, generation: int) -> None:
        """Read which fields are indexed, unless they are known of this generation."""
        if self._fields.kept.generation != generation:
            fields = await self._ask(indexed_fields(STATEMENTS, self._tenant))
            self._fields.kept = KeptFields(generation, fields)

    def _statement(self, step: PreparedStep, *, is_new: bool) -> tuple[str, tuple[Any, ...]]:
        tenant = self._tenant
        if is_new and step.work is not None:
            return JOIN_CREATION_WITH_WORK, values_with_work(tenant, [step], has_fences=False)
        if is_new:
            return JOIN_CREATION, values_of_steps(tenant, [step], has_lists=True)
        if step.work is not None:
            return JOIN_STEP_WITH_WORK, values_of_step(tenant, step)
        return JOIN_STEP if not step.has_lists else JOIN_STEP_WITH_LISTS, values_of_step(tenant, step)

    async def _ask(self, questions: Questions[T]) -> T:
        """Run questions on the caller's connection."""
        return await run_questions(self._connection, questions)

    async def lock(self, entities: Sequence[str]) -> None:
        """Lock entities in the order in which batches lock them."""
        for entity in sorted(entities, key=split_entity):
            await self.load(entity)

    def _check(self, rows: Sequence[Any]) -> None:
        """Raises UsageError unless the connection leads to the store's own database."""
        if not rows or (rows[0][0], rows[0][1]) != self._identity:
            raise other_database_error(f"database `{self._identity[1]}`, schema `{self._schema}`")


def conflict_error(sqlstate: str | None) -> ConflictError:
    """Return the error when another transaction was first. After an error of the server, the transaction is over."""
    hint = "roll back, and run the whole transaction again"
    why = "" if sqlstate is None else f" (SQLSTATE {sqlstate})"
    return joined_conflict_error(f"another transaction has changed or locked the entity{why}", hint)


def translate_driver_error(error: BaseException, schema: str) -> InterlockError | None:
    """Return an error of the caller's driver as one of ours; None when it says nothing about joining."""
    code = sqlstate_of(error)
    if code.startswith("40") or code in {LOCK_TIMEOUT, OTHER_GENERATION}:
        return conflict_error(code)
    if code == "25006":
        return read_only_error()
    if code == "25P02":
        hint = "roll back first: after an error PostgreSQL accepts no statement in a transaction"
        return UsageError("the joined transaction has failed already", code="join.failed", hint=hint)
    if code in _MISSING:
        return other_database_error(f"schema `{schema}`")
    return None


def sqlstate_of(error: BaseException) -> str:
    """Return the server's code of an error of any driver; empty when it is not from the server.

    SQLAlchemy wraps the driver's error (`orig`), and its asyncio drivers wrap it once more.
    """
    seen: BaseException | None = error
    while seen is not None:
        code = getattr(seen, "sqlstate", None)
        if isinstance(code, str):
            return code
        seen = getattr(seen, "orig", None) or seen.__cause__
    return ""
