"""A bus in this process, for tests and first steps: `memory:` or, to share it by name, `memory:orders`.

Rule: it keeps what it is given, in order, duplicates too; nothing survives the process.
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
"""Messages that one keeps for its readers; then the oldest go."""

LOOK_SECONDS = 0.01
"""How often a reader looks: messages may come from other threads."""

_named: WeakValueDictionary[str, MemoryBus] = WeakValueDictionary()
_gate = Lock()


def _renew_gate() -> None:
    """In a forked child: a thread of the parent may have held the lock."""
    global _gate  # noqa: PLW0603 - the names are those of the process
    _gate = Lock()


os.register_at_fork(after_in_child=_renew_gate)


def open_bus(url: str) -> MemoryBus:
    """The bus of `memory:`, or the one that everybody in this process shares under `memory:<name>`."""
    name = url.removeprefix("memory:")
    if name.startswith("/") or "?" in name:
        raise UsageError("this names no bus in memory", code="bus.address", hint="memory: or memory:<name>")
    if not name:
        return MemoryBus()
    with _gate:
        found = _named.get(name)
        if found is None:
            found = _named[name] = MemoryBus()
        return found


open_source = open_bus


class MemoryBus:
    """A bus in memory; `messages` is all that was published."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._waiting: deque[bytes] = deque(maxlen=MESSAGES_MAX)
        self._gate = Lock()
        after_fork(self, MemoryBus._inherit)

    def _inherit(self) -> None:
        """In a forked child: a copy, whose lock a thread of the parent may have held."""
        self._gate = Lock()

    async def publish(self, message: Message) -> None:
        """Keep a message."""
        with self._gate:
            self.messages.append(message)
            self._waiting.append(encode_message(message))

    def put(self, body: bytes) -> None:
        """Have a reader find these bytes, whatever they are."""
        with self._gate:
            self._waiting.append(body)

    async def incoming(self) -> AsyncGenerator[MemoryIncoming, None]:
        """Messages as they come. An endless stream by intent."""
        while True:
            with self._gate:
                body = self._waiting.popleft() if self._waiting else None
            if body is None:
                await asyncio.sleep(LOOK_SECONDS)
            else:
                yield MemoryIncoming(body, self)

    def put_first(self, body: bytes) -> None:
        """Have the next reader find these bytes."""
        with self._gate:
            self._waiting.appendleft(body)

    async def close(self) -> None:
        """Nothing to let go of: whoever shares it by name goes on."""


class MemoryIncoming:
    """A message of a bus in memory."""

    def __init__(self, body: bytes, bus: MemoryBus) -> None:
        self.body = body
        self._bus = bus

    async def taken(self) -> None:
        """It left the bus when it was read."""

    async def put_back(self) -> None:
        """To the front of the line."""
        self._bus.put_first(self.body)

    async def set_aside(self) -> None:
        """It left the bus when it was read."""
