"""Refusals that an earlier release recorded: kept in the audit with their bytes and their heads; nothing is lost."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from interlock.model.audit import FORMER_STREAM, AuditRow, next_head
from interlock.model.encoding.codec import encode
from interlock.model.journal.record import chain_start
from interlock.ports.store import Store
from interlock.stores.registry import open_store
from interlock.trust.audit_chain import verify_chain
from tests.support.audit import audit_rows
from tests.support.old_stores import return_postgres_to_schema, return_sqlite_to_schema
from tests.support.postgres_server import asked, store_or_skip

TENANTS = ("", "one", "", "", "one", "")
"""The tenants of the rows of an earlier release, in their order: they shared one chain."""


def former_rows() -> list[tuple[str, str | None, int, bytes, str]]:
    """Return rows as an earlier release wrote them: tenant, principal, time, body and head."""
    head, rows = chain_start(FORMER_STREAM), []
    for number, tenant in enumerate(TENANTS):
        who = None if number == 3 else f"p{number}"
        body = encode(
            {
                "entity": "order/1",
                "event": f"e{number}",
                "outcome": "denied",
                "reason": "roles",
                "time_ms": number,
                "principal": who,
                "trace": None,
            }
        )
        head = next_head(head, body)
        rows.append((tenant, who, number, body, head))
    return rows


async def sqlite_with_former_rows(folder: Path) -> str:
    """A SQLite file with the schema of the earlier release and its rows."""
    url, path = f"sqlite:///{folder}/x.db", folder / "x.db"
    await (await open_store(url)).close()
    return_sqlite_to_schema(path, 12)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO audit_refusal (tenant, kind, id, principal, time_ms, body, head)"
            " VALUES (?, 'order', '1', ?, ?, ?, ?)",
            former_rows(),
        )
    return url


async def postgres_with_former_rows() -> str:
    """A PostgreSQL schema of the earlier release, with its rows and a gap in their numbers."""
    url = store_or_skip()
    await (await open_store(url)).close()
    await return_postgres_to_schema(url, 10)
    for tenant, who, time_ms, body, head in former_rows():
        name = "NULL" if who is None else f"'{who}'"
        asked(
            url,
            "INSERT INTO audit_refusal (tenant, kind, id, principal, time_ms, body, head) "
            f"VALUES ('{tenant}', 'order', '1', {name}, {time_ms}, '\\x{body.hex()}', '{head}')",
        )
    return url


async def check(url: str) -> None:
    """Each tenant has its rows, the chain continues after them, and a change of one is found."""
    own, other = await open_store(url), await open_store(f"{url}{'&' if '?' in url else '?'}tenant=one")
    try:
        for store, numbers in ((own, (0, 2, 3, 5)), (other, (1, 4))):
            assert [f"e{each}" for each in numbers] == [each.event for each in await audit_rows(store)]
            assert [None if each == 3 else f"p{each}" for each in numbers] == [
                each.actor for each in await audit_rows(store)
            ]
            await add(store)
            report = await verify_chain(log(store))
            assert (len(numbers) + 1, None) == (report.linked, report.broken)
    finally:
        await own.close()
        await other.close()


def log(store: Store):  # type: ignore[no-untyped-def]  # it is in the port
    assert store.audit is not None
    return store.audit


async def add(store: Store) -> None:
    await log(store).append_audit((AuditRow("order/1", "new", "denied", "roles", 9, actor="ada"),))


async def test_sqlite_keeps_the_rows_of_an_earlier_release(tmp_path: Path) -> None:
    await check(await sqlite_with_former_rows(tmp_path))


async def test_postgres_keeps_the_rows_of_an_earlier_release() -> None:
    await check(await postgres_with_former_rows())


@pytest.mark.parametrize(
    ("damage", "broken"),
    [
        ("UPDATE audit SET body = CAST(replace(body, 'e2', 'e7') AS BLOB) WHERE former = 3", 2),
        ("UPDATE audit SET former = 4 WHERE former = 3", 2),
        ("UPDATE audit SET head = 'x' WHERE former = 6", 4),
        ("UPDATE audit SET time_ms = 77 WHERE former = 1", 1),
        ("DELETE FROM audit WHERE former = 2", 2),
    ],
)
async def test_damage_of_a_row_of_an_earlier_release_is_named(tmp_path: Path, damage: str, broken: int) -> None:
    """Also where it is a row of another tenant, since they shared a chain."""
    url = await sqlite_with_former_rows(tmp_path)
    store = await open_store(url)
    await add(store)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        for trigger in ("audit_no_update", "audit_no_delete"):
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(damage)
    store = await open_store(url)
    report = await verify_chain(log(store))
    await store.close()

    assert broken == report.broken


async def test_files_keep_the_rows_of_an_earlier_release(tmp_path: Path) -> None:
    """Those of the log and of the one before it; a torn line is not a row. The log itself stays."""
    url = f"file://{tmp_path}/x"
    await (await open_store(url)).close()
    lines = [json.loads(row[3]) for row in former_rows()]
    older = "".join(f"{json.dumps(each)}\n" for each in lines[:4])
    newer = "".join(f"{json.dumps(each)}\n" for each in lines[4:]) + '{"entity":"ord'
    (tmp_path / "x" / "refusals.log.1").write_text(older)
    (tmp_path / "x" / "refusals.log").write_text(newer)
    for _ in range(2):
        store = await open_store(url)
        await add(store)
        await store.close()
    store = await open_store(url)
    found = await audit_rows(store)
    report = await verify_chain(log(store))
    await store.close()

    assert [*(f"e{each}" for each in range(6)), "new", "new"] == [each.event for each in found]
    assert ("p0", None, 8) == (found[0].actor, report.broken, report.linked)
    assert older == (tmp_path / "x" / "refusals.log.1").read_text()
