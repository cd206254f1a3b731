"""The memory store beyond the suite: what it is opened by, and what it keeps beside journals."""

from __future__ import annotations

import pytest

from interlock.errors import UsageError
from interlock.ports.refusals import Refusal
from interlock.stores.memory import open_store


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
