"""Messages to and from Kafka: `kafka://host:9092/orders`, a topic.

Rule 1: the key of a record is the entity, so that its messages stay in one partition and in order. The producer is
idempotent: a repeat of its own is dropped by the broker; one after a crash is not, and readers drop it by id or
`sequence`. A message is sent when all replicas in sync have it.
Rule 2: the client has threads of its own; here one of ours waits for what it tells.
Rule 3: an option with a dot in its name is the client's own, such as `security.protocol=SASL_SSL`.
Rule 4: a reader is one of a consumer group, `group=`; its place in a partition moves on when all before it is taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from threading import Event as Signal
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from interlock.buses.address import BusAddress, malformed_address, missing_extra, parse_address, wire_id
from interlock.errors import DeniedError, InterlockError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.journal.message import CONTENT_TYPE, Message, encode_message
from interlock.ports.threads import in_thread, in_thread_or_here, start_thread

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka import Message as Record

EXAMPLE = "kafka://127.0.0.1:9092/orders"
SECONDS = 30.0
"""How long a message may take: the client tries again within it."""

LINGER_MS = 5
"""How long a message waits for others that go with it."""

CLOSING_SECONDS = 5.0
"""How long what is under way may take when the bus closes; the rest goes again, with its id."""

READ_MAX = 64
"""Records read at a time."""

_NO_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
_NO_RIGHT = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "_AUTHENTICATION",
    }
)
_NEVER = frozenset({"INVALID_RECORD", "POLICY_VIOLATION", "INVALID_TIMESTAMP"})


def open_bus(url: str) -> KafkaBus:
    """The bus of `kafka://[user:password@]host:9092[,host...]/topic`; options with a dot are the client's."""
    address = _address(url, ())
    if address.options:
        _producer(address)  # the client knows best which options it takes; it connects to nothing in that moment
    return KafkaBus(address)


def open_source(url: str) -> KafkaSource:
    """The reader of `kafka://host:9092/topic?group=name`."""
    address = _address(url, ("group",))
    address.needed("group", f"{EXAMPLE}?group=billing")
    return KafkaSource(address)


def _address(url: str, options: tuple[str, ...]) -> BusAddress:
    address = parse_address(url, port=9092, options=options, example=EXAMPLE, passed_on=lambda name: "." in name)
    if not address.path or "/" in address.path:
        raise malformed_address(EXAMPLE)
    try:
        import confluent_kafka  # noqa: F401 - a missing one shows when the bus is opened, not when the first message goes
    except ModuleNotFoundError as error:
        raise missing_extra(error, "confluent_kafka", "kafka") from error
    return address


def _settings(address: BusAddress) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap.servers": address.place, "client.id": "interlock", "log_level": 0}
    if address.user is not None:
        login = {"sasl.username": address.user, "sasl.password": address.password or ""}
        found |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **login}
    return found | {name: value for name, value in address.options.items() if "." in name}


def _explained(error: KafkaError, address: BusAddress) -> InterlockError:
    """What a failure means for whoever waits."""
    name, topic = error.name(), address.path
    if name == "MSG_SIZE_TOO_LARGE":
        hint = "emit less, or raise `message.max.bytes` here and `max.message.bytes` of the topic"
        return RejectedError("the message is too large for Kafka", code="bus.size", hint=hint)
    if name in _NO_TOPIC:
        message = f"Kafka at {address.place} has no topic `{topic}`"
        return NotFoundError(message, code="bus.stream", hint="make the topic, or check its name in the address")
    if name in _NO_RIGHT:
        hint = f"check user and password, and the rights on topic `{topic}`"
        return DeniedError(f"Kafka at {address.place} denies it: {error.str()[:200]}", code="bus.denied", hint=hint)
    if name in _NEVER:
        message = f"topic `{topic}` of Kafka at {address.place} refuses it: {error.str()[:200]}"
        return RejectedError(message, code="bus.refused", hint="look at the settings of the topic")
    return UnavailableError(f"Kafka at {address.place} does not answer: {error.str()[:200]}", code="bus.away")


class _Line:
    """A producer, and the thread that hears what became of its messages."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.broken = False
        self._ending = Signal()
        self._thread = Thread(target=self._listen, name="interlock-kafka", daemon=True)
        start_thread(self._thread)

    def _listen(self) -> None:
        while not self._ending.is_set():
            self.producer.poll(0.1)

    def end(self) -> None:
        """Wait a moment for what is under way, and let go. Waits: not for the event loop."""
        self.producer.flush(1.0 if self.broken else CLOSING_SECONDS)
        self._ending.set()
        self._thread.join()
        self.producer.purge()
        self.producer.poll(0)


class KafkaBus:
    """A topic of Kafka."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._line: _Line | None = None
        self._making = asyncio.Lock()
        self._broken: list[_Line] = []

    async def publish(self, message: Message) -> None:
        """Give a message to the topic."""
        from confluent_kafka import KafkaException

        line = await self._ready()
        loop = asyncio.get_running_loop()
        sent: asyncio.Future[KafkaError | None] = loop.create_future()

        def told(error: KafkaError | None, _: Record) -> None:
            loop.call_soon_threadsafe(_settle, sent, error)

        try:
            line.producer.produce(
                self._address.path,
                encode_message(message),
                (message.subject or message.id).encode(),
                headers={"id": wire_id(message), "content-type": CONTENT_TYPE},
                on_delivery=told,
            )
        except BufferError:
            raise UnavailableError("too many messages wait for Kafka", code="bus.away") from None
        except KafkaException as error:
            raise _explained(error.args[0], self._address) from error
        problem = await sent
        if problem is not None:
            if problem.fatal():  # this producer is done for; the next message makes another
                line.broken = True
            raise _explained(problem, self._address)

    async def _ready(self) -> _Line:
        async with self._making:
            if self._line is not None and self._line.broken:
                self._broken.append(self._line)
                self._line = None
            if self._line is None:
                self._line = _Line(await in_thread(partial(_producer, self._address)))
            return self._line

    async def close(self) -> None:
        """Wait a moment for what is under way, and let go."""
        lines = [*self._broken, *(() if self._line is None else (self._line,))]
        self._broken, self._line = [], None
        for each in lines:
            await in_thread_or_here(each.end)


