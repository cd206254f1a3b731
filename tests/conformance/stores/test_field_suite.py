"""The suite of indexes on context fields, on every store that has them; and the faults that it must find."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from interlock.model.encoding.index_key import index_key
from interlock.ports.reading.field_indexes import check_searchable
from interlock.stores import memory
from interlock.stores.sql import field_index
from interlock.stores.sqlite import batch_rows, writer
from interlock.stores.sqlite import store as sqlite
from interlock.testing.store_suite.suite import Case, StoreSubject, field_cases
from tests.conformance.stores.test_store_suite import opened_postgres
from tests.support.postgres_server import store_or_skip

ALL = field_cases(shared=True)


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_sqlite_store_finds_by_fields(case: Case, tmp_path: Path) -> None:
    await case(_sqlite(tmp_path))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_postgres_store_finds_by_fields(case: Case) -> None:
    await case(StoreSubject(open=partial(opened_postgres, store_or_skip())))


async def test_a_store_without_indexes_fails_the_suite() -> None:
    for case in field_cases(shared=False):
        with pytest.raises(AssertionError, match="has no indexes"):
            await case(StoreSubject(open=partial(memory.open_store, "memory:")))


def _sqlite(folder: Path) -> StoreSubject:
    return StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{folder}/x.db"))


def _keep_old_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_rows, "DELETE_FIELD", f"{batch_rows.DELETE_FIELD} AND false")


def _add_no_keys(patch: pytest.MonkeyPatch) -> None:
    insert = "INSERT INTO entity_field SELECT ?1, ?2, ?3, ?4, ?5 WHERE false"
    patch.setattr(batch_rows, "INSERT_FIELD", insert)


def _index_text(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(field_index, "index_key", lambda value, _: None if value is None else b"\x10" + str(value).encode())


def _cut_without_hash(patch: pytest.MonkeyPatch) -> None:
    original = index_key
    patch.setattr(field_index, "index_key", lambda value, form: (original(value, form) or b"")[:201] or None)


def _keep_the_first_set(patch: pytest.MonkeyPatch) -> None:
    """Indexes of another process are not noticed."""
    begin = writer.SqliteWriter._begin

    def keep(self: Any, *, waits: bool) -> None:
        before = self._indexed
        begin(self, waits=waits)
        self._indexed = self._indexed if before is None else before

    patch.setattr(writer.SqliteWriter, "_begin", keep)


def _search_before_it_is_complete(patch: pytest.MonkeyPatch) -> None:
    original = check_searchable
    patch.setattr(
        field_index,
        "check_searchable",
        lambda kind, field, status, known=(): status or original(kind, field, status, known),
    )


def _compare_one_condition(patch: pytest.MonkeyPatch) -> None:
    original = field_index._compare

    def compare(sql: Any, tenant: Any, kind: Any, rows: Any, _: Any) -> Any:
        return (yield from original(sql, tenant, kind, rows, []))

    patch.setattr(field_index, "_compare", compare)


FAULTS = (
    _keep_old_keys,
    _add_no_keys,
    _index_text,
    _cut_without_hash,
    _keep_the_first_set,
    _search_before_it_is_complete,
    _compare_one_condition,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__.strip("_"))
async def test_the_suite_finds_a_store_that_is_wrong(
    fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    found = []
    for number, case in enumerate(ALL):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            await case(_sqlite(folder))
        except AssertionError:
            found.append(_named(case))
    assert found
