"""Calls that wait for nothing, without an event loop: on a blocking connection of a caller, and in a workflow."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from interlock.errors import InternalError

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T], *, what: str, code: str) -> T:
    """Return the result of a coroutine that waits for nothing. Raises InternalError with this code when it waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise InternalError(f"{what} waited for an event loop", code=code)
