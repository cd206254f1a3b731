"""The suite of data keys on every store, and on stores that break it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from interlock.ports.trust.data_keys import DataKey, Destroyed
from interlock.stores import memory
from interlock.stores.files import store as files
from interlock.stores.memory_keys import MemoryKeys
from interlock.stores.sqlite import store as sqlite
from interlock.testing.store_suite.suite import Case, StoreSubject, data_key_cases
from tests.conformance.stores.test_store_suite import opened_postgres
from tests.support.postgres_server import store_or_skip

ALL = data_key_cases(durable=True, shared=True)


def _named(case: Case) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize("case", data_key_cases(durable=False, shared=False), ids=_named)
async def test_the_memory_store_keeps_data_keys(case: Case) -> None:
    await case(StoreSubject(open=partial(memory.open_store, "memory:")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_sqlite_store_keeps_data_keys(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(sqlite.open_store, f"sqlite:///{tmp_path}/x.db")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_file_store_keeps_data_keys(case: Case, tmp_path: Path) -> None:
    await case(StoreSubject(open=partial(files.open_store, f"file://{tmp_path}/x")))


@pytest.mark.parametrize("case", ALL, ids=_named)
async def test_the_postgres_store_keeps_data_keys(case: Case) -> None:
    await case(StoreSubject(open=partial(opened_postgres, store_or_skip())))


class Revives(MemoryKeys):
    """Forgets that a key was destroyed when it is wrapped again."""

    async def replace_keys(self, keys: tuple[DataKey, ...]) -> None:
        self._destroyed.clear()
        self._keys.update((each.kid, each) for each in keys)


class ForgetsEpochs(MemoryKeys):
    """Accepts keys of epochs that have ended."""

    async def retire_epochs(self, before: int) -> None:
        del before


class DestroysNothing(MemoryKeys):
    """Says that a key is destroyed, and keeps it."""

    async def destroy_key(self, kid: str, *, now_ms: int) -> Destroyed:
        del kid, now_ms
        return Destroyed.FINAL


@pytest.mark.parametrize("keys", [Revives, ForgetsEpochs, DestroysNothing])
async def test_the_suite_finds_a_store_that_breaks_the_port(keys: type[MemoryKeys]) -> None:
    class Broken(memory.MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.data_keys = keys()

    failures = 0
    for case in data_key_cases(durable=False, shared=False):
        try:
            await case(StoreSubject(open=Broken))
        except AssertionError:
            failures += 1

    assert failures


async def test_a_store_without_data_keys_fails_the_suite() -> None:
    class Narrow(memory.MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.data_keys = None  # type: ignore[assignment]  # the point

    with pytest.raises(AssertionError, match="has no data keys"):
        await ALL[0](StoreSubject(open=Narrow))
