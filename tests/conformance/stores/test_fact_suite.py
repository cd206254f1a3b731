"""The suite of facts on every store, and a damaged fact."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from interlock.errors import CorruptionError
from interlock.stores import memory
from interlock.stores.files import store as files
from interlock.stores.sqlite import store as sqlite
from interlock.testing.store_suite.suite import Case, StoreSubject, fact_cases
from tests.conformance.stores.test_store_suite import opened_postgres
from tests.support.postgres_server import store_or_skip

ALL = fact_cases(durable=True)


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize("case", fact_cases(durable=False), ids=_named)
async def test_the_memory_store_keeps_facts(case: Case) -> None:
    await case(StoreSubject(open=partial(memory.open_store, "memory:")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_sqlite_store_keeps_facts(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{tmp_path}/x.db")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_file_store_keeps_facts(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(files.open_store, f"file://{tmp_path}/x")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_postgres_store_keeps_facts(case: Case) -> None:
    await case(StoreSubject(open=partial(opened_postgres, store_or_skip())))


async def test_a_store_without_facts_fails_the_suite() -> None:
    class Narrow(memory.MemoryStore):
        facts = None  # type: ignore[assignment]  # the point

    with pytest.raises(AssertionError, match="keeps no facts"):
        await ALL[0](StoreSubject(open=Narrow))


async def test_a_damaged_fact_is_reported(tmp_path: Path) -> None:
    store = files.open_store(f"file://{tmp_path}/x")
    try:
        await store.write_fact("epoch", "1", expected=None)
        (tmp_path / "x" / "facts" / "epoch").write_bytes(b"{")
        with pytest.raises(CorruptionError) as error:
            await store.read_fact("epoch")
    finally:
        await store.close()

    assert "store.fact" == error.value.code
