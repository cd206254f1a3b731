"""The statements of a PostgreSQL store that answer the questions of `stores.sql`.

Rule 1: no statement scans a table, except `stamped_after`, which an operator asks for; tests ask the server for the
plan of each. Lookups are LATERAL and fenced by OFFSET 0, so that the planner has no other way.
Rule 2: the server's clock decides: what `Statements.clock_value` gives is added to `clock_ms()`.
Rule 3: several rows are written in the order of their keys, so that processes wait for each other and never deadlock.
"""

from __future__ import annotations

from interlock.model.limits import DOWNTIMES_MAX
from interlock.ports.leases import Downtime
from interlock.stores.postgres.commit import (
    OWN_STRIPE,
    RELEASE,
    SELECT_RECORDS,
)
from interlock.stores.sql.database import Ask, Name, Questions, Statements

NOTE_ALIVE = "SELECT since_ms, until_ms FROM note_alive($1, $2, $3)"

_ROW = "e.version, e.revision, e.configuration, e.created_ms, e.entered_ms, e.changed_ms, e.ended, e.active, e.tags"
_INDEX = "kind, field, form, state, done, cursor"
_BY_AGE = """
    SELECT s.entered_ms, s.id, {row}
    FROM entity_state AS s CROSS JOIN LATERAL (
      SELECT * FROM entity WHERE tenant = $1 AND kind = $2 AND id = s.id OFFSET 0) AS e
    WHERE s.tenant = $1 AND s.kind = $2 AND s.state = {state} AND (s.entered_ms, s.id) > ($3, $4) AND s.entered_ms < $5
    ORDER BY s.entered_ms, s.id LIMIT $6"""
_WORK = """
    kind, id, lane, version, ordinal, name, body, due_ms, attempts, failures, next_ms, owner, error, dead_ms,
    cancelled"""
_AUDIT = "sequence, time_ms, actor, body, head, former"
_EDITION = "kind, revision, digest, sequence, label, saved_ms, written_name"
LOCK_DEFINITIONS = "SELECT pg_advisory_xact_lock(hashtextextended('interlock/definitions/' || current_schema(), 0))"
_WORK_AFTER = "tenant = $1 AND (kind, id, lane, version, ordinal) > ($2, $3, $4, $5::bigint, $6::bigint)"
_OWNER = """
    LEFT JOIN LATERAL (
      SELECT revision, active, tags, entered_ms AS since, snapshot FROM entity
      WHERE tenant = $1 AND kind = p.kind AND id = p.id OFFSET 0) AS e ON true"""


def record_heartbeat(tenant: str, now_ms: int, gap_ms: int) -> Questions[Downtime | None]:  # noqa: ARG001 - see rule 2
    """Record that a worker is alive; return the downtime that ends with this, by the server's clock."""
    ((since_ms, until_ms),) = yield Ask(NOTE_ALIVE, (tenant, gap_ms, DOWNTIMES_MAX))
    return None if since_ms is None else Downtime(since_ms, until_ms)


def release_journal(name: Name, version: int, archive: str) -> Questions[bool]:
    """Delete the records of an ended entity that is at this version, and store where they are; False otherwise."""
    ((is_released,),) = yield Ask(RELEASE, (*name, version, archive))
    return bool(is_released)


def reclaim(pages: int) -> Questions[int]:  # noqa: ARG001 - a partition is dropped as a whole
    """Drop the partitions of the journal that are empty; return how many. The server frees the pages of the others."""
    ((dropped,),) = yield Ask("SELECT drop_empty_partitions()")
    return len(dropped)


