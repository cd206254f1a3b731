"""The statements that commit steps on a PostgreSQL server, each a whole transaction, and the values they take.

Rule 1: one round trip, one flush. Version, head and key are checked in the statement that writes. A step that is
missing in the answer wrote nothing: another writer was first, or its entity is locked now. A statement never waits for
the row of an entity, because a transaction of a caller may hold it for long, and the others of the batch must not wait.
Rule 2: entities are created in the order of the arrays, so statements that overlap wait for each other and never
deadlock. Counters are updated after all entities, in a separate order, on a stripe chosen by connection.
Rule 3: an entity occurs at most once in a batch. List changes are net differences, because one statement cannot delete
and insert the same row.
Rule 4: rows are found by their whole key, and the statements leave the planner no other way: a lookup is LATERAL and
fenced (a lock, or OFFSET 0), and a row that was found is changed by its ctid. A plan made while tables were empty would
otherwise scan whole tenants once they are full; at 300 entities that was already several times slower.
Rule 5: work that a step creates, finishes and cancels is written by a function in the same statement. Work is claimed
concurrently with appends, and only the statements of a function see what was committed meanwhile. A fence is checked,
and its row locked, after the entity is locked.
Rule 6: the server's time of an entry never goes back, whatever its clock does: reads are bounded by it.
Rule 7: the due time of work is sent as the distance from its entry; the server adds it to its own clock.
Rule 8: a step that changes no list takes a shorter statement, and so does a step without work.
Rule 9: every statement ends with the generation of the indexed fields that it was prepared for, and is undone when that
is not the present one. The keys of fields are written by a function, for the reason of rule 5: an index builder commits
while a step waits for its entity.
Rule 10: an entity that was pruned is not created again. A creation that waited for the transaction that pruned it does
not see the tombstone, so a function looks once more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from interlock.model.encoding.codec import encode
from interlock.model.journal.work import WorkDelta
from interlock.ports.store import Append
from interlock.stores.sql.commit_plan import CommitPlan, JournalTip, ListChanges, plan_commit, split_entity
from interlock.stores.sql.database import ANY_STATE
from interlock.stores.sql.field_index import IndexedFields, field_changes
from interlock.stores.sql.work_lists import place_values, queue_line

NO_FENCE = (None, None, None, None)
"""Instead of lane, version, ordinal and attempt: the step does not depend on a claim."""

NO_CHANGES = ListChanges([], [], [], [], [])
NO_WORK = WorkDelta()
BODY = 5
"""The index of the body in a row of new work."""

STRIPES = 64
"""Rows of one counter: twice as many as connections usually write."""

OWN_STRIPE = f"pg_backend_pid() % {STRIPES}"
"""The stripe of a statement that is a whole transaction."""

JOINED_STRIPE = "(-1 - pg_current_xact_id()::text::bigint % 1000000000)::integer"
"""The stripe of a transaction of the caller, which may stay open: rows that no other transaction writes."""

CREATION_PATIENCE_MS = 500
"""How long creations wait for a transaction that creates the same entity. The longest of ours takes as long as a flush;
a longer one is the caller's, and then this one waits apart (`writer`, rule 7)."""

# The steps of a batch: `$1` is the tenant, then an array for each column of `GIVEN`; `GIVEN_FENCES` has four more.

_GIVEN = """
    unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bytea[], $8::text[], $9::text[],
           $10::bytea[], $11::text[], $12::bytea[], $13::bytea[], $14::bytea[], $15::bigint[], $16::bigint[],
           $17::bigint[]%s)
    WITH ORDINALITY AS i (kind, id, expected, previous, key, record, head, revision,
                          configuration, ended, active, tags, snapshot, journal_bytes, entered_ms,
                          changed_ms%s, n)"""
GIVEN = _GIVEN % ("", "")
GIVEN_FENCES = _GIVEN % (
    ", $46::text[], $47::bigint[], $48::bigint[], $49::bigint[]",
    ", work_lane, work_version, work_ordinal, attempt",
)

