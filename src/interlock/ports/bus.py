"""What the relay needs of a bus: to take a message, and to close. What an intake needs of one: to bring messages in.

Rule 1: `publish` returns once the bus has the message by its own definition of safe; until then it is not sent.
Rule 2: many publishes may wait side by side, each of another entity; a bus that can put them together does so.
Rule 3: what a failure means is its class, and the relay goes by that alone:

| raised | meaning | then |
|---|---|---|
| `UnavailableError` | the bus is away | the message waits, however long; it is no failure of its own |
| `DeniedError`, `NotFoundError` | it is not set up: no right, no stream | tried again, at last a dead letter |
| `RejectedError` | this message is never taken: too large, gone for good | a dead letter at once |

Rule 4: a bus that is away when it is opened is no error: it is connected to when the first message goes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from interlock.model.journal.message import Message


@runtime_checkable
class Bus(Protocol):
    """Where messages go."""

    async def publish(self, message: Message) -> None:
        """Give a message to the bus; a second time it has the same id, by which bus or consumer may know it."""

    async def close(self) -> None:
        """Let go of everything. Publishes under way end, or raise UnavailableError."""


class IncomingMessage(Protocol):
    """A message as it came from a bus, until it is said what became of it."""

    @property
    def body(self) -> bytes:
        """What was sent."""

    async def taken(self) -> None:
        """It is done with: the bus need not bring it again."""

    async def put_back(self) -> None:
        """Not now: the bus brings it again, to whoever asks."""

    async def set_aside(self) -> None:
        """It is never taken. A bus that keeps dead letters keeps it there; another one forgets it."""


@runtime_checkable
class MessageSource(Protocol):
    """Where messages come from: a group of readers shares them, and each is brought again until it is taken."""

    def incoming(self) -> AsyncGenerator[IncomingMessage, None]:
        """Messages as they come, in the bus's order; a bus that is away is waited for. An endless stream by intent."""

    async def close(self) -> None:
        """Let go of everything; what was not taken is brought to others."""
