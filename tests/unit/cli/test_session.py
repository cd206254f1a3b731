"""What commands share."""

from __future__ import annotations

import gc

import pytest

from interlock.cli.session import frozen_heap


def test_a_heap_is_frozen_for_a_block() -> None:
    with frozen_heap():
        inside = gc.get_freeze_count()

    assert (True, 0) == (inside > 0, gc.get_freeze_count())


def test_a_block_that_fails_leaves_no_frozen_heap() -> None:
    def fail() -> None:
        with frozen_heap():
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert 0 == gc.get_freeze_count()
