"""Journal records of a SQL store, verified against each other and against their entity.

Rule: nothing is returned after the first bad link, and a journal that ends before its entity does is damaged, too.
"""

from __future__ import annotations

from typing import Any

from interlock.errors import ArchivedError, CompactedError, CorruptionError
from interlock.model.journal.record import HASH_HEX, InvalidRecord, JournalRecord, chain_start, decode_record
from interlock.ports.store import PAGE_MAX
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import Ask, Questions, Statements

VERSION_MAX = 2**62
"""Greater than the version of any entity, and still a number that a page can start after."""


def read_records(
    sql: Statements, tenant: str, entity: str, after: int, limit: int
) -> Questions[tuple[JournalRecord, ...]]:
    """Return the verified records after a version, in order.

    Raises CorruptionError (`journal.chain`) at the first bad link, ArchivedError when they were released to an archive,
    CompactedError when they were removed.
    """
    after, limit = max(0, min(after, VERSION_MAX)), max(0, min(limit, PAGE_MAX))
    # Versions have no gaps, so a page is a range of them; the record before it has the hash that it follows.
    rows = yield Ask(sql.records, (tenant, *split_entity(entity), max(after, 1), limit + (after > 0)))
    if not rows or after >= rows[0][0] or limit == 0:
        return ()
    version, head, archive, archive_version, archive_head = rows[0][:5]
    lines = [(row[5], row[6]) for row in rows if row[5] is not None]
    if archive_version is not None and after < archive_version:
        raise ArchivedError(entity, archive_version, archive) if archive else CompactedError(entity, archive_version)
    previous = chain_start(entity, tenant=tenant)
    if after == archive_version:
        previous, lines = archive_head, lines[:limit]
    elif after > 0:
        if not lines or lines[0][0] != after:
            raise _damaged(entity, after, "the record is missing")
        previous = lines.pop(0)[1][-HASH_HEX - 3 : -3].decode(errors="replace")
    records = _verify(entity, after, previous, lines)
    last = records[-1] if records else None
    if len(records) < limit and (last is None or (last.version, last.head) != (version, head)):
        raise _damaged(entity, version, "the journal ends before the entity does")
    return records


def _verify(entity: str, after: int, previous: str, lines: list[Any]) -> tuple[JournalRecord, ...]:
    records: list[JournalRecord] = []
    for version, (number, line) in enumerate(lines, start=after + 1):
        record = decode_record(line, previous=previous, version=version)
        if isinstance(record, InvalidRecord):
            raise _damaged(entity, version, record.reason)
        if number != version:
            raise _damaged(entity, version, f"its row has the number {number}")
        previous = record.head
        records.append(record)
    return tuple(records)


def _damaged(entity: str, version: int, reason: str) -> CorruptionError:
    return CorruptionError(f"the journal of `{entity}` is damaged at version {version}: {reason}", code="journal.chain")