_HELD = """
      LEFT JOIN LATERAL (
        SELECT w.attempts FROM work AS w
        WHERE w.tenant = $1 AND w.kind = i.kind AND w.id = i.id AND w.lane = i.work_lane
          AND w.version = i.work_version AND w.ordinal = i.work_ordinal AND f.at IS NOT NULL
        FOR UPDATE OF w) AS h ON true
      WHERE i.attempt IS NULL OR h.attempts = i.attempt"""

_ITEMS = """
    WITH item AS MATERIALIZED (
      SELECT i.*, f.place, f.at
      FROM {given}
      CROSS JOIN LATERAL (
        SELECT e.ctid AS place, greatest(statement_timestamp(), e.last_at) AS at
        FROM entity AS e
        WHERE e.tenant = $1 AND e.kind = i.kind AND e.id = i.id AND e.version = i.expected AND e.head = i.previous
          AND NOT EXISTS (
            SELECT FROM event_key AS k WHERE k.tenant = $1 AND k.kind = i.kind AND k.id = i.id AND k.key = i.key)
        FOR NO KEY UPDATE OF e SKIP LOCKED) AS f{held}),"""
_MOVED = """
    moved AS (
      UPDATE entity AS e
      SET version = i.expected + 1, revision = i.revision, configuration = i.configuration, ended = i.ended,
          active = i.active, tags = i.tags, snapshot = i.snapshot, head = i.head, journal_bytes = i.journal_bytes,
          entered_ms = i.entered_ms, changed_ms = i.changed_ms, last_at = i.at
      FROM item AS i
      WHERE e.ctid = ANY (ARRAY (SELECT place FROM item)) AND e.kind = i.kind AND e.id = i.id AND e.version = i.expected
      RETURNING i.n, e.kind, e.id, e.version, i.key, i.record, i.at),"""

_STEPS = _ITEMS.format(given=GIVEN, held="") + _MOVED
_FENCED_STEPS = _ITEMS.format(given=GIVEN_FENCES, held=_HELD) + _MOVED

_PATIENCE = f"(SELECT set_config('lock_timeout', '{CREATION_PATIENCE_MS}ms', true)) IS NOT NULL"
_CREATIONS = """
    WITH item AS MATERIALIZED (
      SELECT i.*, statement_timestamp() AS at FROM {given}
      WHERE {before} AND NOT EXISTS (
        SELECT FROM entity_tombstone AS t WHERE t.tenant = $1 AND t.kind = i.kind AND t.id = i.id)
      ORDER BY i.kind, i.id),
    made AS (
      INSERT INTO entity (tenant, kind, id, version, revision, configuration, ended, active, tags, snapshot, head,
                          journal_bytes, created_ms, entered_ms, changed_ms, created_at, last_at)
      SELECT $1::text, kind, id, 1, revision, configuration, ended, active, tags, snapshot, head,
             journal_bytes, changed_ms, entered_ms, changed_ms, at, at
      FROM item ORDER BY kind, id
      ON CONFLICT (tenant, kind, id) DO NOTHING
      RETURNING kind, id, version),
    moved AS (
      SELECT i.n, m.kind, m.id, m.version, i.key, i.record, i.at
      FROM made AS m JOIN item AS i ON i.kind = m.kind AND i.id = m.id),"""

_KEPT = """
    kept_record AS (
      INSERT INTO journal (tenant, kind, id, version, record, at)
      SELECT $1, kind, id, version, record, at FROM moved),
    kept_key AS (
      INSERT INTO event_key (tenant, kind, id, key, version, at)
      SELECT $1, kind, id, key, version, at FROM moved)"""

# List and count changes of a batch: the first array is the number of the step in the batch.