def _settle(sent: asyncio.Future[KafkaError | None], error: KafkaError | None) -> None:
    if not sent.done():  # else nobody waits any more
        sent.set_result(error)


def _producer(address: BusAddress) -> Producer:
    """A producer; it connects by itself. Raises UsageError for options that the client does not take."""
    from confluent_kafka import KafkaException, Producer

    ours = {"enable.idempotence": True, "linger.ms": LINGER_MS, "delivery.timeout.ms": int(SECONDS * 1000)}
    try:
        return Producer(ours | _settings(address))
    except KafkaException as error:
        raise _wrong_option(error.args[0]) from None


def _wrong_option(error: KafkaError) -> UsageError:
    hint = "see the configuration of librdkafka"
    return UsageError(f"the client of Kafka takes no such option: {error.str()[:200]}", code="bus.option", hint=hint)


class KafkaSource:
    """One of a consumer group of a topic of Kafka."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._reader: Consumer | None = None
        self._in_use = Lock()
        self._places: dict[int, _Places] = {}

    async def incoming(self) -> AsyncGenerator[KafkaIncoming, None]:
        """Messages as they come. An endless stream by intent; it ends with an error, and may be asked for again."""
        reader = self._reader = self._reader or self._joined()
        while True:
            for record in await in_thread(partial(self._read, reader)):
                problem = record.error()
                if problem is None:
                    yield self._noted(reader, record)
                elif problem.name() in _NO_TOPIC | _NO_RIGHT:
                    await self.close()  # a reader that joins anew sees a topic that was made since at once
                    raise _explained(problem, self._address)
                # else the client tells of its troubles, and mends them

    def _read(self, reader: Consumer) -> list[Record]:
        with self._in_use:  # whoever stopped waiting for it may be closing the reader by now
            return [] if self._reader is None else reader.consume(READ_MAX, 0.5)

    def _joined(self) -> Consumer:
        from confluent_kafka import Consumer, KafkaException

        ours = {"enable.auto.offset.store": False, "auto.offset.reset": "earliest"}
        group = {"group.id": self._address.options["group"]}
        try:
            reader = Consumer(ours | group | _settings(self._address))
        except KafkaException as error:
            raise _wrong_option(error.args[0]) from None
        reader.subscribe([self._address.path], on_assign=lambda *_: self._places.clear())
        return reader

    def _noted(self, reader: Consumer, record: Record) -> KafkaIncoming:
        partition, offset = record.partition() or 0, record.offset() or 0
        places = self._places.setdefault(partition, _Places())
        places.begin(offset)
        return KafkaIncoming(record.value() or b"", lambda: self._taken(reader, partition, places, offset))

    def _taken(self, reader: Consumer, partition: int, places: _Places, offset: int) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        reached = places.end(offset)
        if reached is not None:
            with suppress(KafkaException, RuntimeError):  # another has the partition now, or this reader is closed
                reader.store_offsets(offsets=[TopicPartition(self._address.path, partition, reached + 1)])

    async def close(self) -> None:
        """Leave the group; what was not taken is brought to others."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await in_thread_or_here(partial(self._leave, reader))

    def _leave(self, reader: Consumer) -> None:
        with self._in_use:
            reader.close()


class _Places:
    """Which records of a partition are taken: its place moves on when all before it are."""

    def __init__(self) -> None:
        self._begun: deque[int] = deque()
        self._ended: set[int] = set()

    def begin(self, offset: int) -> None:
        """A record was read."""
        self._begun.append(offset)

    def end(self, offset: int) -> int | None:
        """A record was taken: the last before which all are, if it moved on."""
        self._ended.add(offset)
        reached = None
        while self._begun and self._begun[0] in self._ended:
            reached = self._begun.popleft()
            self._ended.discard(reached)
        return reached


class KafkaIncoming:
    """A record of a topic of Kafka."""

    def __init__(self, body: bytes, taken: Callable[[], None]) -> None:
        self.body = body
        self._taken = taken

    async def taken(self) -> None:
        """Let its place move on."""
        self._taken()

    async def put_back(self) -> None:
        """Its place does not move on: it is brought again to whoever reads next."""

    async def set_aside(self) -> None:
        """Kafka keeps no dead letters: it is passed over, and stays in the topic."""
        self._taken()
