"""Which event names belong to the kernel."""

from __future__ import annotations

import pytest

from interlock.errors import UsageError
from interlock.model.event import check_sendable, is_reserved

RESERVED = [
    "_", "_x", "_create",
    "done", "error", "after",
    "done.state.a", "error.", "error.x", "after.5s.a",
    " error", "error .x", "\u3000error.x",
    "error\u200b.x", "e\u00adrror", "\u2060_x",
    "\uff45\uff52\uff52\uff4f\uff52", "error\uff0ex", "done\u2024x", "\uff3fx",
]  # fmt: skip


@pytest.mark.parametrize("name", RESERVED, ids=ascii)
def test_names_of_the_kernel_are_reserved_in_every_spelling(name: str) -> None:
    """Bare words count, and so do spellings that normalization makes equal."""
    assert is_reserved(name)
    with pytest.raises(UsageError) as caught:
        check_sendable(name)
    assert "event.reserved" == caught.value.code


@pytest.mark.parametrize(
    "name", ["paid", "errors", "doneness", "after_hours", "order.error", "Error", "DONE", "e\u0301rror"]
)
def test_other_names_are_free(name: str) -> None:
    """Only the whole first word counts; case and accents make another word."""
    assert not is_reserved(name)
    check_sendable(name)