_LISTED = """,
    left_state AS (
      DELETE FROM entity_state WHERE ctid = ANY (ARRAY (
        SELECT f.place
        FROM moved AS m JOIN unnest($18::bigint[], $19::text[], $20::bigint[]) AS x (n, state, since) ON x.n = m.n
        CROSS JOIN LATERAL (
          SELECT s.ctid AS place FROM entity_state AS s
          WHERE s.tenant = $1 AND s.kind = m.kind AND s.state = x.state AND s.entered_ms = x.since AND s.id = m.id
          OFFSET 0) AS f))),
    entered_state AS (
      INSERT INTO entity_state (tenant, kind, state, entered_ms, id)
      SELECT $1, m.kind, x.state, x.entered_ms, m.id
      FROM moved AS m JOIN unnest($21::bigint[], $22::text[], $23::bigint[]) AS x (n, state, entered_ms) ON x.n = m.n),
    left_tag AS (
      DELETE FROM entity_tag WHERE ctid = ANY (ARRAY (
        SELECT f.place
        FROM moved AS m JOIN unnest($24::bigint[], $25::text[]) AS x (n, tag) ON x.n = m.n
        CROSS JOIN LATERAL (
          SELECT t.ctid AS place FROM entity_tag AS t
          WHERE t.tenant = $1 AND t.kind = m.kind AND t.tag = x.tag AND t.id = m.id OFFSET 0) AS f))),
    entered_tag AS (
      INSERT INTO entity_tag (tenant, kind, tag, id)
      SELECT $1, m.kind, x.tag, m.id
      FROM moved AS m JOIN unnest($26::bigint[], $27::text[]) AS x (n, tag) ON x.n = m.n
      ON CONFLICT DO NOTHING),
    counted AS (
      INSERT INTO state_count AS c (tenant, kind, revision, state, stripe, entities)
      SELECT $1, m.kind, x.revision, x.state, {stripe}, sum(x.change)
      FROM moved AS m
      JOIN unnest($28::bigint[], $29::text[], $30::text[], $31::bigint[]) AS x (n, revision, state, change) ON x.n = m.n
      GROUP BY m.kind, x.revision, x.state
      HAVING sum(x.change) <> 0
      ORDER BY m.kind COLLATE "C", x.revision COLLATE "C", x.state COLLATE "C"
      ON CONFLICT (tenant, kind, revision, state, stripe) DO UPDATE SET entities = c.entities + excluded.entities)"""

_ANSWER = " SELECT n FROM moved"

# Work is written after all entities are updated, and only if some were.

_WORKED_ANSWER = """
    SELECT n FROM moved WHERE (
      SELECT keep_work($1, array_agg(m.n), array_agg(m.kind), array_agg(m.id),
                       $32::bigint[], $33::text[], $34::bigint[], $35::bigint[], $36::text[], $37::text[],
                       $38::bytea[], $39::bigint[], $40::bigint[],
                       $41::bigint[], $42::text[], $43::bigint[], $44::bigint[], $45::boolean[])
      FROM moved AS m)"""

# The last values of every statement: the generation of the indexed fields, then the keys that the batch changes.

_GENERATION = """
    (${generation}::bigint = coalesce((SELECT generation FROM field_generation WHERE tenant = $1), 0)
     OR refuse_generation())"""
_FIELDS = """
    AND (cardinality(${left}::bigint[]) + cardinality(${entered}::bigint[]) = 0 OR {keep_fields})"""
_KEEP_FIELDS = """keep_fields(
      $1, {moved}, ${left}::bigint[], ${left_field}::text[], ${left_value}::bytea[],
      ${entered}::bigint[], ${entered_field}::text[], ${entered_value}::bytea[])"""
_MOVED_TOGETHER = "array_agg(m.n), array_agg(m.kind), array_agg(m.id)"
_MOVED_ALONE = "ARRAY[1::bigint], ARRAY[$2::text], ARRAY[$3::text]"
_FIELD_VALUES = ("generation", "left", "left_field", "left_value", "entered", "entered_field", "entered_value")


