"""The store suite on every store of the package."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from interlock.ports.store import Store
from interlock.stores import memory
from interlock.stores.files import store
from interlock.stores.postgres import opening
from interlock.stores.sqlite import store as sqlite
from interlock.testing.store_suite import appends, concurrency
from interlock.testing.store_suite.suite import CASES, Case, StoreSubject, store_cases
from tests.support.postgres_server import store_or_skip

WRITING = (*appends.CASES, *concurrency.CASES, *concurrency.SHARED)
IN_MEMORY = store_cases(durable=False, shared=False)


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize("case", IN_MEMORY, ids=_named)
async def test_the_memory_store_keeps(case: Case) -> None:
    """The reference keeps every case that it can be asked: it neither outlives its process nor is shared."""
    await case(StoreSubject(open=partial(memory.open_store, "memory:")))


@pytest.mark.parametrize("case", CASES, ids=_named)
async def test_the_file_store_keeps(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(store.open_store, f"file://{tmp_path}/x")))


@pytest.mark.parametrize("case", CASES, ids=_named)
async def test_the_sqlite_store_keeps(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{tmp_path}/x.db")))


def opened_postgres(url: str) -> Store:
    """A PostgreSQL store, opened in an event loop that ends before the store is used."""
    return asyncio.run(opening.open_store(url))


@pytest.mark.parametrize("case", CASES, ids=_named)
async def test_the_postgres_store_keeps(case: Case) -> None:
    await case(StoreSubject(open=partial(opened_postgres, store_or_skip())))


@pytest.mark.parametrize("commit", ["one", "group"])
@pytest.mark.parametrize("case", WRITING, ids=_named)
async def test_the_postgres_store_keeps_whatever_the_way_to_commit(case: Case, commit: str) -> None:
    await case(StoreSubject(open=partial(opened_postgres, f"{store_or_skip()}&commit={commit}")))


def test_what_a_store_cannot_be_asked_is_left_out() -> None:
    """Re-opening needs durability, other handles need sharing; nothing is passed in silence."""
    alone = store_cases(durable=True, shared=False)

    assert set(CASES) == set(store_cases(durable=True, shared=True))
    assert set(IN_MEMORY) < set(alone) < set(CASES)
