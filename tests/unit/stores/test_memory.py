"""The memory store beyond the suite: what it is opened by, and what it keeps beside journals."""

from __future__ import annotations

import pytest

from interlock.errors import UsageError
from interlock.ports.store import Query, Refusal
from interlock.stores.memory import open_store
from interlock.testing.store_samples import Life


def test_memory_has_no_places() -> None:
    """Each address is a new store, and an address with more in it is a misunderstanding."""
    assert open_store("memory:") is not open_store("memory:")
    with pytest.raises(UsageError):
        open_store("memory:orders")


async def test_refusals_can_be_looked_at() -> None:
    """A test asks the store what was refused."""
    store = open_store("memory:")
    refusal = Refusal("parcel/1", "noted", "denied", "roles", 1)
    await store.refuse((refusal,))

    assert [refusal] == store.refusals


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_page_has_at_least_one_row(limit: int) -> None:
    """A page without rows could never be turned."""
    store = open_store("memory:")
    for each in range(2):
        await store.append(Life(f"parcel/{each}").created())
    page = await store.find(Query(kind="parcel", limit=limit))

    assert 1 == len(page.rows)
    assert page.after is not None