def _with_generation(statement: str) -> str:
    """Return a statement that takes one more value: the generation of the indexed fields."""
    numbers = _field_numbers(statement)
    return statement + _next_condition(statement) + _GENERATION.format(**numbers)


def with_fields(statement: str, *, alone: bool = False) -> str:
    """Return a statement that takes seven more values: the generation, and the keys that its steps change."""
    numbers = _field_numbers(statement)
    keep_fields = _KEEP_FIELDS.format(moved=_MOVED_ALONE if alone else _MOVED_TOGETHER, **numbers)
    if not alone:
        keep_fields = f"(SELECT {keep_fields} FROM moved AS m)"  # noqa: S608 - made of constants
    return _with_generation(statement) + _FIELDS.format(keep_fields=keep_fields, **numbers)


def _field_numbers(statement: str) -> dict[str, int]:
    first = max(int(each) for each in re.findall(r"\$(\d+)", statement)) + 1
    return {name: number for number, name in enumerate(_FIELD_VALUES, start=first)}


def _next_condition(statement: str) -> str:
    """Return what joins a condition to the statement, which ends with its answer."""
    return " WHERE" if statement.endswith(_ANSWER) else " AND"


_NOT_PRUNED = " AND (SELECT refuse_pruned($1, array_agg(m.kind), array_agg(m.id)) FROM moved AS m)"
"""Of creations only: rule 10."""

_LISTED_HERE = _LISTED.format(stripe=OWN_STRIPE)
_CREATIONS_HERE = _CREATIONS.format(before=_PATIENCE, given=GIVEN) + _KEPT + _LISTED_HERE

COMMIT_STEPS = _with_generation(_STEPS + _KEPT + _ANSWER)
COMMIT_STEPS_WITH_LISTS = with_fields(_STEPS + _KEPT + _LISTED_HERE + _ANSWER)
COMMIT_STEPS_WITH_WORK = with_fields(_FENCED_STEPS + _KEPT + _LISTED_HERE + _WORKED_ANSWER)
COMMIT_CREATIONS = with_fields(_CREATIONS_HERE + _ANSWER) + _NOT_PRUNED
COMMIT_CREATIONS_WITH_WORK = with_fields(_CREATIONS_HERE + _WORKED_ANSWER) + _NOT_PRUNED

# A single step takes scalar parameters in the same order: arrays of one element cost twice as much.

_STEP = """
    WITH item AS MATERIALIZED (
      SELECT e.ctid AS place, greatest(statement_timestamp(), e.last_at) AS at
      FROM entity AS e
      WHERE e.tenant = $1 AND e.kind = $2 AND e.id = $3 AND e.version = $4 AND e.head = $5
        AND NOT EXISTS (
          SELECT FROM event_key AS k WHERE k.tenant = $1 AND k.kind = $2 AND k.id = $3 AND k.key = $6)
      FOR NO KEY UPDATE OF e SKIP LOCKED),
    moved AS (
      UPDATE entity AS e
      SET version = e.version + 1, revision = $9, configuration = $10, ended = $11, active = $12, tags = $13,
          snapshot = $14, head = $8, journal_bytes = $15, entered_ms = $16, changed_ms = $17,
          last_at = (SELECT at FROM item)
      WHERE e.ctid = (SELECT place FROM item) AND e.version = $4
      RETURNING 1::bigint AS n, e.version, e.last_at AS at),
    kept_record AS (
      INSERT INTO journal (tenant, kind, id, version, record, at)
      SELECT $1, $2, $3, version, $7::bytea, at FROM moved),
    kept_key AS (
      INSERT INTO event_key (tenant, kind, id, key, version, at)
      SELECT $1, $2, $3, $6, version, at FROM moved)"""

