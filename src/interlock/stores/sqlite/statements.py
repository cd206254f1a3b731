"""The statements of a SQLite store that answer the questions of `stores.sql`.

Rule: no statement scans a table, except those of `verify`; tests ask SQLite for the plan of each.
"""

from __future__ import annotations

from interlock.model.limits import DOWNTIMES_MAX
from interlock.ports.leases import Downtime
from interlock.stores.sql.database import Ask, Name, Questions, Statements

_ROW = "e.version, e.revision, e.configuration, e.created_ms, e.entered_ms, e.changed_ms, e.ended, e.active, e.tags"
_WORK = """
    kind, id, lane, version, ordinal, name, body, due_ms, attempts, failures, next_ms, owner, error, dead_ms,
    cancelled"""
_AUDIT = "sequence, time_ms, actor, body, head, former"
_EDITION = "kind, revision, digest, sequence, label, saved_ms, written_name"

_INDEX = "kind, field, form, state, done, cursor"

# One entity, with the version that used a key

SELECT_LOADED = """
    SELECT e.version, e.changed_ms, e.snapshot, k.version
    FROM entity AS e LEFT JOIN event_key AS k
      ON k.tenant = e.tenant AND k.kind = e.kind AND k.id = e.id AND k.key = ?
    WHERE e.tenant = ? AND e.kind = ? AND e.id = ?"""

# The tables that the functions below use

SELECT_ALIVE = "SELECT alive_ms FROM alive WHERE tenant = ?"
UPSERT_ALIVE = """
    INSERT INTO alive (tenant, alive_ms) VALUES (?, ?)
    ON CONFLICT (tenant) DO UPDATE SET alive_ms = max(alive_ms, excluded.alive_ms)"""
INSERT_DOWNTIME = "INSERT OR REPLACE INTO downtime (tenant, began_ms, ended_ms) VALUES (?, ?, ?)"
DELETE_OLD_DOWNTIMES = """
    DELETE FROM downtime WHERE tenant = ?1
      AND ended_ms <= (SELECT ended_ms FROM downtime WHERE tenant = ?1 ORDER BY ended_ms DESC LIMIT 1 OFFSET ?2)"""
SELECT_ENDED_HEAD = """
    SELECT e.head, a.version FROM entity AS e LEFT JOIN entity_archive AS a
      ON a.tenant = e.tenant AND a.kind = e.kind AND a.id = e.id
    WHERE e.tenant = ? AND e.kind = ? AND e.id = ? AND e.version = ? AND e.ended IS NOT NULL"""
UPSERT_ARCHIVE = """
    INSERT INTO entity_archive (tenant, kind, id, version, head, archive) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, kind, id)
    DO UPDATE SET version = excluded.version, head = excluded.head, archive = excluded.archive"""
DELETE_JOURNAL = """
    DELETE FROM journal WHERE tenant = ? AND kind = ? AND id = ? AND version > 0 AND version <= ?
      AND position <> (SELECT max(position) FROM journal)"""
EMPTY_NEWEST = """
    UPDATE journal SET version = -position, record = x'', head = ''
    WHERE tenant = ? AND kind = ? AND id = ? AND version > 0 AND version <= ?"""
"""Rule 2 of `feed`: the highest position stays occupied, or the next entry would get it again."""

INCREMENTAL = 2
"""The value of `PRAGMA auto_vacuum` of a file whose free pages can be cut off in steps."""


def record_heartbeat(tenant: str, now_ms: int, gap_ms: int) -> Questions[Downtime | None]:
    """Record that a worker is alive; return the downtime that ends with this, if any."""
    last = yield Ask(SELECT_ALIVE, (tenant,))
    yield Ask(UPSERT_ALIVE, (tenant, now_ms))
    if not last or now_ms - last[0][0] <= gap_ms:
        return None
    yield Ask(INSERT_DOWNTIME, (tenant, last[0][0], now_ms))
    yield Ask(DELETE_OLD_DOWNTIMES, (tenant, DOWNTIMES_MAX))
    return Downtime(last[0][0], now_ms)


