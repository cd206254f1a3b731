"""An event: the clock of the driver that took it, and which names belong to the kernel."""

from __future__ import annotations

import pytest

from interlock.errors import UsageError
from interlock.model.encoding.codec import encode
from interlock.model.event import Event, check_sendable, is_reserved


def test_an_event_was_taken_at_its_time_unless_the_clock_was_behind() -> None:
    """Another clock had been ahead: the entity's time waits, and the driver's own is kept."""
    assert (5, 5) == (Event("a", time_ms=5).at_ms, Event("a", time_ms=7, clock_ms=5).at_ms)


def test_a_clock_that_is_not_behind_leaves_no_trace() -> None:
    assert b"clock_ms" not in encode(Event("a", time_ms=5))
    assert b'"clock_ms":5' in encode(Event("a", time_ms=7, clock_ms=5))


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
    assert is_reserved(name)
    with pytest.raises(UsageError) as caught:
        check_sendable(name)
    assert "event.reserved" == caught.value.code


@pytest.mark.parametrize(
    "name", ["paid", "errors", "doneness", "after_hours", "order.error", "Error", "DONE", "e\u0301rror"]
)
def test_other_names_are_free(name: str) -> None:
    assert not is_reserved(name)
    check_sendable(name)