_LISTED_ALONE = """,
    left_state AS (
      DELETE FROM entity_state WHERE ctid = ANY (ARRAY (
        SELECT f.place
        FROM moved, unnest($18::text[], $19::bigint[]) AS x (state, since)
        CROSS JOIN LATERAL (
          SELECT s.ctid AS place FROM entity_state AS s
          WHERE s.tenant = $1 AND s.kind = $2 AND s.state = x.state AND s.entered_ms = x.since AND s.id = $3
          OFFSET 0) AS f))),
    entered_state AS (
      INSERT INTO entity_state (tenant, kind, state, entered_ms, id)
      SELECT $1, $2, x.state, x.entered_ms, $3
      FROM moved, unnest($20::text[], $21::bigint[]) AS x (state, entered_ms)),
    left_tag AS (
      DELETE FROM entity_tag AS t USING moved
      WHERE t.tenant = $1 AND t.kind = $2 AND t.id = $3 AND t.tag = ANY ($22::text[])),
    entered_tag AS (
      INSERT INTO entity_tag (tenant, kind, tag, id)
      SELECT $1, $2, x.tag, $3 FROM moved, unnest($23::text[]) AS x (tag)
      ON CONFLICT DO NOTHING),
    counted AS (
      INSERT INTO state_count AS c (tenant, kind, revision, state, stripe, entities)
      SELECT $1, $2, x.revision, x.state, {stripe}, x.change
      FROM moved, unnest($24::text[], $25::text[], $26::bigint[]) AS x (revision, state, change)
      ORDER BY x.revision COLLATE "C", x.state COLLATE "C"
      ON CONFLICT (tenant, kind, revision, state, stripe) DO UPDATE SET entities = c.entities + excluded.entities)"""

_WORKED_ALONE = """
    SELECT n FROM moved
    WHERE keep_work($1, ARRAY[1::bigint], ARRAY[$2::text], ARRAY[$3::text],
                    $27::bigint[], $28::text[], $29::bigint[], $30::bigint[], $31::text[], $32::text[],
                    $33::bytea[], $34::bigint[], $35::bigint[],
                    $36::bigint[], $37::text[], $38::bigint[], $39::bigint[], $40::boolean[])"""

_LISTED_ALONE_HERE = _LISTED_ALONE.format(stripe=OWN_STRIPE)

COMMIT_STEP = _with_generation(_STEP + _ANSWER)
COMMIT_STEP_WITH_LISTS = with_fields(_STEP + _LISTED_ALONE_HERE + _ANSWER, alone=True)
COMMIT_STEP_WITH_WORK = with_fields(_STEP + _LISTED_ALONE_HERE + _WORKED_ALONE, alone=True)

# The same in a transaction of the caller (`joined`). The answer also has the number of the transaction.

_LISTED_JOINED = _LISTED_ALONE.format(stripe=JOINED_STRIPE)
_CREATION_JOINED = _CREATIONS.format(before="true", given=GIVEN) + _KEPT + _LISTED.format(stripe=JOINED_STRIPE)


def _numbered(statement: str) -> str:
    return statement.replace("SELECT n FROM moved", "SELECT n, pg_current_xact_id()::text FROM moved")


JOIN_STEP = _numbered(_with_generation(_STEP + _ANSWER))
JOIN_STEP_WITH_LISTS = _numbered(with_fields(_STEP + _LISTED_JOINED + _ANSWER, alone=True))
JOIN_STEP_WITH_WORK = _numbered(with_fields(_STEP + _LISTED_JOINED + _WORKED_ALONE, alone=True))
JOIN_CREATION = _numbered(with_fields(_CREATION_JOINED + _ANSWER) + _NOT_PRUNED)
JOIN_CREATION_WITH_WORK = _numbered(with_fields(_CREATION_JOINED + _WORKED_ANSWER) + _NOT_PRUNED)

# Creations that cannot be committed because a transaction of a caller creates the same entity: it holds this lock.

