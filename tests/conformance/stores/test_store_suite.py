"""The store suite on every store of the package."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from interlock.stores import files, memory, sqlite
from interlock.testing.store_suite import CASES, Case, Subject, cases_for

IN_MEMORY = cases_for(durable=False, shared=False)


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize("case", IN_MEMORY, ids=_named)
async def test_the_memory_store_keeps(case: Case) -> None:
    """The reference keeps every case that it can be asked: it neither outlives its process nor is shared."""
    await case(Subject(open=partial(memory.open_store, "memory:")))


@pytest.mark.parametrize("case", CASES, ids=_named)
async def test_the_file_store_keeps(case: Case, tmp_path: Path) -> None:
    """A folder keeps every case, by several handles and processes too."""
    await case(Subject(open=partial(files.open_store, f"file://{tmp_path}/x")))


@pytest.mark.parametrize("case", CASES, ids=_named)
async def test_the_sqlite_store_keeps(case: Case, tmp_path: Path) -> None:
    """A SQLite file keeps every case, by several handles and processes too."""
    await case(Subject(open=partial(sqlite.open_store, f"sqlite:///{tmp_path}/x.db")))


def test_what_a_store_cannot_be_asked_is_left_out() -> None:
    """Re-opening needs durability, other handles need sharing; nothing is passed in silence."""
    alone = cases_for(durable=True, shared=False)

    assert set(CASES) == set(cases_for(durable=True, shared=True))
    assert set(IN_MEMORY) < set(alone) < set(CASES)
