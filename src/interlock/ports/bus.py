"""What the runtime needs of a bus: to publish messages (`Bus`), and to receive them (`MessageSource`).

Rule 1: `publish` returns once the bus has the message, by its own definition of safe. Until then it is not sent.
Rule 2: many publishes may wait at the same time, each for another entity. A bus that can batch them does so.
Rule 3: the class of an error says what happens next:

| raised | meaning | then |
|---|---|---|
| `UnavailableError` | the bus is unreachable | the message waits, however long; that is not a failure of the message |
| `DeniedError`, `NotFoundError` | it is not set up: no permission, no stream | retried, finally a dead letter |
| `RejectedError` | the bus never accepts this message: too large | a dead letter immediately |

Rule 4: a bus that is unreachable when it is opened is not an error. It connects when the first message is published.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from interlock.model.journal.message import Message


@runtime_checkable
class Bus(Protocol):
    """Where messages are published."""

    async def publish(self, message: Message) -> None:
        """Publish a message. A repeated publish has the same id, by which the bus or a consumer may drop it."""

    async def close(self) -> None:
        """Close the connection. Pending publishes finish, or raise UnavailableError."""


class IncomingMessage(Protocol):
    """A message received from a bus, until it is acknowledged, requeued or dead-lettered."""

    @property
    def body(self) -> bytes:
        """What was sent."""

    async def ack(self) -> None:
        """Acknowledge it: the bus does not deliver it again."""

    async def requeue(self) -> None:
        """Return it: the bus delivers it again, to any reader of the group."""

    async def dead_letter(self) -> None:
        """Give up the message. A bus with dead letters stores it there; another bus drops it."""


@runtime_checkable
class MessageSource(Protocol):
    """Where messages come from. A group of readers shares them, and each is delivered until it is acknowledged."""

    def incoming(self) -> AsyncGenerator[IncomingMessage, None]:
        """Yield messages in the bus's order; wait while the bus is unreachable. The stream is endless on purpose."""

    async def close(self) -> None:
        """Close the connection. Messages that were not acknowledged are delivered to others."""