CREATION_LOCK = (
    "hashtextextended('interlock/create/' || {schema} || '/' || {tenant} || '/' || {kind} || '/' || {id}, 0)"
)
_CREATED = CREATION_LOCK.format(schema="current_schema()", tenant="$1::text", kind="i.kind", id="i.id")
SELECT_CREATED_ELSEWHERE = f"""
    SELECT i.n FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS i (kind, id, n)
    WHERE NOT pg_try_advisory_xact_lock_shared({_CREATED})"""  # noqa: S608 - made of constants

# Tips and keys, and whether a commit waits for standbys: then a key counts once they have it.

WAITS = "current_setting('synchronous_standby_names') <> ''"

SELECT_TIPS = f"""
    SELECT i.n, e.version, e.revision, e.active, e.tags, e.head, e.journal_bytes, e.entered_ms, (
      SELECT k.version FROM event_key AS k WHERE k.tenant = $1 AND k.kind = i.kind AND k.id = i.id AND k.key = i.key),
      {WAITS}
    FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS i (kind, id, key, n)
    LEFT JOIN LATERAL (
      SELECT * FROM entity AS e WHERE e.tenant = $1 AND e.kind = i.kind AND e.id = i.id OFFSET 0) AS e ON true"""  # noqa: S608 - made of constants
SELECT_PRUNED = """
    SELECT i.n, t.version FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS i (kind, id, n)
    CROSS JOIN LATERAL (
      SELECT version FROM entity_tombstone WHERE tenant = $1 AND kind = i.kind AND id = i.id OFFSET 0) AS t"""
SELECT_GENERATION = "SELECT coalesce((SELECT generation FROM field_generation WHERE tenant = $1), 0)"
SELECT_ATTEMPTS = """
    SELECT i.n, w.attempts
    FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[])
      WITH ORDINALITY AS i (kind, id, lane, version, ordinal, n)
    LEFT JOIN LATERAL (
      SELECT attempts FROM work AS w
      WHERE w.tenant = $1 AND w.kind = i.kind AND w.id = i.id AND w.lane = i.lane
        AND w.version = i.version AND w.ordinal = i.ordinal OFFSET 0) AS w ON true"""
SELECT_LOADED = f"""
    SELECT e.version, e.changed_ms, e.snapshot, (
      SELECT k.version FROM event_key AS k WHERE k.tenant = $1 AND k.kind = $2 AND k.id = $3 AND k.key = $4),
      {WAITS}, e.revision, e.active, e.tags, e.head, e.journal_bytes, e.entered_ms
    FROM entity AS e
    WHERE e.tenant = $1 AND e.kind = $2 AND e.id = $3"""  # noqa: S608 - made of constants
SELECT_RECORD = """
    SELECT j.record
    FROM entity AS e CROSS JOIN LATERAL (
      SELECT record FROM journal
      WHERE tenant = $1 AND kind = $2 AND id = $3 AND version = $4 AND at >= e.created_at AND at <= e.last_at
      OFFSET 0) AS j
    WHERE e.tenant = $1 AND e.kind = $2 AND e.id = $3"""
SELECT_RECORDS = """
    SELECT e.version, e.head, e.archive, e.archive_version, e.archive_head, j.version, j.record
    FROM entity AS e LEFT JOIN LATERAL (
      SELECT version, record FROM journal
      WHERE tenant = $1 AND kind = $2 AND id = $3 AND version >= $4 AND version < $4 + $5
        AND at >= e.created_at AND at <= e.last_at
      OFFSET 0) AS j ON true
    WHERE e.tenant = $1 AND e.kind = $2 AND e.id = $3
    ORDER BY j.version"""

# Release a journal that an archive has. The entity, its head and its keys stay. Repeating it changes nothing.

