"""The memory store beyond the suite: how it is opened, and what it keeps in addition to journals."""

from __future__ import annotations

import pytest

from interlock.errors import UsageError
from interlock.stores.memory import open_store


def test_memory_has_no_places() -> None:
    """Each address is a new store, and an address with more in it is a misunderstanding."""
    assert open_store("memory:") is not open_store("memory:")
    with pytest.raises(UsageError):
        open_store("memory:orders")
