"""Asking a bus for messages, in a way that may be stopped.

Rule: a question goes on in the broker when nobody waits for its answer any more, and what it then brings would lie
with a reader that is gone, until the broker gives it up. So whoever stops waits for the end of the question, which is
short, and puts back what it brought and nobody took on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any, TypeVar

from interlock.ports.bus import IncomingMessage

T = TypeVar("T", bound=IncomingMessage)


async def poll_once(question: Coroutine[Any, Any, Sequence[T]]) -> AsyncGenerator[T, None]:
    """What a question brings, one by one. Closed or cancelled, it puts back what it has not handed out."""
    asking = asyncio.ensure_future(question)
    try:
        await asyncio.wait({asking})
    except asyncio.CancelledError:
        await asyncio.wait({asking})
        if asking.exception() is None:
            await _put_back(asking.result())
        raise
    left = deque(asking.result())
    try:
        while left:
            yield left.popleft()
    finally:
        await _put_back(left)


async def _put_back(found: Sequence[IncomingMessage]) -> None:
    await asyncio.gather(*(each.put_back() for each in found), return_exceptions=True)