RELEASE = """
    WITH released AS (
      UPDATE entity SET archive = $5, archive_version = version, archive_head = head
      WHERE tenant = $1 AND kind = $2 AND id = $3 AND version = $4 AND ended IS NOT NULL
        AND archive_version IS DISTINCT FROM version
      RETURNING created_at, last_at),
    dropped AS (
      DELETE FROM journal AS j USING released AS r
      WHERE j.tenant = $1 AND j.kind = $2 AND j.id = $3 AND j.at >= r.created_at AND j.at <= r.last_at)
    SELECT EXISTS (SELECT FROM released) OR EXISTS (
      SELECT FROM entity WHERE tenant = $1 AND kind = $2 AND id = $3 AND version = $4 AND archive_version = $4)"""

# One step


class WorkRows(NamedTuple):
    """New work, work that is finished or cancelled, and the attempt that must still be the newest."""

    created: list[tuple[Any, ...]]
    removed: list[tuple[Any, ...]]
    fence: tuple[Any, ...]


class KeptFields(NamedTuple):
    """The fields whose keys every step writes, and the generation of that set."""

    generation: int
    fields: IndexedFields


class PreparedStep(NamedTuple):
    """A planned step as rows: its own, those of its lists, its work and its indexed fields, and their size in bytes.

    `fields` has the changed fields, with their keys before and after; `generation` is that of the set of fields.
    """

    plan: CommitPlan
    row: tuple[Any, ...]
    changes: ListChanges | None
    work: WorkRows | None
    fields: tuple[tuple[str, bytes | None, bytes | None], ...]
    generation: int
    size: int

    @property
    def has_lists(self) -> bool:
        """Whether the step changes lists or indexed fields."""
        return self.changes is not None or bool(self.fields)

    @property
    def is_fenced(self) -> bool:
        """Whether the step is committed only while an attempt is the newest."""
        return self.work is not None and self.work.fence != NO_FENCE


def prepare_step(append: Append, tip: JournalTip, kept: KeptFields) -> PreparedStep:
    """Return the rows of an append on this tip.

    Raises CorruptionError when the tip cannot be decoded, UsageError when the append lacks what its fields were before.
    """
    plan = plan_commit(append, tip)
    after, line = plan.tip, plan.line
    row = (
        *split_entity(append.entity),
        append.expected,
        tip.head,
        append.entry.key,
        line,
        after.head,
        after.revision,
        plan.configuration,
        append.snapshot.ended,
        after.active,
        after.tags,
        append.snapshot_json,
        after.journal_bytes,
        after.entered_ms,
        append.entry.event.time_ms,
    )
    work = _work_rows(append)
    body_bytes = 0 if work is None else sum(len(each[BODY]) for each in work.created)
    fields = tuple(field_changes(append, kept.fields[append.kind])) if append.kind in kept.fields else ()
    size = len(append.snapshot_json) + len(line) + body_bytes
    return PreparedStep(plan, row, _list_changes(plan), work, fields, kept.generation, size)


def _list_changes(plan: CommitPlan) -> ListChanges | None:
    """Return the changes of a plan, with the row under which the entity as a whole is listed."""
    changes, before_ms, entered_ms = plan.changes, plan.before.entered_ms, plan.tip.entered_ms
    if changes is None or before_ms == entered_ms:
        return changes
    assert entered_ms is not None, "every committed entity has entered its configuration"
    exited = [] if before_ms is None else [(ANY_STATE, before_ms)]
    return replace(
        changes,
        states_left=changes.states_left + exited,
        states_entered=[*changes.states_entered, (ANY_STATE, entered_ms)],
    )


def _work_rows(append: Append) -> WorkRows | None:
    """Return the work of a step; work that is both finished and cancelled counts as finished."""
    delta = append.work
    if delta == NO_WORK and append.fence is None:
        return None
    finished, at_ms = set(delta.finished), append.entry.event.at_ms
    created = [
        (
            *place_values(each.id),
            queue_line(each.id.lane, each.name),
            each.name,
            encode(each.body),
            each.due_ms,
            None if each.due_ms is None else each.due_ms - at_ms,
        )
        for each in delta.created
    ]
    removed = [(*place_values(each), each not in finished) for each in sorted(finished.union(delta.cancelled))]
    fence: tuple[Any, ...] = NO_FENCE
    if append.fence is not None:
        work_id, attempt = append.fence
        fence = (*place_values(work_id), attempt)
    return WorkRows(created, removed, fence)


