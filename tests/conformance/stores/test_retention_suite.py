"""The suite of retention, on every store; and the faults that it must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import InterlockError
from interlock.stores import memory
from interlock.stores.files import store as files
from interlock.stores.sqlite import batch_rows, writer
from interlock.stores.sqlite import store as sqlite
from interlock.stores.sqlite.statements import STATEMENTS
from interlock.testing.store_suite.suite import Case, StoreSubject, retention_cases
from tests.conformance.stores.test_store_suite import opened_postgres
from tests.support.journal_only_store import JournalOnlyStore
from tests.support.postgres_server import store_or_skip


def _same(store: JournalOnlyStore) -> JournalOnlyStore:
    return store


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


def _fault(name: str, text: str) -> Callable[[pytest.MonkeyPatch], None]:
    changed: dict[str, Any] = {name: text}

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(sqlite.SqliteDatabase, "statements", replace(STATEMENTS, **changed))

    plant.__name__ = name
    return plant


def _create_again(patch: pytest.MonkeyPatch) -> None:
    for module in (batch_rows, writer):
        patch.setattr(module, "HAS_TOMBSTONES", "SELECT 1 WHERE ? = 'no tenant'")


FAULTS = (
    _create_again,
    _fault("add_count", "SELECT ?1, ?2, ?3, ?4, ?5 WHERE false"),
    *(
        _fault(name, f"{getattr(STATEMENTS, name)} AND false")
        for name in ("delete_state", "close_entity", "finish_tombstone", "finish_base")
    ),
    _fault("has_work", "SELECT 1 WHERE ?1 = ?2 AND ?2 = ?3 AND false"),
    _fault("anchor_journal", "SELECT ?1, ?2, ?3, ?4, ?5 WHERE false"),
    _fault("delete_base", f"{STATEMENTS.delete_base} AND false"),
    _fault("delete_keys_of_entity", "DELETE FROM event_key WHERE ?1 = ?2 AND ?3 = ?4 AND false RETURNING 1"),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__.strip("_"))
async def test_the_suite_finds_a_store_that_is_wrong(
    fault: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    found = []
    for number, case in enumerate(retention_cases(durable=False, shared=False)):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            await case(StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{folder}/x.db")))
        except (AssertionError, InterlockError):
            found.append(_named(case))
    assert found


async def test_a_store_without_retention_fails_the_suite(tmp_path: Path) -> None:
    for number, case in enumerate(retention_cases(durable=False, shared=False)):
        store = JournalOnlyStore(files.open_store(f"file://{tmp_path}/{number}"))
        with pytest.raises(AssertionError, match="has no retention"):
            await case(StoreSubject(open=partial(_same, store)))
