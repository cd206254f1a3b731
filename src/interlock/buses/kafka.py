"""Messages to and from Kafka: `kafka://host:9092/orders`, a topic.

Rule 1: the key of a record is the entity, so that its messages stay in one partition and in order. The producer is
idempotent: the broker drops its repeated messages. After a crash it does not, and readers drop them by id or
`sequence`. A message is sent when all replicas in sync have it.
Rule 2: the client starts its own threads; one thread of this module polls it for results.
Rule 3: an option with a dot in its name goes to the client, such as `security.protocol=SASL_SSL`.
Rule 4: a reader belongs to a consumer group, `group=`. Its offset in a partition advances when all records before it
are acknowledged.
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

from interlock.buses.address import BusAddress, BusSpec, LazyConnection, malformed_address, wire_id
from interlock.errors import DeniedError, InterlockError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.journal.message import CONTENT_TYPE, Message, encode_message
from interlock.ports.threads import in_thread, in_thread_or_here, start_thread

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka import Message as Record

EXAMPLE = "kafka://127.0.0.1:9092/orders"
SPEC = BusSpec("confluent_kafka", "kafka", 9092, EXAMPLE, is_client_option=lambda name: "." in name)
SECONDS = 30.0
"""How long a message may take: the client retries within it."""

LINGER_MS = 5
"""How long a message waits for others to be sent with it."""

CLOSING_SECONDS = 5.0
"""How long pending messages may take when the bus closes; unsent messages are sent again later, with the same id."""

READ_MAX = 64
"""Records read at a time."""

_NO_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
_DENIED = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "_AUTHENTICATION",
    }
)
_REJECTED = frozenset({"INVALID_RECORD", "POLICY_VIOLATION", "INVALID_TIMESTAMP"})


def open_bus(url: str) -> KafkaBus:
    """Return the bus of `kafka://[user:password@]host:9092[,host...]/topic`; options with a dot go to the client."""
    address = _address(url, ())
    if address.options:
        _producer(address)  # the client checks its options; it does not connect yet
    return KafkaBus(address)


def open_source(url: str) -> KafkaSource:
    """Return the reader of `kafka://host:9092/topic?group=name`."""
    address = _address(url, ("group",))
    address.required("group", f"{EXAMPLE}?group=billing")
    return KafkaSource(address)


def _address(url: str, options: tuple[str, ...]) -> BusAddress:
    address = SPEC.parse(url, options)
    if not address.path or "/" in address.path:
        raise malformed_address(EXAMPLE)
    return address


def _settings(address: BusAddress) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap.servers": address.place, "client.id": "interlock", "log_level": 0}
    if address.user is not None:
        login = {"sasl.username": address.user, "sasl.password": address.password or ""}
        found |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **login}
    return found | {name: value for name, value in address.options.items() if "." in name}


def _translate_error(error: KafkaError, address: BusAddress) -> InterlockError:
    """Return the error that a failure means for the caller."""
    name, topic = error.name(), address.path
    if name == "MSG_SIZE_TOO_LARGE":
        hint = "emit smaller messages, or raise `message.max.bytes` here and `max.message.bytes` of the topic"
        return RejectedError("the message is too large for Kafka", code="bus.size", hint=hint)
    if name in _NO_TOPIC:
        message = f"Kafka at {address.place} has no topic `{topic}`"
        return NotFoundError(message, code="bus.stream", hint="create the topic, or check its name in the address")
    if name in _DENIED:
        hint = f"check user and password, and the permissions on the topic `{topic}`"
        return DeniedError(f"Kafka at {address.place} denies access: {error.str()[:200]}", code="bus.denied", hint=hint)
    if name in _REJECTED:
        message = f"topic `{topic}` of Kafka at {address.place} refuses the message: {error.str()[:200]}"
        return RejectedError(message, code="bus.refused", hint="check the settings of the topic")
    return UnavailableError(f"Kafka at {address.place} does not respond: {error.str()[:200]}", code="bus.away")


class _PolledProducer:
    """A producer, and the thread that polls it for the results of its messages."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.broken = False
        self._stopping = Signal()
        self._thread = Thread(target=self._poll, name="interlock-kafka", daemon=True)
        start_thread(self._thread)

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self.producer.poll(0.1)

    def close(self) -> None:
        """Wait a moment for pending messages, and close. It blocks: do not call it in the event loop."""
        self.producer.flush(1.0 if self.broken else CLOSING_SECONDS)
        self._stopping.set()
        self._thread.join()
        self.producer.purge()
        self.producer.poll(0)