# The values of the statements


def values_of_step(tenant: str, step: PreparedStep) -> tuple[Any, ...]:
    """Return the values of `COMMIT_STEP`, or of its variants when the step changes lists or has work."""
    if not step.has_lists and step.work is None:
        return (tenant, *step.row, step.generation)
    changes = step.changes or NO_CHANGES
    return (
        tenant,
        *step.row,
        *columns(changes.states_left, 2),
        *columns(changes.states_entered, 2),
        changes.tags_left,
        changes.tags_entered,
        *columns(changes.counts, 3),
        *(() if step.work is None else _work_columns([step])),
        *_field_columns([step]),
    )


def values_of_steps(tenant: str, batch: Sequence[PreparedStep], *, has_lists: bool) -> tuple[Any, ...]:
    """Return the values of `COMMIT_STEPS`, or with list changes, of the statements that write those too."""
    if not has_lists:
        return (tenant, *_step_columns(batch), batch[0].generation)
    return (tenant, *_step_columns(batch), *_list_columns(batch), *_field_columns(batch))


def _step_columns(batch: Sequence[PreparedStep]) -> tuple[list[Any], ...]:
    return columns([each.row for each in batch], len(batch[0].row))


def _list_columns(batch: Sequence[PreparedStep]) -> tuple[list[Any], ...]:
    numbered = [(n, each.changes) for n, each in enumerate(batch, start=1) if each.changes is not None]
    return (
        *columns([(n, *each) for n, changes in numbered for each in changes.states_left], 3),
        *columns([(n, *each) for n, changes in numbered for each in changes.states_entered], 3),
        *columns([(n, each) for n, changes in numbered for each in changes.tags_left], 2),
        *columns([(n, each) for n, changes in numbered for each in changes.tags_entered], 2),
        *columns([(n, *each) for n, changes in numbered for each in changes.counts], 4),
    )


def values_with_work(tenant: str, batch: Sequence[PreparedStep], *, has_fences: bool) -> tuple[Any, ...]:
    """Return the values of the statements that write lists and work; with fences, of `COMMIT_STEPS_WITH_WORK`."""
    fences = [NO_FENCE if each.work is None else each.work.fence for each in batch]
    values = (tenant, *_step_columns(batch), *_list_columns(batch), *_work_columns(batch))
    fence_columns = columns(fences, len(NO_FENCE)) if has_fences else ()
    return (*values, *fence_columns, *_field_columns(batch))


def _field_columns(batch: Sequence[PreparedStep]) -> tuple[Any, ...]:
    """Return the generation of a batch and the keys that it changes. All of its steps have the same generation."""
    changes = [(n, *change) for n, each in enumerate(batch, start=1) for change in each.fields]
    return (
        batch[0].generation,
        *columns([(n, field, before) for n, field, before, _ in changes if before is not None], 3),
        *columns([(n, field, after) for n, field, _, after in changes if after is not None], 3),
    )


def _work_columns(batch: Sequence[PreparedStep]) -> tuple[list[Any], ...]:
    numbered = [(n, each.work) for n, each in enumerate(batch, start=1) if each.work is not None]
    return (
        *columns([(n, *each) for n, work in numbered for each in work.created], 9),
        *columns([(n, *each) for n, work in numbered for each in work.removed], 5),
    )


def columns(rows: Sequence[tuple[Any, ...]], width: int) -> tuple[list[Any], ...]:
    """Return rows as one list for each column: an array parameter each."""
    return tuple(map(list, zip(*rows, strict=True))) if rows else tuple([] for _ in range(width))
