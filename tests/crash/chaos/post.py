"""The messages of a storm: a broker that is killed during the storm, and read at the end."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from interlock.buses.registry import open_source_url
from interlock.model.journal.message import Message, decode_message
from tests.support.brokers import Nats

STREAM = "chaos"
SILENCE_S = 10.0
"""How long to wait for a message before the missing ones count as lost."""


class Post:
    """A NATS broker for one storm, with a stream that keeps everything."""

    def __init__(self) -> None:
        self._broker = Nats()
        self._is_up = False
        self.deaths = 0

    @staticmethod
    def is_possible() -> bool:
        """Whether the broker is installed."""
        return Nats.program() is not None

    @property
    def bus(self) -> str:
        """Its address for publishers."""
        return self._broker.url(STREAM)

    def open(self) -> None:
        """Start it, with its stored messages."""
        if not self._is_up:
            self._broker.start()
            self._is_up = True

    def kill(self) -> None:
        """Kill it."""
        if self._is_up:
            self._broker.kill()
            self._is_up = False
            self.deaths += 1

    def close(self) -> None:
        """Stop it, and delete its files."""
        self._broker.remove()

    async def read(self, count: int) -> list[Message]:
        """Return `count` messages in order, or fewer when no more arrive."""
        source = open_source_url(self._broker.url(STREAM, "&group=checker"))
        found: list[Message] = []
        try:
            async with aclosing(source.incoming()) as incoming:
                while len(found) < count:
                    each = await asyncio.wait_for(anext(incoming), SILENCE_S)
                    found.append(decode_message(each.body))
                    await each.ack()
        except TimeoutError:
            pass
        finally:
            await source.close()
        return found
