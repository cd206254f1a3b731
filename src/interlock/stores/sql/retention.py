"""Removes ended entities, and the beginnings of journals, from a SQL store (`ports.retention`).

Rule 1: each call is one transaction. The first checks, writes the tombstone (or the base) and removes what fits into
`rows`; most entities are removed by it. The last one removes the entity's own row with its lists and counts.
Rule 2: from the tombstone on, an entity row that is still there has a negative version: no swap can succeed, and
nothing loads or lists it.
Rule 3: a base is an entry in the table of archives without an address, so records that follow it are read as those
after an archive; the snapshot is in `journal_base`.
"""

from __future__ import annotations

import msgspec

from interlock.errors import CorruptionError
from interlock.model.encoding.codec import decode_snapshot, encode
from interlock.model.encoding.index_key import index_key
from interlock.ports.store import PAGE_MAX
from interlock.ports.trust.retention import JournalBase, Removal, Tombstone
from interlock.stores.listing import decode_active, decode_texts
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import ANY_STATE, Ask, Name, Questions, Statements
from interlock.stores.sql.field_index import list_indexes


def prune(sql: Statements, tenant: str, tombstone: Tombstone, rows: int) -> Questions[Removal]:
    """Write the tombstone if the entity may go, and remove rows."""
    name = (tenant, *split_entity(tombstone.entity))
    found = yield Ask(sql.entity_to_remove, name)
    if (yield Ask(sql.tombstone, name)):
        return (yield from remove_rest(sql, tenant, tombstone.entity, rows))
    version, head, ended = found[0][:3] if found else (0, "", None)
    if not found or (version, head) != (tombstone.version, tombstone.head):
        return Removal(0, is_done=True, blocked="changed")
    if ended is None:
        return Removal(0, is_done=True, blocked="alive")
    if (yield Ask(sql.has_work, name)):
        return Removal(0, is_done=True, blocked="work")
    if sql.is_newest is not None and (yield Ask(sql.is_newest, name)):
        return Removal(0, is_done=True, blocked="newest")
    yield Ask(sql.add_tombstone, (*name, version, head, tombstone.pruned_ms, tombstone.archive))
    yield Ask(sql.close_entity, name)
    return (yield from remove_rest(sql, tenant, tombstone.entity, rows))


def compact(sql: Statements, tenant: str, base: JournalBase, rows: int) -> Questions[Removal]:
    """Write the base if the journal has its record and a later one, and remove records."""
    name = (tenant, *split_entity(base.entity))
    found = yield Ask(sql.entity_to_remove, name)
    record = yield Ask(sql.head_of, (*name, base.version))
    if not found or found[0][0] <= base.version or not record or record[0][0] != base.head:
        stored = yield Ask(sql.journal_base, name)
        if stored and stored[0][0] == base.version:
            return (yield from remove_rest(sql, tenant, base.entity, rows))
        return Removal(0, is_done=True, blocked="changed")
    _, archive_version, archive = record[0]
    if archive_version is not None and archive:
        return Removal(0, is_done=True, blocked="archived")
    times = (base.time_ms, base.created_ms, base.compacted_ms)
    yield Ask(sql.save_base, (*name, base.version, base.head, encode(base.snapshot), base.digest, *times))
    yield Ask(sql.anchor_journal, (*name, base.version, base.head))
    return (yield from remove_rest(sql, tenant, base.entity, rows))


def remove_rest(sql: Statements, tenant: str, entity: str, rows: int) -> Questions[Removal]:
    """Remove rows of an entity that has a tombstone, or records before its base."""
    name = (tenant, *split_entity(entity))
    buried = yield Ask(sql.tombstone, name)
    if buried:
        version, _, _, _, is_pending = buried[0]
        return (yield from _remove_entity(sql, name, version, rows)) if is_pending else Removal(0, True, version)
    based = yield Ask(sql.journal_base, name)
    if not based or not based[0][7]:
        return Removal(0, is_done=True, version=based[0][0] if based else 0)
    version = based[0][0]
    count, has_more = yield from _delete_records(sql, name, version, rows)
    if not has_more:
        yield Ask(sql.finish_base, (*name, version))
    return Removal(count, not has_more, version)


