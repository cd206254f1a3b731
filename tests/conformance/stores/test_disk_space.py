"""The statements of the guide that return the disk space of archived journals, while stores are open."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from interlock.stores.postgres import opening
from interlock.stores.sqlite import store as sqlite
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.postgres_server import asked, store_or_skip

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "operate.md"


def _statement(pattern: str) -> str:
    """Return a statement of the guide."""
    (found,) = re.findall(pattern, GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


async def test_a_sqlite_file_becomes_smaller_under_an_open_store(tmp_path: Path) -> None:
    """By the statements of the guide; the store continues, and its content is unchanged."""
    store = sqlite.open_store(f"sqlite:///{tmp_path}/x.db")
    here, gone = SampleEntity("parcel/here"), SampleEntity("parcel/gone")
    await append_all(store, here.create(), gone.create())
    await append_all(store, *(gone.step("noted", key=f"{each}" * 150) for each in range(500)))
    await append_all(store, gone.step("shipped", key="s"), gone.step("delivered", key="d"))
    records = await store.read("parcel/here")
    assert await store.release_journal("parcel/gone", version=503, archive="file:///away")
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None, timeout=PATIENCE_SECONDS)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = (tmp_path / "x.db").stat().st_size
        for each in _statement(r"sqlite3 [^\n]*orders\.db '(.+?)'").strip("; ").split(";"):
            connection.execute(each).fetchall()
    after = (tmp_path / "x.db").stat().st_size
    await append_all(store, here.step(key="after"))

    assert after < before / 2
    assert [*records] == [*await store.read("parcel/here")][:1]
    assert ((), ()) == (await store.differences(), await store.differences("parcel/here"))
    await store.close()


@pytest.mark.parametrize("is_empty", [True, False])
async def test_an_old_month_is_dropped_when_it_is_empty(is_empty: bool) -> None:
    url = store_or_skip()
    store = await opening.open_store(url)
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create())
    asked(url, "CREATE TABLE journal_2026_01 PARTITION OF journal FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')")
    if not is_empty:
        asked(url, "INSERT INTO journal VALUES ('', 'parcel', '9', 1, 'x', '2026-01-15')")
    statement = _statement(r"```sql\n(DO .+?;)\n```").replace("interlock.", f"{url.partition('schema=')[2]}.")
    try:
        asked(url, statement)
        refused = None
    except asyncpg.RaiseError as error:
        refused = str(error)
    await append_all(store, sample.step(key="a"))

    assert (None if is_empty else "there are entries in it") == refused
    assert [(is_empty,)] == asked(url, "SELECT to_regclass('journal_2026_01') IS NULL")
    assert [1, 2] == [each.version for each in await store.read("parcel/1")]
    await store.close()