STATEMENTS = Statements(
    server_clock=True,
    # Lists
    list_by_age=_BY_AGE.format(row=_ROW, state="''"),
    list_by_state=_BY_AGE.format(row=_ROW, state="$7"),
    list_by_id=f"""
        SELECT e.entered_ms, e.id, {_ROW}
        FROM entity AS e
        WHERE e.tenant = $1 AND e.kind = $2 AND e.id >= $3 AND e.id <> $4
        ORDER BY e.id LIMIT $5""",  # noqa: S608 - made of constants
    list_by_tag=f"""
        SELECT e.entered_ms, e.id, {_ROW}
        FROM entity_tag AS t CROSS JOIN LATERAL (
          SELECT * FROM entity WHERE tenant = $1 AND kind = $2 AND id = t.id OFFSET 0) AS e
        WHERE t.tenant = $1 AND t.kind = $2 AND t.tag = $3
        ORDER BY t.id""",  # noqa: S608 - made of constants
    has_many_tagged="""
        SELECT 1 FROM entity_tag WHERE tenant = $1 AND kind = $2 AND tag = $3 ORDER BY id LIMIT 1 OFFSET $4""",
    kinds="""
        WITH RECURSIVE found (kind) AS (
          (SELECT kind FROM entity WHERE tenant = $1 ORDER BY kind LIMIT 1)
          UNION ALL
          SELECT (SELECT e.kind FROM entity AS e WHERE e.tenant = $1 AND e.kind > f.kind ORDER BY e.kind LIMIT 1)
          FROM found AS f WHERE f.kind IS NOT NULL)
        SELECT kind FROM found WHERE kind IS NOT NULL""",
    # Indexes on fields
    list_by_field=f"""
        SELECT e.entered_ms, e.id, {_ROW}, f.value
        FROM (
          SELECT value, id FROM entity_field
          WHERE tenant = $1 AND kind = $2 AND field = $3 AND (value, id) > ($4::bytea, $5) AND value < $6
          ORDER BY value, id LIMIT $7) AS f
        CROSS JOIN LATERAL (
          SELECT * FROM entity WHERE tenant = $1 AND kind = $2 AND id = f.id OFFSET 0) AS e
        ORDER BY f.value, f.id""",  # noqa: S608 - made of constants
    count_fields="""
        SELECT count(*) FROM (
          SELECT FROM entity_field
          WHERE tenant = $1 AND kind = $2 AND field = $3 AND value >= $4 AND value < $5 LIMIT $6) AS found""",
    entities_after="""
        SELECT id, version, snapshot FROM entity
        WHERE tenant = $1 AND kind = $2 AND id > $3 ORDER BY id LIMIT $4""",
    entities_named="""
        SELECT e.id, e.version, e.snapshot
        FROM unnest($3::text[]) AS i (id) CROSS JOIN LATERAL (
          SELECT * FROM entity WHERE tenant = $1 AND kind = $2 AND id = i.id OFFSET 0) AS e""",
    has_entities="SELECT 1 FROM entity WHERE tenant = $1 AND kind = $2 ORDER BY id LIMIT 1",
    indexes=f"SELECT {_INDEX} FROM field_index WHERE tenant = $1 ORDER BY kind, field",  # noqa: S608 - made of constants
    indexes_of_kind=f"SELECT {_INDEX} FROM field_index WHERE tenant = $1 AND kind = $2 ORDER BY field",  # noqa: S608 - made of constants
    index_to_build=f"""
        SELECT {_INDEX} FROM field_index WHERE tenant = $1 AND kind = $2 AND field = $3 FOR NO KEY UPDATE""",  # noqa: S608 - made of constants
    declare_index="""
        INSERT INTO field_index (tenant, kind, field, form, state) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (tenant, kind, field) DO UPDATE SET form = excluded.form""",
    advance_index="""
        UPDATE field_index SET cursor = $5, done = $6, state = $7
        WHERE tenant = $1 AND kind = $2 AND field = $3 AND cursor = $4 AND state = 'building'""",
    mark_dropping="UPDATE field_index SET state = 'dropping' WHERE tenant = $1 AND kind = $2 AND field = $3",
    forget_index="DELETE FROM field_index WHERE tenant = $1 AND kind = $2 AND field = $3 AND state = 'dropping'",
    add_fields="""
        WITH held AS MATERIALIZED (
          SELECT i.id, i.value
          FROM unnest($4::text[], $5::bigint[], $6::bytea[]) AS i (id, version, value)
          CROSS JOIN LATERAL (
            SELECT FROM entity AS e
            WHERE e.tenant = $1 AND e.kind = $2 AND e.id = i.id AND e.version = i.version
            FOR SHARE OF e) AS e),
        added AS (
          INSERT INTO entity_field (tenant, kind, field, value, id)
          SELECT $1, $2, $3, value, id FROM held
          ON CONFLICT DO NOTHING)
        SELECT id FROM held""",
    delete_fields="""
        DELETE FROM entity_field WHERE ctid = ANY (ARRAY (
          SELECT ctid FROM entity_field
          WHERE tenant = $1 AND kind = $2 AND field = $3 ORDER BY value, id LIMIT $4))
        RETURNING 1""",
    projections="""
        SELECT name, cursor, entries, failures, error, stopped FROM projection WHERE tenant = $1 ORDER BY name""",
    record_failure="""
        INSERT INTO projection AS p (tenant, name, cursor, failures, error, stopped) VALUES ($1, $2, $3, 1, $4, $5)
        ON CONFLICT (tenant, name) DO UPDATE
        SET failures = p.failures + 1, error = excluded.error, stopped = excluded.stopped
        WHERE p.cursor IS NOT DISTINCT FROM excluded.cursor""",
    hold_steps=("SET LOCAL lock_timeout = '200ms'", "LOCK TABLE entity IN SHARE ROW EXCLUSIVE MODE"),
    next_generation="""
        INSERT INTO field_generation AS g (tenant, generation) VALUES ($1, 1)
        ON CONFLICT (tenant) DO UPDATE SET generation = g.generation + 1""",
    # Records
    records=SELECT_RECORDS,
    # Statistics
    counts="""
        SELECT revision, state, sum(entities)::bigint FROM state_count
        WHERE tenant = $1 AND kind = $2
        GROUP BY revision, state HAVING sum(entities) > 0 ORDER BY revision, state""",
    dwell="""
        SELECT state, bucket, sum(stays)::bigint FROM state_dwell
        WHERE tenant = $1 AND kind = $2 AND day_ms >= $3
        GROUP BY state, bucket ORDER BY state, bucket""",
    rates="""
        SELECT minute_ms, steps, conflicts, refusals FROM kind_minute
        WHERE tenant = $1 AND kind = $2 AND minute_ms >= $3 ORDER BY minute_ms""",
    count_overdue="""
        SELECT count(*) FROM (
          SELECT FROM entity_state WHERE tenant = $1 AND kind = $2 AND state = $3 AND entered_ms < $4 LIMIT $5)
          AS found""",
    add_dwell="""
        INSERT INTO state_dwell AS d (tenant, kind, state, day_ms, bucket, stays)
        SELECT $1, i.kind, i.state, i.day_ms, i.bucket, i.stays
        FROM unnest($2::text[], $3::text[], $4::bigint[], $5::integer[], $6::bigint[])
          AS i (kind, state, day_ms, bucket, stays)
        ORDER BY i.kind COLLATE "C", i.day_ms, i.state COLLATE "C", i.bucket
        ON CONFLICT (tenant, kind, day_ms, state, bucket) DO UPDATE SET stays = d.stays + excluded.stays""",
    add_minutes="""
        INSERT INTO kind_minute AS m (tenant, kind, minute_ms, steps, conflicts, refusals)
        SELECT $1, i.kind, i.minute_ms, i.steps, i.conflicts, i.refusals
        FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
          AS i (kind, minute_ms, steps, conflicts, refusals)
        ORDER BY i.kind COLLATE "C", i.minute_ms
        ON CONFLICT (tenant, kind, minute_ms) DO UPDATE
        SET steps = m.steps + excluded.steps, conflicts = m.conflicts + excluded.conflicts,
            refusals = m.refusals + excluded.refusals""",
    delete_dwell="DELETE FROM state_dwell WHERE tenant = $1 AND kind = $2 AND day_ms < $3",
    delete_minutes="DELETE FROM kind_minute WHERE tenant = $1 AND kind = $2 AND minute_ms < $3",
    count_work="""
        SELECT count(*) FROM (
          SELECT FROM work WHERE tenant = $1 AND lane = $2 AND next_ms IS NOT NULL LIMIT $3) AS found""",
    last_seen="""
        SELECT what, name, min(day_ms), sum(count)::bigint, max(last_ms) FROM seen
        WHERE tenant = $1 AND kind = $2 GROUP BY what, name ORDER BY what, name""",
    seen_names="""
        WITH RECURSIVE found (name, day_ms, number) AS (
          (SELECT name, day_ms, 1 FROM seen
           WHERE tenant = $1 AND kind = $2 AND what = $3 ORDER BY name, day_ms LIMIT 1)
          UNION ALL
          SELECT n.name, n.day_ms, f.number + 1
          FROM found AS f CROSS JOIN LATERAL (
            SELECT s.name, s.day_ms FROM seen AS s
            WHERE s.tenant = $1 AND s.kind = $2 AND s.what = $3 AND s.name > f.name
            ORDER BY s.name, s.day_ms LIMIT 1) AS n
          WHERE f.number < $4::integer)
        SELECT name, day_ms FROM found""",
    add_seen="""
        INSERT INTO seen AS s (tenant, kind, what, name, day_ms, count, last_ms)
        SELECT $1, i.kind, i.what, i.name, i.day_ms, i.count, i.last_ms
        FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[])
          AS i (kind, what, name, day_ms, count, last_ms)
        ORDER BY i.kind COLLATE "C", i.what COLLATE "C", i.name COLLATE "C", i.day_ms
        ON CONFLICT (tenant, kind, what, name, day_ms) DO UPDATE
        SET count = s.count + excluded.count, last_ms = greatest(s.last_ms, excluded.last_ms)""",
    delete_seen="""
        DELETE FROM seen AS s
        USING unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) AS i (kind, what, name, before_ms)
        CROSS JOIN LATERAL (
          SELECT d.day_ms FROM seen AS d
          WHERE d.tenant = $1 AND d.kind = i.kind AND d.what = i.what AND d.name = i.name
          ORDER BY d.day_ms DESC LIMIT 1) AS newest
        WHERE s.tenant = $1 AND s.kind = i.kind AND s.what = i.what AND s.name = i.name
          AND s.day_ms < least(i.before_ms, newest.day_ms)""",
    # Audit: one chain for each tenant, so one writer at a time
    lock_audit="""
        SELECT pg_advisory_xact_lock(hashtextextended('interlock/audit/' || current_schema() || '/' || $1::text, 0))""",
    last_audit="SELECT sequence, head FROM audit WHERE tenant = $1 ORDER BY sequence DESC LIMIT 1",
    configurations="""
        SELECT e.kind, e.id, e.configuration FROM unnest($2::text[], $3::text[]) AS i (kind, id)
        CROSS JOIN LATERAL (
          SELECT kind, id, configuration FROM entity
          WHERE tenant = $1 AND kind = i.kind AND id = i.id OFFSET 0) AS e""",
    insert_audit="""
        INSERT INTO audit (tenant, sequence, time_ms, actor, body, head)
        SELECT $1, i.* FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bytea[], $6::text[]) AS i""",
    audit_before=f"""
        SELECT {_AUDIT} FROM audit WHERE tenant = $1 AND sequence < $2 ORDER BY sequence DESC LIMIT $3""",  # noqa: S608 - made of constants
    audit_of_actor_before=f"""
        SELECT {_AUDIT} FROM audit
        WHERE tenant = $1 AND actor = $4 AND sequence < $2 ORDER BY sequence DESC LIMIT $3""",  # noqa: S608 - made of constants
    audit_after=f"SELECT {_AUDIT} FROM audit WHERE tenant = $1 AND sequence > $2 ORDER BY sequence LIMIT $3",  # noqa: S608 - made of constants
    former_audit_after=f"SELECT {_AUDIT} FROM audit WHERE former > $1 ORDER BY former LIMIT $2",  # noqa: S608 - made of constants
    # Leases
    acquire_lease="""
        INSERT INTO lease AS l (tenant, name, owner, fence, until_ms) VALUES ($1, $2, $3, 1, clock_ms() + $5::bigint)
        ON CONFLICT (tenant, name)
        DO UPDATE SET owner = excluded.owner, fence = l.fence + (l.owner <> excluded.owner)::integer,
                      until_ms = excluded.until_ms
          WHERE l.owner = excluded.owner OR l.until_ms <= clock_ms() + $4::bigint
            OR l.until_ms > clock_ms() + $6::bigint
        RETURNING fence""",
    release_lease="""
        UPDATE lease SET owner = $5, until_ms = 0 WHERE tenant = $1 AND name = $2 AND owner = $3 AND fence = $4
        RETURNING 1""",
    alive_ahead="""
        SELECT alive_ms, clock_ms() + $2::bigint FROM alive
        WHERE tenant = $1 AND alive_ms > clock_ms() + $3::bigint""",
    correct_alive="""
        UPDATE alive SET alive_ms = clock_ms() + $2::bigint WHERE tenant = $1 AND alive_ms > clock_ms() + $3::bigint""",
    correct_downtimes="DELETE FROM downtime WHERE tenant = $1 AND ended_ms > clock_ms() + $2::bigint",
    correct_statistics=(
        "DELETE FROM kind_minute WHERE tenant = $1 AND minute_ms > $2::bigint",
        "DELETE FROM state_dwell WHERE tenant = $1 AND day_ms > $2::bigint",
        "DELETE FROM seen WHERE tenant = $1 AND day_ms > $2::bigint",
    ),
    downtimes="SELECT began_ms, ended_ms FROM downtime WHERE tenant = $1 AND ended_ms > $2 ORDER BY ended_ms",
    stamped_after="""
        SELECT kind, id FROM entity WHERE tenant = $1 AND changed_ms > $2::bigint ORDER BY kind, id LIMIT $3""",
    # Work
    work=f"""
        SELECT {_WORK} FROM work WHERE {_WORK_AFTER}
        ORDER BY kind, id, lane, version, ordinal LIMIT $7""",  # noqa: S608 - made of constants
    dead_work=f"""
        SELECT {_WORK} FROM work WHERE {_WORK_AFTER} AND dead_ms IS NOT NULL
        ORDER BY kind, id, lane, version, ordinal LIMIT $7""",  # noqa: S608 - made of constants
    work_of_entity=f"""
        SELECT {_WORK} FROM work
        WHERE {_WORK_AFTER} AND kind = $7 AND id = $8 AND ($9::text IS NULL OR lane = $9)
          AND ($10::bigint IS NULL OR version = $10) AND ($11::bigint IS NULL OR ordinal = $11)
          AND ($12::text IS NULL OR name = $12) AND ($13::boolean IS NULL OR (dead_ms IS NOT NULL) = $13)
        ORDER BY kind, id, lane, version, ordinal LIMIT $14""",  # noqa: S608 - made of constants
    annotate_work="""
        UPDATE work SET error = $9
        WHERE tenant = $1 AND kind = $2 AND id = $3 AND lane = $4 AND version = $5 AND ordinal = $6
          AND attempts = $7 AND failures = $8 AND dead_ms IS NULL
        RETURNING 1""",
    requeue_dead_work="""
        UPDATE work SET dead_ms = NULL, attempts = 0, failures = 0, error = NULL, next_ms = clock_ms() + $7::bigint
        WHERE tenant = $1 AND kind = $2 AND id = $3 AND lane = $4 AND version = $5 AND ordinal = $6
          AND dead_ms IS NOT NULL
        RETURNING 1""",
    # Verification
    derived_row="""
        SELECT revision, configuration, ended, active, tags, snapshot, entered_ms FROM entity
        WHERE tenant = $1 AND kind = $2 AND id = $3""",
    present_states="""
        SELECT g.state
        FROM unnest($4::text[], $5::bigint[]) AS g (state, since) CROSS JOIN LATERAL (
          SELECT FROM entity_state
          WHERE tenant = $1 AND kind = $2 AND state = g.state AND entered_ms = g.since AND id = $3 OFFSET 0) AS s""",
    present_tags="""
        SELECT g.tag
        FROM unnest($4::text[]) AS g (tag) CROSS JOIN LATERAL (
          SELECT FROM entity_tag WHERE tenant = $1 AND kind = $2 AND tag = g.tag AND id = $3 OFFSET 0) AS t""",
    journal_keys="""
        SELECT j.version, j.record, j.at >= now() - make_interval(secs => $4::bigint / 1000.0), k.key
        FROM entity AS e CROSS JOIN LATERAL (
          SELECT version, record, at FROM journal
          WHERE tenant = $1 AND kind = $2 AND id = $3 AND version > $5 AND version <= $5 + $6
            AND at >= e.created_at AND at <= e.last_at OFFSET 0) AS j
        LEFT JOIN (
          SELECT key, version FROM event_key WHERE tenant = $1 AND kind = $2 AND id = $3) AS k
          ON k.version = j.version
        WHERE e.tenant = $1 AND e.kind = $2 AND e.id = $3
        ORDER BY j.version""",
    state_counts="""
        SELECT kind, revision, state, sum(entities)::bigint FROM state_count
        WHERE tenant = $1 GROUP BY kind, revision, state""",
    walk_entities="""
        WITH page AS MATERIALIZED (
          SELECT kind, id, entered_ms FROM entity
          WHERE tenant = $1 AND (kind, id) > ($2, $3) ORDER BY kind, id LIMIT $4)
        SELECT p.kind, p.id, s.id IS NOT NULL
        FROM page AS p LEFT JOIN LATERAL (
          SELECT id FROM entity_state
          WHERE tenant = $1 AND kind = p.kind AND state = '' AND entered_ms = p.entered_ms AND id = p.id
          OFFSET 0) AS s ON true
        ORDER BY p.kind, p.id""",
    walk_states=f"""
        WITH page AS MATERIALIZED (
          SELECT kind, state, entered_ms, id FROM entity_state
          WHERE tenant = $1 AND (kind, state, entered_ms, id) > ($2, $3, $4::bigint, $5)
          ORDER BY kind, state, entered_ms, id LIMIT $6)
        SELECT p.kind, p.state, p.entered_ms, p.id, e.revision, e.active, e.since
        FROM page AS p {_OWNER}
        ORDER BY p.kind, p.state, p.entered_ms, p.id""",  # noqa: S608 - made of constants
    walk_tags=f"""
        WITH page AS MATERIALIZED (
          SELECT kind, tag, id FROM entity_tag
          WHERE tenant = $1 AND (kind, tag, id) > ($2, $3, $4) ORDER BY kind, tag, id LIMIT $5)
        SELECT p.kind, p.tag, p.id, e.tags
        FROM page AS p {_OWNER}
        ORDER BY p.kind, p.tag, p.id""",  # noqa: S608 - made of constants
    walk_keys=f"""
        WITH page AS MATERIALIZED (
          SELECT kind, id, key FROM event_key
          WHERE tenant = $1 AND (kind, id, key) > ($2, $3, $4) ORDER BY kind, id, key LIMIT $5)
        SELECT p.kind, p.id, p.key, e.revision
        FROM page AS p {_OWNER}
        ORDER BY p.kind, p.id, p.key""",  # noqa: S608 - made of constants
    walk_work=f"""
        WITH page AS MATERIALIZED (
          SELECT kind, id, lane, version, ordinal FROM work
          WHERE tenant = $1 AND (kind, id, lane, version, ordinal) > ($2, $3, $4, $5::bigint, $6::bigint)
          ORDER BY kind, id, lane, version, ordinal LIMIT $7)
        SELECT p.kind, p.id, p.lane, p.version, p.ordinal, e.revision
        FROM page AS p {_OWNER}
        ORDER BY p.kind, p.id, p.lane, p.version, p.ordinal""",  # noqa: S608 - made of constants
    walk_fields=f"""
        WITH page AS MATERIALIZED (
          SELECT kind, field, value, id FROM entity_field
          WHERE tenant = $1 AND (kind, field, value, id) > ($2, $3, $4::bytea, $5)
          ORDER BY kind, field, value, id LIMIT $6)
        SELECT p.kind, p.field, p.value, p.id, e.snapshot
        FROM page AS p {_OWNER}
        ORDER BY p.kind, p.field, p.value, p.id""",  # noqa: S608 - made of constants
    present_fields="""
        SELECT g.field
        FROM unnest($4::text[], $5::bytea[]) AS g (field, value) CROSS JOIN LATERAL (
          SELECT FROM entity_field
          WHERE tenant = $1 AND kind = $2 AND field = g.field AND value = g.value AND id = $3 OFFSET 0) AS f""",
    # Retention
    tip="SELECT version, head FROM entity WHERE tenant = $1 AND kind = $2 AND id = $3",
    tombstone="""
        SELECT version, head, pruned_ms, archive, pending FROM entity_tombstone
        WHERE tenant = $1 AND kind = $2 AND id = $3""",
    tombstones="""
        SELECT kind, id, version, head, pruned_ms, archive FROM entity_tombstone
        WHERE tenant = $1 AND (kind, id) > ($2, $3) ORDER BY kind, id LIMIT $4""",
    add_tombstone="""
        INSERT INTO entity_tombstone (tenant, kind, id, version, head, pruned_ms, archive, pending)
        VALUES ($1, $2, $3, $4, $5, $6, $7, true)""",
    finish_tombstone="UPDATE entity_tombstone SET pending = false WHERE tenant = $1 AND kind = $2 AND id = $3",
    unfinished_tombstones="""
        SELECT kind, id FROM entity_tombstone WHERE tenant = $1 AND pending ORDER BY kind, id LIMIT $2""",
    journal_base="""
        SELECT version, head, snapshot, digest, time_ms, created_ms, compacted_ms, pending FROM journal_base
        WHERE tenant = $1 AND kind = $2 AND id = $3""",
    save_base="""
        INSERT INTO journal_base (tenant, kind, id, version, head, snapshot, digest, time_ms, created_ms, compacted_ms,
                                  pending)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, true)
        ON CONFLICT (tenant, kind, id) DO UPDATE
        SET version = excluded.version, head = excluded.head, snapshot = excluded.snapshot, digest = excluded.digest,
            time_ms = excluded.time_ms, created_ms = excluded.created_ms, compacted_ms = excluded.compacted_ms,
            pending = true""",
    finish_base="UPDATE journal_base SET pending = false WHERE tenant = $1 AND kind = $2 AND id = $3 AND version = $4",
    unfinished_bases="""
        SELECT kind, id FROM journal_base WHERE tenant = $1 AND pending ORDER BY kind, id LIMIT $2""",
    delete_base="DELETE FROM journal_base WHERE tenant = $1 AND kind = $2 AND id = $3",
    entity_to_remove="""
        SELECT version, head, ended, revision, active, tags, snapshot, entered_ms FROM entity
        WHERE tenant = $1 AND kind = $2 AND id = $3 FOR UPDATE""",
    close_entity="UPDATE entity SET version = -version WHERE tenant = $1 AND kind = $2 AND id = $3 AND version > 0",
    anchor_journal="""
        UPDATE entity SET archive_version = $4, archive_head = $5, archive = ''
        WHERE tenant = $1 AND kind = $2 AND id = $3""",
    has_work="SELECT 1 FROM work WHERE tenant = $1 AND kind = $2 AND id = $3 ORDER BY lane, version LIMIT 1",
    is_newest=None,
    head_of="""
        SELECT encode(substring(j.record FROM octet_length(j.record) - 34 FOR 32), 'escape'),
               e.archive_version, e.archive
        FROM entity AS e CROSS JOIN LATERAL (
          SELECT record FROM journal
          WHERE tenant = $1 AND kind = $2 AND id = $3 AND version = $4 AND at >= e.created_at AND at <= e.last_at
          OFFSET 0) AS j
        WHERE e.tenant = $1 AND e.kind = $2 AND e.id = $3""",
    first_record="""
        SELECT version FROM journal WHERE tenant = $1 AND kind = $2 AND id = $3 AND version <= $4
        ORDER BY version LIMIT 1""",
    delete_records="""
        DELETE FROM journal WHERE tenant = $1 AND kind = $2 AND id = $3 AND version <= $4
        RETURNING 1""",
    delete_keys_of_entity="""
        DELETE FROM event_key WHERE ctid = ANY (ARRAY (
          SELECT ctid FROM event_key WHERE tenant = $1 AND kind = $2 AND id = $3 ORDER BY key LIMIT $4))
        RETURNING 1""",
    delete_state="""
        DELETE FROM entity_state WHERE tenant = $1 AND kind = $2 AND id = $3 AND state = $4 AND entered_ms = $5""",
    delete_tag="DELETE FROM entity_tag WHERE tenant = $1 AND kind = $2 AND id = $3 AND tag = $4",
    delete_field="""
        DELETE FROM entity_field WHERE tenant = $1 AND kind = $2 AND id = $3 AND field = $4 AND value = $5""",
    delete_archive=None,
    delete_entity="DELETE FROM entity WHERE tenant = $1 AND kind = $2 AND id = $3",
    add_count=f"""
        INSERT INTO state_count AS c (tenant, kind, revision, state, stripe, entities)
        VALUES ($1, $2, $3, $4, {OWN_STRIPE}, $5)
        ON CONFLICT (tenant, kind, revision, state, stripe) DO UPDATE SET entities = c.entities + excluded.entities""",  # noqa: S608 - made of constants
    reclaim=reclaim,
    # Expired keys
    key_boundary="SELECT floor(extract(epoch FROM at) * 1000)::bigint FROM key_boundary WHERE tenant = $1",
    move_key_boundary="""
        INSERT INTO key_boundary AS b (tenant, at) VALUES ($1, to_timestamp($2::bigint / 1000.0))
        ON CONFLICT (tenant) DO UPDATE SET at = greatest(b.at, excluded.at)""",
    delete_keys="""
        DELETE FROM event_key WHERE ctid = ANY (ARRAY (
          SELECT ctid FROM event_key WHERE tenant = $1 AND at < to_timestamp($2::bigint / 1000.0) LIMIT $3))
        RETURNING 1""",
    oldest_key=None,
    # Definitions
    lock_definitions=LOCK_DEFINITIONS,
    definitions=f"SELECT {_EDITION} FROM definition WHERE tenant = $1",  # noqa: S608 - made of constants
    definitions_of_kind=f"""
        SELECT {_EDITION} FROM definition WHERE tenant = $1 AND kind = $2""",  # noqa: S608 - made of constants
    definition_aliases="SELECT kind, name, revision FROM definition_alias WHERE tenant = $1",
    definition_aliases_of_kind="SELECT kind, name, revision FROM definition_alias WHERE tenant = $1 AND kind = $2",
    definition_body="SELECT body FROM definition_body WHERE digest = $1",
    insert_definition_body="""
        INSERT INTO definition_body AS b (digest, body) VALUES ($1, $2)
        ON CONFLICT (digest) DO UPDATE SET body = excluded.body WHERE b.body <> excluded.body""",
    insert_definition="""
        INSERT INTO definition (tenant, kind, revision, digest, sequence, label, saved_ms, written_name)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (tenant, kind, revision, digest) DO NOTHING""",
    insert_definition_alias="""
        INSERT INTO definition_alias (tenant, kind, name, revision) VALUES ($1, $2, $3, $4)
        ON CONFLICT (tenant, kind, name, revision) DO NOTHING""",
    delete_definition="""
        DELETE FROM definition WHERE tenant = $1 AND kind = $2 AND revision = $3 AND digest = $4""",
    delete_unused_body="""
        DELETE FROM definition_body
        WHERE digest = $1 AND NOT EXISTS (SELECT 1 FROM definition WHERE digest = $1)""",
    facts="SELECT name, value FROM store_fact WHERE tenant = $1",
    save_fact="""
        INSERT INTO store_fact (tenant, name, value) VALUES ($1, $2, $3)
        ON CONFLICT (tenant, name) DO UPDATE SET value = excluded.value""",
    delete_fact="DELETE FROM store_fact WHERE tenant = $1 AND name = $2",
    record_heartbeat=record_heartbeat,
    release_journal=release_journal,
)
