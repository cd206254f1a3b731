"""The suite of the audit, on every store; and the faults that it must find."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from interlock.stores import memory
from interlock.stores.files import store as files
from interlock.stores.files.audit import FileAudit
from interlock.stores.sqlite import store as sqlite
from interlock.testing.store_suite.suite import Case, StoreSubject, audit_cases
from tests.conformance.stores.test_store_suite import opened_postgres
from tests.support.postgres_server import store_or_skip

ALL = audit_cases(durable=True, shared=True)


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize("case", audit_cases(durable=False, shared=False), ids=_named)
async def test_the_memory_store_has_an_audit(case: Case) -> None:
    await case(StoreSubject(open=partial(memory.open_store, "memory:")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_file_store_has_an_audit(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(files.open_store, f"file://{tmp_path}/x")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_file_store_has_an_audit_of_many_segments(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(files.FileStore, tmp_path / "x", segment_bytes_max=400)))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_sqlite_store_has_an_audit(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{tmp_path}/x.db")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_a_sqlite_store_in_a_shared_file_has_an_audit(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{tmp_path}/x.db?prefix=ours_&tenant=one")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_postgres_store_has_an_audit(case: Case) -> None:
    await case(StoreSubject(open=partial(opened_postgres, store_or_skip())))


class _WithoutAudit(memory.MemoryStore):
    audit = None  # type: ignore[assignment]  # a store that cannot


async def test_a_store_without_an_audit_fails_the_suite() -> None:
    for case in ALL:
        with pytest.raises(AssertionError, match="has no audit"):
            await case(StoreSubject(open=_WithoutAudit))


def _forget_what_others_wrote(patch: pytest.MonkeyPatch) -> None:
    find = FileAudit._find_end

    def remembered(self: Any, folder: int) -> Any:
        return self._end or find(self, folder)

    patch.setattr(FileAudit, "_find_end", remembered)


def _start_again(patch: pytest.MonkeyPatch) -> None:
    """Each handle has its own chain."""
    patch.setattr(FileAudit, "_read_on", lambda _self, end: end)


def _drop_a_row_of_each_batch(patch: pytest.MonkeyPatch) -> None:
    commit = FileAudit._commit
    patch.setattr(FileAudit, "_commit", lambda self, rows: commit(self, rows[:-1] if len(rows) > 1 else rows))


def _leave_out_states(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("interlock.stores.files.blocking_store.BlockingFileStore._with_states", lambda _self, row: row)


@pytest.mark.parametrize(
    "fault",
    [_forget_what_others_wrote, _start_again, _drop_a_row_of_each_batch, _leave_out_states],
    ids=lambda each: each.__name__.strip("_"),
)
async def test_the_suite_finds_an_audit_that_is_wrong(
    fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    failed = []
    for number, case in enumerate(ALL):
        (tmp_path / str(number)).mkdir()
        try:
            await case(StoreSubject(open=partial(files.open_store, f"file://{tmp_path}/{number}/x")))
        except Exception as error:  # noqa: BLE001 - any failure of the case counts
            failed.append(f"{_named(case)}: {error!r}")

    assert failed