def release_journal(name: Name, version: int, archive: str) -> Questions[bool]:
    """Delete the records of an ended entity that is at this version, and store where they are; False otherwise."""
    found = yield Ask(SELECT_ENDED_HEAD, (*name, version))
    if not found:
        return False
    head, archived_version = found[0]
    if archived_version != version:  # otherwise it was released before, to the archive that is stored
        yield Ask(UPSERT_ARCHIVE, (*name, version, head, archive))
        yield Ask(DELETE_JOURNAL, (*name, version))
        yield Ask(EMPTY_NEWEST, (*name, version))
    return True


def reclaim(pages: int) -> Questions[int]:
    """Cut off at most this many free pages of the file; return how many. The file must have been created for it."""
    ((mode,),) = yield Ask("PRAGMA auto_vacuum")
    ((free,),) = yield Ask("PRAGMA freelist_count")
    if mode != INCREMENTAL or free == 0:
        return 0
    wanted = min(pages, free)
    yield Ask(f"PRAGMA incremental_vacuum({wanted:d})")
    return int(wanted)


STATEMENTS = Statements(
    server_clock=False,
    # Lists
    list_by_age=f"""
        SELECT e.entered_ms, e.id, {_ROW} FROM entity AS e
        WHERE e.tenant = ?1 AND e.kind = ?2 AND (e.entered_ms, e.id) > (?3, ?4) AND e.entered_ms < ?5
        ORDER BY e.entered_ms, e.id LIMIT ?6""",  # noqa: S608 - made of constants
    list_by_state=f"""
        SELECT s.entered_ms, s.id, {_ROW}
        FROM entity_state AS s CROSS JOIN entity AS e ON e.tenant = s.tenant AND e.kind = s.kind AND e.id = s.id
        WHERE s.tenant = ?1 AND s.kind = ?2 AND s.state = ?7 AND (s.entered_ms, s.id) > (?3, ?4) AND s.entered_ms < ?5
        ORDER BY s.entered_ms, s.id LIMIT ?6""",  # noqa: S608 - made of constants
    list_by_id=f"""
        SELECT e.entered_ms, e.id, {_ROW} FROM entity AS e
        WHERE e.tenant = ?1 AND e.kind = ?2 AND e.id >= ?3 AND e.id <> ?4
        ORDER BY e.id LIMIT ?5""",  # noqa: S608 - made of constants
    list_by_tag=f"""
        SELECT e.entered_ms, e.id, {_ROW}
        FROM entity_tag AS t CROSS JOIN entity AS e ON e.tenant = t.tenant AND e.kind = t.kind AND e.id = t.id
        WHERE t.tenant = ?1 AND t.kind = ?2 AND t.tag = ?3
        ORDER BY t.id""",  # noqa: S608 - made of constants
    has_many_tagged="SELECT 1 FROM entity_tag WHERE tenant = ?1 AND kind = ?2 AND tag = ?3 LIMIT 1 OFFSET ?4",
    kinds="""
        WITH RECURSIVE found (kind) AS (
          SELECT min(kind) FROM entity WHERE tenant = ?1
          UNION ALL
          SELECT (SELECT min(e.kind) FROM entity AS e WHERE e.tenant = ?1 AND e.kind > found.kind)
          FROM found WHERE found.kind IS NOT NULL)
        SELECT kind FROM found WHERE kind IS NOT NULL""",
    # Indexes on fields
    list_by_field=f"""
        SELECT e.entered_ms, e.id, {_ROW}, f.value
        FROM entity_field AS f CROSS JOIN entity AS e ON e.tenant = f.tenant AND e.kind = f.kind AND e.id = f.id
        WHERE f.tenant = ?1 AND f.kind = ?2 AND f.field = ?3 AND (f.value, f.id) > (?4, ?5) AND f.value < ?6
        ORDER BY f.value, f.id LIMIT ?7""",  # noqa: S608 - made of constants
    count_fields="""
        SELECT count(*) FROM (
          SELECT 1 FROM entity_field
          WHERE tenant = ?1 AND kind = ?2 AND field = ?3 AND value >= ?4 AND value < ?5 LIMIT ?6)""",
    entities_after="""
        SELECT id, version, snapshot FROM entity
        WHERE tenant = ?1 AND kind = ?2 AND id > ?3 ORDER BY id LIMIT ?4""",
    entities_named="SELECT id, version, snapshot FROM entity WHERE tenant = ?1 AND kind = ?2 AND id = ?3",
    has_entities="SELECT 1 FROM entity WHERE tenant = ?1 AND kind = ?2 LIMIT 1",
    indexes=f"SELECT {_INDEX} FROM field_index WHERE tenant = ?1 ORDER BY kind, field",  # noqa: S608 - made of constants
    indexes_of_kind=f"SELECT {_INDEX} FROM field_index WHERE tenant = ?1 AND kind = ?2 ORDER BY field",  # noqa: S608 - made of constants
    index_to_build=f"""
        SELECT {_INDEX} FROM field_index WHERE tenant = ?1 AND kind = ?2 AND field = ?3""",  # noqa: S608 - made of constants
    declare_index="""
        INSERT INTO field_index (tenant, kind, field, form, state) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (tenant, kind, field) DO UPDATE SET form = excluded.form""",
    advance_index="""
        UPDATE field_index SET cursor = ?5, done = ?6, state = ?7
        WHERE tenant = ?1 AND kind = ?2 AND field = ?3 AND cursor = ?4 AND state = 'building'""",
    mark_dropping="UPDATE field_index SET state = 'dropping' WHERE tenant = ?1 AND kind = ?2 AND field = ?3",
    forget_index="DELETE FROM field_index WHERE tenant = ?1 AND kind = ?2 AND field = ?3 AND state = 'dropping'",
    add_fields="""
        INSERT INTO entity_field (tenant, kind, field, value, id)
        SELECT ?1, ?2, ?3, ?6, e.id FROM entity AS e
        WHERE e.tenant = ?1 AND e.kind = ?2 AND e.id = ?4 AND e.version = ?5
        ON CONFLICT DO UPDATE SET id = excluded.id
        RETURNING id""",
    delete_fields="""
        DELETE FROM entity_field WHERE tenant = ?1 AND kind = ?2 AND field = ?3 AND (value, id) IN (
          SELECT value, id FROM entity_field WHERE tenant = ?1 AND kind = ?2 AND field = ?3 LIMIT ?4)
        RETURNING 1""",
    projections="""
        SELECT name, cursor, entries, failures, error, stopped FROM projection WHERE tenant = ?1 ORDER BY name""",
    record_failure="""
        INSERT INTO projection (tenant, name, cursor, failures, error, stopped) VALUES (?1, ?2, ?3, 1, ?4, ?5)
        ON CONFLICT (tenant, name) DO UPDATE
        SET failures = failures + 1, error = excluded.error, stopped = excluded.stopped
        WHERE cursor IS excluded.cursor""",
    hold_steps=(),
    next_generation=None,
    # Records
    records="""
        SELECT e.version, e.head, a.archive, a.version, a.head, j.version, j.record
        FROM entity AS e
        LEFT JOIN entity_archive AS a ON a.tenant = e.tenant AND a.kind = e.kind AND a.id = e.id
        LEFT JOIN journal AS j
          ON j.tenant = ?1 AND j.kind = ?2 AND j.id = ?3 AND j.version >= ?4 AND j.version < ?4 + ?5
        WHERE e.tenant = ?1 AND e.kind = ?2 AND e.id = ?3
        ORDER BY j.version""",
    # Statistics
    counts="SELECT revision, state, entities FROM state_count WHERE tenant = ?1 AND kind = ?2 AND entities > 0",
    dwell="SELECT state, bucket, stays FROM state_dwell WHERE tenant = ?1 AND kind = ?2 AND day_ms >= ?3",
    rates="""
        SELECT minute_ms, steps, conflicts, refusals FROM kind_minute
        WHERE tenant = ?1 AND kind = ?2 AND minute_ms >= ?3 ORDER BY minute_ms""",
    count_overdue="""
        SELECT count(*) FROM (
          SELECT 1 FROM entity_state WHERE tenant = ?1 AND kind = ?2 AND state = ?3 AND entered_ms < ?4 LIMIT ?5)""",
    add_dwell="""
        INSERT INTO state_dwell (tenant, kind, state, day_ms, bucket, stays) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (tenant, kind, day_ms, state, bucket) DO UPDATE SET stays = stays + excluded.stays""",
    add_minutes="""
        INSERT INTO kind_minute (tenant, kind, minute_ms, steps, conflicts, refusals) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (tenant, kind, minute_ms) DO UPDATE
        SET steps = steps + excluded.steps, conflicts = conflicts + excluded.conflicts,
            refusals = refusals + excluded.refusals""",
    delete_dwell="DELETE FROM state_dwell WHERE tenant = ?1 AND kind = ?2 AND day_ms < ?3",
    delete_minutes="DELETE FROM kind_minute WHERE tenant = ?1 AND kind = ?2 AND minute_ms < ?3",
    count_work="""
        SELECT count(*) FROM (
          SELECT 1 FROM work INDEXED BY work_by_time
          WHERE tenant = ?1 AND lane = ?2 AND next_ms IS NOT NULL LIMIT ?3)""",
    last_seen="""
        SELECT what, name, min(day_ms), sum(count), max(last_ms) FROM seen
        WHERE tenant = ?1 AND kind = ?2 GROUP BY what, name""",
    seen_names="""
        WITH RECURSIVE found (name, number) AS (
          SELECT min(name), 1 FROM seen WHERE tenant = ?1 AND kind = ?2 AND what = ?3
          UNION ALL
          SELECT (SELECT min(s.name) FROM seen AS s
                  WHERE s.tenant = ?1 AND s.kind = ?2 AND s.what = ?3 AND s.name > found.name), number + 1
          FROM found WHERE found.name IS NOT NULL AND number < ?4)
        SELECT name, (SELECT min(s.day_ms) FROM seen AS s
                      WHERE s.tenant = ?1 AND s.kind = ?2 AND s.what = ?3 AND s.name = found.name)
        FROM found WHERE name IS NOT NULL""",
    add_seen="""
        INSERT INTO seen (tenant, kind, what, name, day_ms, count, last_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
        ON CONFLICT (tenant, kind, what, name, day_ms) DO UPDATE
        SET count = count + excluded.count, last_ms = max(last_ms, excluded.last_ms)""",
    delete_seen="""
        DELETE FROM seen WHERE tenant = ?1 AND kind = ?2 AND what = ?3 AND name = ?4 AND day_ms < ?5
          AND day_ms < (SELECT max(s.day_ms) FROM seen AS s
                        WHERE s.tenant = ?1 AND s.kind = ?2 AND s.what = ?3 AND s.name = ?4)""",
    # Audit
    lock_audit=None,
    last_audit="SELECT sequence, head FROM audit WHERE tenant = ?1 ORDER BY sequence DESC LIMIT 1",
    configurations="SELECT kind, id, configuration FROM entity WHERE tenant = ?1 AND kind = ?2 AND id = ?3",
    insert_audit="""
        INSERT INTO audit (tenant, sequence, time_ms, actor, body, head) VALUES (?1, ?2, ?3, ?4, ?5, ?6)""",
    audit_before=f"""
        SELECT {_AUDIT} FROM audit WHERE tenant = ?1 AND sequence < ?2 ORDER BY sequence DESC LIMIT ?3""",  # noqa: S608 - made of constants
    audit_of_actor_before=f"""
        SELECT {_AUDIT} FROM audit
        WHERE tenant = ?1 AND actor = ?4 AND sequence < ?2 ORDER BY sequence DESC LIMIT ?3""",  # noqa: S608 - made of constants
    audit_after=f"SELECT {_AUDIT} FROM audit WHERE tenant = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3",  # noqa: S608 - made of constants
    former_audit_after=f"SELECT {_AUDIT} FROM audit WHERE former > ?1 ORDER BY former LIMIT ?2",  # noqa: S608 - made of constants
    # Leases
    acquire_lease="""
        INSERT INTO lease (tenant, name, owner, fence, until_ms) VALUES (?1, ?2, ?3, 1, ?5)
        ON CONFLICT (tenant, name)
        DO UPDATE SET owner = ?3, fence = fence + (owner <> ?3), until_ms = ?5
          WHERE owner = ?3 OR until_ms <= ?4 OR until_ms > ?6
        RETURNING fence""",
    release_lease="""
        UPDATE lease SET owner = ?5, until_ms = 0 WHERE tenant = ?1 AND name = ?2 AND owner = ?3 AND fence = ?4
        RETURNING 1""",
    alive_ahead="SELECT alive_ms, ?2 FROM alive WHERE tenant = ?1 AND alive_ms > ?3",
    correct_alive="UPDATE alive SET alive_ms = ?2 WHERE tenant = ?1 AND alive_ms > ?3",
    correct_downtimes="DELETE FROM downtime WHERE tenant = ?1 AND ended_ms > ?2",
    correct_statistics=(
        "DELETE FROM kind_minute WHERE tenant = ?1 AND minute_ms > ?2",
        "DELETE FROM state_dwell WHERE tenant = ?1 AND day_ms > ?2",
        "DELETE FROM seen WHERE tenant = ?1 AND day_ms > ?2",
    ),
    downtimes="SELECT began_ms, ended_ms FROM downtime WHERE tenant = ?1 AND ended_ms > ?2 ORDER BY ended_ms",
    stamped_after="""
        SELECT DISTINCT kind, id FROM event_key INDEXED BY event_key_by_time
        WHERE tenant = ?1 AND time_ms > ?2 ORDER BY kind, id LIMIT ?3""",
    # Work
    work=f"""
        SELECT {_WORK} FROM work
        WHERE tenant = ?1 AND (kind, id, lane, version, ordinal) > (?2, ?3, ?4, ?5, ?6)
        ORDER BY kind, id, lane, version, ordinal LIMIT ?7""",  # noqa: S608 - made of constants
    dead_work=f"""
        SELECT {_WORK} FROM work
        WHERE tenant = ?1 AND dead_ms IS NOT NULL AND (kind, id, lane, version, ordinal) > (?2, ?3, ?4, ?5, ?6)
        ORDER BY kind, id, lane, version, ordinal LIMIT ?7""",  # noqa: S608 - made of constants
    # Every delivery to a parent or a child asks for the work of one entity. The `+` keeps the planner from using the
    # cursor to choose the index.
    work_of_entity=f"""
        SELECT {_WORK} FROM work
        WHERE tenant = ?1 AND kind = ?7 AND id = ?8 AND (+kind, id, lane, version, ordinal) > (?2, ?3, ?4, ?5, ?6)
          AND (?9 IS NULL OR lane = ?9) AND (?10 IS NULL OR version = ?10) AND (?11 IS NULL OR ordinal = ?11)
          AND (?12 IS NULL OR name = ?12) AND (?13 IS NULL OR (dead_ms IS NOT NULL) = ?13)
        ORDER BY kind, id, lane, version, ordinal LIMIT ?14""",  # noqa: S608 - made of constants
    annotate_work="""
        UPDATE work SET error = ?9
        WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND lane = ?4 AND version = ?5 AND ordinal = ?6
          AND attempts = ?7 AND failures = ?8 AND dead_ms IS NULL
        RETURNING 1""",
    requeue_dead_work="""
        UPDATE work SET dead_ms = NULL, attempts = 0, failures = 0, error = NULL, next_ms = ?7
        WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND lane = ?4 AND version = ?5 AND ordinal = ?6
          AND dead_ms IS NOT NULL
        RETURNING 1""",
    # Verification
    derived_row="""
        SELECT revision, configuration, ended, active, tags, snapshot, entered_ms FROM entity
        WHERE tenant = ?1 AND kind = ?2 AND id = ?3""",
    present_states="""
        SELECT state FROM entity_state
        WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND state = ?4 AND entered_ms = ?5""",
    present_tags="SELECT tag FROM entity_tag WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND tag = ?4",
    journal_keys="""
        WITH own_key AS MATERIALIZED (
          SELECT key, version FROM event_key
          WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND version > ?5 AND version <= ?5 + ?6)
        SELECT j.version, j.record,
               j.time_ms >= (SELECT coalesce(max(time_ms), 0) FROM event_key WHERE tenant = ?1) - ?4, k.key
        FROM journal AS j LEFT JOIN own_key AS k ON k.version = j.version
        WHERE j.tenant = ?1 AND j.kind = ?2 AND j.id = ?3 AND j.version > ?5 AND j.version <= ?5 + ?6
        ORDER BY j.version""",
    state_counts="SELECT kind, revision, state, entities FROM state_count WHERE tenant = ?1 AND entities <> 0",
    walk_entities=None,
    walk_states="""
        SELECT p.kind, p.state, p.entered_ms, p.id, e.revision, e.active, e.entered_ms
        FROM (
          SELECT kind, state, entered_ms, id FROM entity_state
          WHERE tenant = ?1 AND (kind, state, entered_ms, id) > (?2, ?3, ?4, ?5)
          ORDER BY kind, state, entered_ms, id LIMIT ?6) AS p
        LEFT JOIN entity AS e ON e.tenant = ?1 AND e.kind = p.kind AND e.id = p.id
        ORDER BY p.kind, p.state, p.entered_ms, p.id""",
    walk_tags="""
        SELECT p.kind, p.tag, p.id, e.tags
        FROM (
          SELECT kind, tag, id FROM entity_tag
          WHERE tenant = ?1 AND (kind, tag, id) > (?2, ?3, ?4) ORDER BY kind, tag, id LIMIT ?5) AS p
        LEFT JOIN entity AS e ON e.tenant = ?1 AND e.kind = p.kind AND e.id = p.id
        ORDER BY p.kind, p.tag, p.id""",
    walk_keys="""
        SELECT p.kind, p.id, p.key, e.revision
        FROM (
          SELECT kind, id, key FROM event_key
          WHERE tenant = ?1 AND (kind, id, key) > (?2, ?3, ?4) ORDER BY kind, id, key LIMIT ?5) AS p
        LEFT JOIN entity AS e ON e.tenant = ?1 AND e.kind = p.kind AND e.id = p.id
        ORDER BY p.kind, p.id, p.key""",
    walk_work="""
        SELECT p.kind, p.id, p.lane, p.version, p.ordinal, e.revision
        FROM (
          SELECT kind, id, lane, version, ordinal FROM work
          WHERE tenant = ?1 AND (kind, id, lane, version, ordinal) > (?2, ?3, ?4, ?5, ?6)
          ORDER BY kind, id, lane, version, ordinal LIMIT ?7) AS p
        LEFT JOIN entity AS e ON e.tenant = ?1 AND e.kind = p.kind AND e.id = p.id
        ORDER BY p.kind, p.id, p.lane, p.version, p.ordinal""",
    walk_fields="""
        SELECT p.kind, p.field, p.value, p.id, e.snapshot
        FROM (
          SELECT kind, field, value, id FROM entity_field
          WHERE tenant = ?1 AND (kind, field, value, id) > (?2, ?3, ?4, ?5)
          ORDER BY kind, field, value, id LIMIT ?6) AS p
        LEFT JOIN entity AS e ON e.tenant = ?1 AND e.kind = p.kind AND e.id = p.id
        ORDER BY p.kind, p.field, p.value, p.id""",
    present_fields="""
        SELECT field FROM entity_field WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND field = ?4 AND value = ?5""",
    # Retention
    tip="SELECT version, head FROM entity WHERE tenant = ?1 AND kind = ?2 AND id = ?3",
    tombstone="""
        SELECT version, head, pruned_ms, archive, pending FROM entity_tombstone
        WHERE tenant = ?1 AND kind = ?2 AND id = ?3""",
    tombstones="""
        SELECT kind, id, version, head, pruned_ms, archive FROM entity_tombstone
        WHERE tenant = ?1 AND (kind, id) > (?2, ?3) ORDER BY kind, id LIMIT ?4""",
    add_tombstone="""
        INSERT INTO entity_tombstone (tenant, kind, id, version, head, pruned_ms, archive, pending)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1)""",
    finish_tombstone="UPDATE entity_tombstone SET pending = 0 WHERE tenant = ?1 AND kind = ?2 AND id = ?3",
    unfinished_tombstones="""
        SELECT kind, id FROM entity_tombstone INDEXED BY entity_tombstone_pending
        WHERE tenant = ?1 AND pending = 1 ORDER BY kind, id LIMIT ?2""",
    journal_base="""
        SELECT version, head, snapshot, digest, time_ms, created_ms, compacted_ms, pending FROM journal_base
        WHERE tenant = ?1 AND kind = ?2 AND id = ?3""",
    save_base="""
        INSERT INTO journal_base (tenant, kind, id, version, head, snapshot, digest, time_ms, created_ms, compacted_ms,
                                  pending)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 1)
        ON CONFLICT (tenant, kind, id) DO UPDATE
        SET version = excluded.version, head = excluded.head, snapshot = excluded.snapshot, digest = excluded.digest,
            time_ms = excluded.time_ms, created_ms = excluded.created_ms, compacted_ms = excluded.compacted_ms,
            pending = 1""",
    finish_base="UPDATE journal_base SET pending = 0 WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND version = ?4",
    unfinished_bases="""
        SELECT kind, id FROM journal_base INDEXED BY journal_base_pending
        WHERE tenant = ?1 AND pending = 1 ORDER BY kind, id LIMIT ?2""",
    delete_base="DELETE FROM journal_base WHERE tenant = ?1 AND kind = ?2 AND id = ?3",
    entity_to_remove="""
        SELECT version, head, ended, revision, active, tags, snapshot, entered_ms FROM entity
        WHERE tenant = ?1 AND kind = ?2 AND id = ?3""",
    close_entity="UPDATE entity SET version = -version WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND version > 0",
    anchor_journal="""
        INSERT INTO entity_archive (tenant, kind, id, version, head, archive) VALUES (?1, ?2, ?3, ?4, ?5, '')
        ON CONFLICT (tenant, kind, id)
        DO UPDATE SET version = excluded.version, head = excluded.head, archive = excluded.archive""",
    has_work="SELECT 1 FROM work WHERE tenant = ?1 AND kind = ?2 AND id = ?3 LIMIT 1",
    is_newest="""
        SELECT 1 FROM journal
        WHERE position = (SELECT max(position) FROM journal) AND tenant = ?1 AND kind = ?2 AND id = ?3""",
    head_of="""
        SELECT j.head, a.version, a.archive FROM journal AS j LEFT JOIN entity_archive AS a
          ON a.tenant = j.tenant AND a.kind = j.kind AND a.id = j.id
        WHERE j.tenant = ?1 AND j.kind = ?2 AND j.id = ?3 AND j.version = ?4""",
    first_record="SELECT min(version) FROM journal WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND version <= ?4",
    delete_records="""
        DELETE FROM journal WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND version <= ?4
        RETURNING 1""",
    delete_keys_of_entity="""
        DELETE FROM event_key WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND key IN (
          SELECT key FROM event_key WHERE tenant = ?1 AND kind = ?2 AND id = ?3 ORDER BY key LIMIT ?4)
        RETURNING 1""",
    delete_state="""
        DELETE FROM entity_state WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND state = ?4 AND entered_ms = ?5""",
    delete_tag="DELETE FROM entity_tag WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND tag = ?4",
    delete_field="""
        DELETE FROM entity_field WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND field = ?4 AND value = ?5""",
    delete_archive="DELETE FROM entity_archive WHERE tenant = ?1 AND kind = ?2 AND id = ?3",
    delete_entity="DELETE FROM entity WHERE tenant = ?1 AND kind = ?2 AND id = ?3",
    add_count="""
        INSERT INTO state_count (tenant, kind, revision, state, entities) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (tenant, kind, revision, state) DO UPDATE SET entities = entities + excluded.entities""",
    reclaim=reclaim,
    # Expired keys
    key_boundary="SELECT time_ms FROM key_boundary WHERE tenant = ?1",
    move_key_boundary="""
        INSERT INTO key_boundary (tenant, time_ms) VALUES (?1, ?2)
        ON CONFLICT (tenant) DO UPDATE SET time_ms = max(time_ms, excluded.time_ms)""",
    delete_keys="""
        DELETE FROM event_key WHERE (tenant, kind, id, key) IN (
          SELECT tenant, kind, id, key FROM event_key WHERE tenant = ?1 AND time_ms < ?2 ORDER BY time_ms LIMIT ?3)
        RETURNING 1""",
    oldest_key="SELECT min(time_ms) FROM event_key WHERE tenant = ?1",
    # Definitions
    lock_definitions=None,
    definitions=f"SELECT {_EDITION} FROM definition WHERE tenant = ?1",  # noqa: S608 - made of constants
    definitions_of_kind=f"""
        SELECT {_EDITION} FROM definition WHERE tenant = ?1 AND kind = ?2""",  # noqa: S608 - made of constants
    definition_aliases="SELECT kind, name, revision FROM definition_alias WHERE tenant = ?1",
    definition_aliases_of_kind="SELECT kind, name, revision FROM definition_alias WHERE tenant = ?1 AND kind = ?2",
    definition_body="SELECT body FROM definition_body WHERE digest = ?1",
    insert_definition_body="""
        INSERT INTO definition_body AS b (digest, body) VALUES (?1, ?2)
        ON CONFLICT (digest) DO UPDATE SET body = excluded.body WHERE b.body <> excluded.body""",
    insert_definition="""
        INSERT INTO definition (tenant, kind, revision, digest, sequence, label, saved_ms, written_name)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
        ON CONFLICT (tenant, kind, revision, digest) DO NOTHING""",
    insert_definition_alias="""
        INSERT INTO definition_alias (tenant, kind, name, revision) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (tenant, kind, name, revision) DO NOTHING""",
    delete_definition="""
        DELETE FROM definition WHERE tenant = ?1 AND kind = ?2 AND revision = ?3 AND digest = ?4""",
    delete_unused_body="""
        DELETE FROM definition_body
        WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM definition WHERE digest = ?1)""",
    facts="SELECT name, value FROM store_fact WHERE tenant = ?1",
    save_fact="""
        INSERT INTO store_fact (tenant, name, value) VALUES (?1, ?2, ?3)
        ON CONFLICT (tenant, name) DO UPDATE SET value = excluded.value""",
    delete_fact="DELETE FROM store_fact WHERE tenant = ?1 AND name = ?2",
    record_heartbeat=record_heartbeat,
    release_journal=release_journal,
)
