"""Change one byte of a stored audit after the other, and verify each time: `python -m tests.crash.audit_bytes`.

Half of the entries are in journals, half are rows of the audit. The positions are spread evenly over all stored bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import interlock
from interlock.model.audit import AuditRow
from interlock.observe.audit_proof import AuditProof, verify_audit
from interlock.stores.registry import open_store

CHART = interlock.loads("""
interlock: 1
kind: door
revision: 1.0.0
initial: a
states: {a: {on: {opened: b}}, b: {on: {closed: a}}}
""")
ENTRIES_EACH = 100
"""Entries of one journal."""


class Place(NamedTuple):
    """Where a byte is: a table with its column, the row, and the offset; and what must be named."""

    table: str
    column: str
    row: int
    offset: int
    named: str


async def fill(url: str, entries: int) -> None:
    """Write half of the entries into journals, and half into the audit."""
    async with interlock.open(url, charts=[CHART], work=False) as opened:
        for number in range(entries // 2 // ENTRIES_EACH or 1):
            entity = f"door/{number}"
            await opened.create(entity, principal={"id": "ada"})
            for turn in range(min(ENTRIES_EACH, entries // 2) - 1):
                await opened.send(entity, "closed" if turn % 2 else "opened", principal={"id": "ada"})
        assert opened.store.audit is not None
        for start in range(0, entries // 2, 250):
            rows = (
                AuditRow("door/0", "opened", "denied", "roles", each, actor=f"eve{each}", actor_kind="user")
                for each in range(start, min(start + 250, entries // 2))
            )
            await opened.store.audit.append_audit(tuple(rows))


def places(path: Path, number: int) -> Iterator[Place]:
    """Yield places that are spread evenly over the bytes of records and rows."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT 'journal', 'record', position, length(record), kind || '/' || id FROM journal UNION ALL "
            "SELECT 'audit', 'body', sequence, length(body), 'audit' FROM audit UNION ALL "
            "SELECT 'audit', 'head', sequence, length(head), 'audit' FROM audit UNION ALL "
            "SELECT 'audit', 'actor', sequence, length(actor), 'audit' FROM audit"
        ).fetchall()
    total = sum(each[3] for each in found)
    step, wanted, before = total / number, 0.0, 0
    for table, column, row, size, named in found:
        while wanted < before + size:
            yield Place(table, column, row, int(wanted) - before, named)
            wanted += step
        before += size


def change_byte(path: Path, place: Place) -> bytes:
    """Change one byte of the file's rows; return the value that was there."""
    key = "position" if place.table == "journal" else "sequence"
    with closing(sqlite3.connect(path)) as connection, connection:
        for trigger in ("audit_no_update", "audit_no_delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        where = f"WHERE {key} = ?"
        ((value,),) = connection.execute(f"SELECT {place.column} FROM {place.table} {where}", (place.row,))
        is_text = isinstance(value, str)
        data = bytearray(value.encode() if is_text else value)
        data[place.offset] ^= 1
        new = data.decode() if is_text else bytes(data)
        connection.execute(f"UPDATE {place.table} SET {place.column} = ? {where}", (new, place.row))
    return value  # type: ignore[no-any-return]  # as the column has it


def restore(path: Path, place: Place, value: bytes) -> None:
    """Put the value back."""
    key = "position" if place.table == "journal" else "sequence"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {place.table} SET {place.column} = ? WHERE {key} = ?", (value, place.row))


async def verified(url: str) -> AuditProof:
    """Verify a store."""
    store = await open_store(url)
    try:
        return await verify_audit(store, now_ms=0)
    finally:
        await store.close()


async def run(folder: Path, *, entries: int, positions: int) -> list[str]:
    """Change a byte at each position; return the positions where the damage was not named at its place."""
    path = folder / "audit.db"
    url = f"sqlite:///{path}"
    await fill(url, entries)
    whole = await verified(url)
    wrong = [f"damage in a whole store: {each}" for each in whole.problems]
    count = 0
    for place in list(places(path, positions)):
        before = change_byte(path, place)
        found = await verified(url)
        restore(path, place, before)
        count += 1
        is_named = [each.place for each in found.problems] == [place.named]
        if not is_named or (place.table == "audit" and found.problems[0].number != place.row):
            wrong.append(f"{place}: {found.problems}")
    sys.stdout.write(f"{whole.rows + whole.entries:,} entries, {count} bytes changed, {len(wrong)} not named\n")
    return wrong


def main() -> int:
    """Run with the given numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--positions", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = asyncio.run(run(Path(folder), entries=given.entries, positions=given.positions))
    for each in wrong:
        sys.stdout.write(f"{each}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