class KafkaBus:
    """A Kafka topic."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._producer = LazyConnection(self._start_producer)
        self._broken: list[_PolledProducer] = []

    async def publish(self, message: Message) -> None:
        """Publish a message to the topic."""
        from confluent_kafka import KafkaException

        polled = await self._producer.get()
        loop = asyncio.get_running_loop()
        sent: asyncio.Future[KafkaError | None] = loop.create_future()

        def on_delivery(error: KafkaError | None, _: Record) -> None:
            loop.call_soon_threadsafe(_resolve, sent, error)

        try:
            polled.producer.produce(
                self._address.path,
                encode_message(message),
                (message.subject or message.id).encode(),
                headers={"id": wire_id(message), "content-type": CONTENT_TYPE},
                on_delivery=on_delivery,
            )
        except BufferError:
            raise UnavailableError("the queue of messages for Kafka is full", code="bus.away") from None
        except KafkaException as error:
            raise _translate_error(error.args[0], self._address) from error
        problem = await sent
        if problem is not None:
            if problem.fatal() and self._producer.discard(polled):  # the next message starts another producer
                polled.broken = True
                self._broken.append(polled)
            raise _translate_error(problem, self._address)

    async def _start_producer(self) -> _PolledProducer:
        return _PolledProducer(await in_thread(partial(_producer, self._address)))

    async def close(self) -> None:
        """Wait a moment for pending messages, and close."""
        current, broken, self._broken = self._producer.take(), self._broken, []
        for each in broken if current is None else [*broken, current]:
            await in_thread_or_here(each.close)


def _resolve(sent: asyncio.Future[KafkaError | None], error: KafkaError | None) -> None:
    if not sent.done():  # otherwise the caller was cancelled
        sent.set_result(error)


def _producer(address: BusAddress) -> Producer:
    """Return a producer; it connects automatically. Raises UsageError for options that the client refuses."""
    from confluent_kafka import KafkaException, Producer

    ours = {"enable.idempotence": True, "linger.ms": LINGER_MS, "delivery.timeout.ms": int(SECONDS * 1000)}
    try:
        return Producer(ours | _settings(address))
    except KafkaException as error:
        raise _invalid_option(error.args[0]) from None


def _invalid_option(error: KafkaError) -> UsageError:
    hint = "see the configuration of librdkafka"
    return UsageError(f"the Kafka client refuses an option: {error.str()[:200]}", code="bus.option", hint=hint)


class KafkaSource:
    """A reader of a consumer group of a Kafka topic."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._reader: Consumer | None = None
        self._in_use = Lock()
        self._offsets: dict[int, _Offsets] = {}

    async def incoming(self) -> AsyncGenerator[KafkaIncoming, None]:
        """Yield messages. The stream is endless on purpose; it ends with an error, and may be started again."""
        reader = self._reader = self._reader or self._join()
        while True:
            for record in await in_thread(partial(self._read, reader)):
                problem = record.error()
                if problem is None:
                    yield self._incoming(reader, record)
                elif problem.name() in _NO_TOPIC | _DENIED:
                    await self.close()  # a new reader sees a topic that was created since
                    raise _translate_error(problem, self._address)
                # The client reports other errors and recovers from them automatically.

    def _read(self, reader: Consumer) -> list[Record]:
        with self._in_use:  # `close` may have started meanwhile
            return [] if self._reader is None else reader.consume(READ_MAX, 0.5)

    def _join(self) -> Consumer:
        from confluent_kafka import Consumer, KafkaException

        ours = {"enable.auto.offset.store": False, "auto.offset.reset": "earliest"}
        group = {"group.id": self._address.options["group"]}
        try:
            reader = Consumer(ours | group | _settings(self._address))
        except KafkaException as error:
            raise _invalid_option(error.args[0]) from None
        reader.subscribe([self._address.path], on_assign=lambda *_: self._offsets.clear())
        return reader

    def _incoming(self, reader: Consumer, record: Record) -> KafkaIncoming:
        partition, offset = record.partition() or 0, record.offset() or 0
        offsets = self._offsets.setdefault(partition, _Offsets())
        offsets.start(offset)
        return KafkaIncoming(record.value() or b"", lambda: self._ack(reader, partition, offsets, offset))

    def _ack(self, reader: Consumer, partition: int, offsets: _Offsets, offset: int) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        reached = offsets.finish(offset)
        if reached is not None:
            with suppress(KafkaException, RuntimeError):  # another reader has the partition now, or this one is closed
                reader.store_offsets(offsets=[TopicPartition(self._address.path, partition, reached + 1)])

    async def close(self) -> None:
        """Leave the group; unacknowledged records are delivered to others."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await in_thread_or_here(partial(self._leave, reader))

    def _leave(self, reader: Consumer) -> None:
        with self._in_use:
            reader.close()


class _Offsets:
    """The acknowledged records of a partition: its offset advances when all before it are acknowledged."""

    def __init__(self) -> None:
        self._started: deque[int] = deque()
        self._finished: set[int] = set()

    def start(self, offset: int) -> None:
        """Record that a record was read."""
        self._started.append(offset)

    def finish(self, offset: int) -> int | None:
        """Record that a record was acknowledged; return the last one up to which all are, if that changed."""
        self._finished.add(offset)
        reached = None
        while self._started and self._started[0] in self._finished:
            reached = self._started.popleft()
            self._finished.discard(reached)
        return reached


class KafkaIncoming:
    """A record of a Kafka topic."""

    def __init__(self, body: bytes, ack: Callable[[], None]) -> None:
        self.body = body
        self._ack = ack

    async def ack(self) -> None:
        """Let the offset advance."""
        self._ack()

    async def requeue(self) -> None:
        """Do nothing: the offset does not advance, and the next reader receives it again."""

    async def dead_letter(self) -> None:
        """Skip it: Kafka has no dead letters, and the record stays in the topic."""
        self._ack()
