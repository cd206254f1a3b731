"""The suite of retention, on every store."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from interlock.stores import memory
from interlock.stores.files import store as files
from interlock.stores.sqlite import store as sqlite
from interlock.testing.store_suite.suite import Case, StoreSubject, retention_cases
from tests.conformance.stores.test_store_suite import opened_postgres
from tests.support.postgres_server import store_or_skip


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize("case", retention_cases(durable=False, shared=False), ids=_named)
async def test_the_memory_store_removes(case: Case) -> None:
    await case(StoreSubject(open=partial(memory.open_store, "memory:")))


@pytest.mark.parametrize("case", retention_cases(durable=True, shared=True), ids=_named)
async def test_the_sqlite_store_removes(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{tmp_path}/x.db")))


@pytest.mark.parametrize("case", retention_cases(durable=True, shared=True), ids=_named)
async def test_the_sqlite_store_removes_in_a_shared_file(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{tmp_path}/x.db?prefix=own_")))


@pytest.mark.parametrize("case", retention_cases(durable=True, shared=True), ids=_named)
async def test_the_file_store_removes(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(files.open_store, f"file://{tmp_path}/x")))


@pytest.mark.parametrize("case", retention_cases(durable=True, shared=True), ids=_named)
async def test_the_postgres_store_removes(case: Case) -> None:
    await case(StoreSubject(open=partial(opened_postgres, store_or_skip())))
