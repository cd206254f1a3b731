"""The reader of messages from a bus, and what the intake does with a message.

For every input:
1. a message is decoded or refused with RejectedError;
2. what was decoded is encoded and decoded again as the same message;
3. its event is sent to an entity as the intake does: a receipt, or an error of ours.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from functools import cache
from random import Random
from typing import Any

import msgspec

from interlock.assemble.charts import loads
from interlock.errors import InterlockError, RejectedError
from interlock.model.journal.message import Message, decode_message, encode_message
from interlock.model.limits import AUDIT_BURST
from interlock.ports.bus import IncomingMessage
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.consumer import Consumer, Delivery
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.fuzz.mutation import WORDS, Mutator, encoded, json_bytes
from tests.fuzz.target import ACCEPTED, run_async
from tests.unit.runtime.scene import DOOR, StillClock

ENTITIES_MAX = 2_000
"""Entities of one store: every input has its own, and the memory of the run must not grow."""

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MESSAGES: tuple[dict[str, Any], ...] = (
    {
        "specversion": "1.0",
        "id": "order/1/7/0",
        "source": "/interlock/order",
        "type": "order.state.changed",
        "subject": "order/1",
        "time": "2026-11-19T08:00:00.000Z",
        "sequence": "000000000007.0000",
        "kind": "order",
        "event": "noted",
        "key": "k",
        "principal": "ada",
        "revision": "1.0.0",
        "partitionkey": "order/1",
        "traceparent": TRACE,
        "datacontenttype": "application/json",
        "data": {"text": "a", "n": [1, 2.5]},
    },
    {"specversion": "1.0", "id": "m-1", "source": "https://shop.example", "type": "opened", "more": {"a": [1]}},
    {"specversion": "1.0", "id": "m-2", "source": "s", "type": "noted", "data_base64": "AAEC", "trace": 7},
    {
        "specversion": "1.0",
        "id": "m-3",
        "source": "s",
        "type": "noted",
        "event": "closed",
        "time": "2026-11-19 08:00+01",
    },
)


class MessageTarget:
    """Structured CloudEvents."""

    name = "message"

    def inputs(self, random: Random) -> Iterator[bytes]:
        """Yield messages with mutated values, tokens and bytes."""
        texts = [json_bytes(each).decode() for each in MESSAGES]
        words = sorted({*WORDS, *(name for each in MESSAGES for name in each), "opened", "closed", "noted", "locked"})
        mutator = Mutator(random, texts, words)
        while True:
            kind = random.random()
            if kind < 0.6:
                yield json_bytes(mutator.value(random.choice(MESSAGES)))
            elif kind < 0.9:
                yield encoded(mutator.text(random.choice(texts)))
            else:
                yield mutator.data(random.choice(texts).encode())

    def attempt(self, data: bytes) -> str:
        """Decode, encode and send one message."""
        try:
            message = decode_message(data)
        except RejectedError as error:
            assert error.code == "message.malformed", error.code
            str(error).encode()
            return error.code
        again = decode_message(encode_message(message))
        assert _facts(again) == _facts(message), "the encoded message is another one"
        return f"{ACCEPTED} {_intake().send(message)}"


def _facts(message: Message) -> Any:
    """What a message says. Its bytes are compared, because floating-point values may be equal and not the same."""
    return msgspec.json.encode(message, order="deterministic")


class _Intake:
    """An intake without a bus: what it does with one message."""

    def __init__(self) -> None:
        self._number = 0
        self._start()

    def _start(self) -> None:
        self._refused = 0
        self._runtime = Runtime(MemoryStore(), ChartRegistry([loads(DOOR).kernel]), StillClock())
        self._consumer = Consumer(_NoSource(), self._runtime, lambda _: None)

    def send(self, message: Message) -> str:
        """Send the event of a message to a new entity, twice: the second time is a duplicate, or refused again."""
        self._number += 1
        if self._number % ENTITIES_MAX == 0 or self._refused > AUDIT_BURST - 2:  # else `rate.refused`: not of its bytes
            self._start()
        delivery = Delivery(f"door/d{self._number}", message.event or message.type, message.data, create={})
        first, second = (run_async(self._send(message, delivery)) for _ in range(2))
        expected = "duplicate" if first == "applied" else first
        assert second == expected, f"{first}, then {second}"
        self._refused += 0 if first == "applied" else 2
        return first

    async def _send(self, message: Message, delivery: Delivery) -> str:
        try:
            receipt = await self._consumer._try_send(message, delivery)
        except InterlockError as error:
            return error.code
        return receipt.outcome


class _NoSource:
    """A bus without messages."""

    def incoming(self) -> AsyncGenerator[IncomingMessage, None]:
        """Nothing comes."""
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing to close."""


@cache
def _intake() -> _Intake:
    return _Intake()


MESSAGE = MessageTarget()