def _remove_entity(sql: Statements, name: Name, version: int, rows: int) -> Questions[Removal]:
    count, has_more = yield from _delete_records(sql, name, version, rows)
    if not has_more and count < rows:
        keys = yield Ask(sql.delete_keys_of_entity, (*name, rows - count))
        has_more = len(keys) == rows - count
        count += len(keys)
    else:
        has_more = True
    if not has_more:
        yield from _delete_entity(sql, name)
        yield Ask(sql.delete_base, name)
        yield Ask(sql.finish_tombstone, name)
        count += 1
    return Removal(count, not has_more, version)


def _delete_records(sql: Statements, name: Name, version: int, rows: int) -> Questions[tuple[int, bool]]:
    """Delete the next records up to a version; return how many, and whether there are more."""
    first = yield Ask(sql.first_record, (*name, version))
    if not first or first[0][0] is None:
        return 0, False
    last = min(version, max(first[0][0], 0) + rows - 1)
    deleted = yield Ask(sql.delete_records, (*name, last))
    return len(deleted), last < version


def _delete_entity(sql: Statements, name: Name) -> Questions[None]:
    """Delete the row of an entity, and take it out of all lists and counts."""
    tenant, kind, _ = name
    found = yield Ask(sql.entity_to_remove, name)
    if not found:
        return
    _, _, _, revision, active_json, tags_json, snapshot, entered_ms = found[0]
    try:
        active, tags = decode_active(active_json), decode_texts(tags_json)
        context = decode_snapshot(snapshot).context
    except msgspec.MsgspecError as error:
        message = f"cannot decode the row of `{kind}/{name[2]}`: {error}"
        raise CorruptionError(message, code="entity.row") from error
    for state, since_ms in active.items():
        yield Ask(sql.delete_state, (*name, state, since_ms))
    yield Ask(sql.delete_state, (*name, ANY_STATE, entered_ms))
    for tag in tags:
        yield Ask(sql.delete_tag, (*name, tag))
    for each in (yield from list_indexes(sql, tenant)):
        if each.kind == kind and (key := index_key(context.get(each.field), each.form)) is not None:
            yield Ask(sql.delete_field, (*name, each.field, key))
    if sql.delete_archive is not None:
        yield Ask(sql.delete_archive, name)
    yield Ask(sql.delete_entity, name)
    for state in sorted(active):
        yield Ask(sql.add_count, (tenant, kind, revision, state, -1))


def unfinished(sql: Statements, tenant: str, limit: int) -> Questions[tuple[str, ...]]:
    """Return entities of which rows are left."""
    rows = yield Ask(sql.unfinished_tombstones, (tenant, limit))
    rows += yield Ask(sql.unfinished_bases, (tenant, limit - len(rows)))
    return tuple(f"{kind}/{own}" for kind, own in rows)


def find_tip(sql: Statements, tenant: str, entity: str) -> Questions[tuple[int, str]]:
    """Return the last version of an entity and the hash of that record."""
    rows = yield Ask(sql.tip, (tenant, *split_entity(entity)))
    return (rows[0][0], rows[0][1]) if rows and rows[0][0] > 0 else (0, "")


def find_tombstone(sql: Statements, tenant: str, entity: str) -> Questions[Tombstone | None]:
    """Return the tombstone of an entity."""
    rows = yield Ask(sql.tombstone, (tenant, *split_entity(entity)))
    return Tombstone(entity, *rows[0][:4]) if rows else None


def list_tombstones(sql: Statements, tenant: str, after: str | None, limit: int) -> Questions[tuple[Tombstone, ...]]:
    """Return the tombstones after an entity, by kind and id."""
    place = ("", "") if after is None else split_entity(after)
    rows = yield Ask(sql.tombstones, (tenant, *place, max(1, min(limit, PAGE_MAX))))
    return tuple(Tombstone(f"{kind}/{own}", *rest) for kind, own, *rest in rows)


def find_base(sql: Statements, tenant: str, entity: str) -> Questions[JournalBase | None]:
    """Return where the journal of an entity starts. Raises CorruptionError when the row cannot be decoded."""
    rows = yield Ask(sql.journal_base, (tenant, *split_entity(entity)))
    if not rows:
        return None
    version, head, body, *rest = rows[0][:-1]
    try:
        snapshot = decode_snapshot(body)
    except msgspec.MsgspecError as error:
        message = f"cannot decode the snapshot at which the journal of `{entity}` starts: {error}"
        raise CorruptionError(message, code="entity.row") from error
    return JournalBase(entity, version, head, snapshot, *rest)
