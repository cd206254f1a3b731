"""Polling a bus for messages, in a way that can be cancelled.

A poll continues in the broker after its caller was cancelled. The messages it then returns would stay assigned to a
reader that no longer exists, until the broker drops that reader. So a cancelled caller waits for the end of the poll,
which is short, and requeues the messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any, TypeVar

from interlock.ports.bus import IncomingMessage

T = TypeVar("T", bound=IncomingMessage)


async def poll_once(poll: Coroutine[Any, Any, Sequence[T]]) -> AsyncGenerator[T, None]:
    """Yield the messages of one poll. When it is closed or cancelled, the remaining ones are requeued."""
    task = asyncio.ensure_future(poll)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if task.exception() is None:
            await _requeue(task.result())
        raise
    left = deque(task.result())
    try:
        while left:
            yield left.popleft()
    finally:
        await _requeue(left)


async def _requeue(messages: Sequence[IncomingMessage]) -> None:
    await asyncio.gather(*(each.requeue() for each in messages), return_exceptions=True)
