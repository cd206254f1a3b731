"""A bus in this process, for tests and first steps: `memory:` or, to share it by name, `memory:orders`.

It keeps all messages in order, duplicates too. Nothing survives the process.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator
from threading import Lock
from weakref import WeakValueDictionary

from interlock.errors import UsageError
from interlock.model.journal.message import Message, encode_message
from interlock.ports.fork import after_fork

MESSAGES_MAX = 100_000
"""Messages that a bus keeps for its readers; then the oldest are dropped."""

LOOK_SECONDS = 0.01
"""How often a reader polls: messages may come from other threads."""

_named: WeakValueDictionary[str, MemoryBus] = WeakValueDictionary()
_lock = Lock()


def _renew_lock() -> None:
    """In a forked child: a thread of the parent may have held the lock."""
    global _lock  # noqa: PLW0603 - the names are those of the process
    _lock = Lock()


os.register_at_fork(after_in_child=_renew_lock)


def open_bus(url: str) -> MemoryBus:
    """Return the bus of `memory:`, or the one that the process shares as `memory:<name>`."""
    name = url.removeprefix("memory:")
    if name.startswith("/") or "?" in name:
        raise UsageError("the address of the bus is invalid", code="bus.address", hint="memory: or memory:<name>")
    if not name:
        return MemoryBus()
    with _lock:
        found = _named.get(name)
        if found is None:
            found = _named[name] = MemoryBus()
        return found


open_source = open_bus


class MemoryBus:
    """A bus in memory; `messages` contains everything that was published."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._waiting: deque[bytes] = deque(maxlen=MESSAGES_MAX)
        self._lock = Lock()
        after_fork(self, MemoryBus._inherit)

    def _inherit(self) -> None:
        """In a forked child: a thread of the parent may have held the lock."""
        self._lock = Lock()

    async def publish(self, message: Message) -> None:
        """Store a message."""
        with self._lock:
            self.messages.append(message)
            self._waiting.append(encode_message(message))

    def put(self, body: bytes) -> None:
        """Add a message of these bytes for a reader; they may be invalid."""
        with self._lock:
            self._waiting.append(body)

    async def incoming(self) -> AsyncGenerator[MemoryIncoming, None]:
        """Yield messages. The stream is endless on purpose."""
        while True:
            with self._lock:
                body = self._waiting.popleft() if self._waiting else None
            if body is None:
                await asyncio.sleep(LOOK_SECONDS)
            else:
                yield MemoryIncoming(body, self)

    def put_first(self, body: bytes) -> None:
        """Add a message of these bytes before all others."""
        with self._lock:
            self._waiting.appendleft(body)

    async def close(self) -> None:
        """Do nothing: others may share the bus by name."""


class MemoryIncoming:
    """A message of a bus in memory."""

    def __init__(self, body: bytes, bus: MemoryBus) -> None:
        self.body = body
        self._bus = bus

    async def ack(self) -> None:
        """Do nothing: it left the bus when it was read."""

    async def requeue(self) -> None:
        """Put it before all others."""
        self._bus.put_first(self.body)

    async def dead_letter(self) -> None:
        """Do nothing: it left the bus when it was read."""
