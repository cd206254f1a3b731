"""The records of an answer of a PostgreSQL server, verified: against each other, and against their entity.

Rule: nothing is given out behind the first bad link, and a journal that ends before its entity does is damaged, too.
"""

from __future__ import annotations

from typing import Any

from interlock.errors import ArchivedError, CorruptionError
from interlock.model.journal.record import HASH_HEX, InvalidRecord, JournalRecord, chain_start, decode_record


def verified_records(entity: str, tenant: str, after: int, limit: int, rows: list[Any]) -> tuple[JournalRecord, ...]:
    """The records of an answer, verified: against each other, and against the entity that they belong to."""
    if not rows or after >= rows[0][0] or limit == 0:
        return ()
    version, head, archive, archive_version, archive_head = rows[0][:5]
    lines = [(row[5], row[6]) for row in rows if row[5] is not None]
    if archive_version is not None and after < archive_version:
        raise ArchivedError(entity, archive_version, archive)
    previous = chain_start(entity, tenant=tenant)
    if after == archive_version:
        previous, lines = archive_head, lines[:limit]
    elif after > 0:
        if not lines or lines[0][0] != after:
            raise _broken(entity, after, "the record is missing")
        previous = lines.pop(0)[1][-HASH_HEX - 3 : -3].decode(errors="replace")
    records = _verified(entity, after, previous, lines)
    last = records[-1] if records else None
    if len(records) < limit and (last is None or (last.version, last.head) != (version, head)):
        raise _broken(entity, version, "the journal ends before the entity does")
    return records


def _verified(entity: str, after: int, previous: str, lines: list[tuple[int, bytes]]) -> tuple[JournalRecord, ...]:
    records: list[JournalRecord] = []
    for version, (number, line) in enumerate(lines, start=after + 1):
        record = decode_record(line, previous=previous, version=version)
        if isinstance(record, InvalidRecord):
            raise _broken(entity, version, record.reason)
        if number != version:
            raise _broken(entity, version, f"its row is numbered {number}")
        previous = record.head
        records.append(record)
    return tuple(records)


def _broken(entity: str, version: int, reason: str) -> CorruptionError:
    return CorruptionError(f"the journal of `{entity}` is damaged at version {version}: {reason}", code="journal.chain")
