"""Messages to and from RabbitMQ: `amqp://user@host:5672/?exchange=orders`, or `?queue=orders`.

Rule 1: a message is persistent, has its `message_id`, and is sent when the broker has confirmed it. In an exchange its
routing key is its type, so that `order.#` binds all messages of a kind. A message that no queue accepts is an error.
Rule 2: the operator creates exchanges and queues. With `create=1` missing ones are created, durable.
Rule 3: a reader consumes `queue=`; dead letters go to the queue's dead letter exchange.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from interlock.buses.address import BusAddress, BusSpec, LazyConnection, wire_id
from interlock.errors import DeniedError, InterlockError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.journal.message import CONTENT_TYPE, Message, encode_message

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange, AbstractIncomingMessage

EXAMPLE = "amqp://guest:guest@127.0.0.1:5672/?exchange=orders"
SPEC = BusSpec("aio_pika", "rabbitmq", 5672, EXAMPLE)
TLS_SPEC = BusSpec("aio_pika", "rabbitmq", 5671, EXAMPLE)
SECONDS = 10.0
"""How long the broker may take to respond: a mirrored queue confirms when the mirrors have the message."""

PREFETCHED_MAX = 64
TYPE_BYTES_MAX = 255
"""Bytes of a message's type: it is a header and the routing key, and AMQP allows no more."""


def open_bus(url: str) -> RabbitBus:
    """Return the bus of `amqp://user:password@host:5672/vhost?exchange=name` or `?queue=name`; `amqps:` for TLS."""
    address = _address(url, ("create", "exchange", "queue"))
    if ("exchange" in address.options) == ("queue" in address.options):
        message = f"the address of the bus at {address.place} needs either `exchange` or `queue`"
        raise UsageError(message, code="bus.option", hint=f"such as {EXAMPLE}")
    return RabbitBus(address)


def open_source(url: str) -> RabbitSource:
    """Return the reader of `amqp://host:5672/vhost?queue=name`; `create=1` binds it to `exchange=` with `key=`."""
    address = _address(url, ("create", "exchange", "key", "queue"))
    address.required("queue", "amqp://guest:guest@127.0.0.1:5672/?queue=billing")
    return RabbitSource(address)


def _address(url: str, options: tuple[str, ...]) -> BusAddress:
    address = (SPEC if url.startswith("amqp:") else TLS_SPEC).parse(url, options)
    address.flag("create")
    if len(address.hosts) != 1:
        hint = "use a load balancer in front of several hosts"
        raise UsageError("the address of RabbitMQ must have one host", code="bus.address", hint=hint)
    return address


async def _connect(address: BusAddress) -> AbstractConnection:
    import aio_pika

    ((host, port),) = address.hosts
    return await aio_pika.connect(
        host=host,
        port=port,
        login=address.user or "guest",
        password=address.password if address.password is not None else "guest",
        virtualhost=address.path or "/",
        ssl=address.scheme == "amqps",
        timeout=SECONDS,
        client_properties={"connection_name": "interlock"},
    )


async def _close(connection: AbstractConnection) -> None:
    """Close a connection; the broker may be unreachable."""
    with suppress(Exception):
        async with asyncio.timeout(SECONDS):
            await connection.close()


def _translate_error(error: Exception, address: BusAddress) -> InterlockError:
    """Return the error that a failure means for the caller."""
    from aio_pika import exceptions
    from aiormq.exceptions import ChannelAccessRefused, ConnectionNotAllowed

    refused = exceptions.AuthenticationError | exceptions.ProbableAuthenticationError
    if isinstance(error, refused | ChannelAccessRefused | ConnectionNotAllowed):
        hint = "check user, password, virtual host and its permissions"
        return DeniedError(f"RabbitMQ at {address.place} denies access", code="bus.denied", hint=hint)
    if isinstance(error, exceptions.PublishError):
        message = f"no queue of RabbitMQ at {address.place} accepts messages of this type"
        return NotFoundError(message, code="bus.unroutable", hint="bind a queue to the exchange")
    if isinstance(error, exceptions.ChannelNotFoundEntity):
        hint = "create the exchange or queue, or add `create=1` to the address"
        return NotFoundError(f"RabbitMQ at {address.place}: {error.reason}", code="bus.stream", hint=hint)
    if isinstance(error, exceptions.ChannelPreconditionFailed):
        hint = "remove `create=1` to use it with its present settings"
        return DeniedError(f"RabbitMQ at {address.place}: {error.reason}", code="bus.refused", hint=hint)
    return UnavailableError(f"RabbitMQ at {address.place} does not respond: {type(error).__name__}", code="bus.away")


class _Channel(NamedTuple):
    """A connection, and the exchange to publish to."""

    connection: AbstractConnection
    exchange: AbstractExchange


class RabbitBus:
    """A RabbitMQ exchange or queue."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._channel = LazyConnection(self._open_channel)

    async def publish(self, message: Message) -> None:
        """Publish a message."""
        from aio_pika import DeliveryMode
        from aio_pika import Message as Envelope
        from aio_pika.exceptions import DeliveryError

        if len(message.type.encode()) > TYPE_BYTES_MAX:  # otherwise the broker would seem unreachable
            text = f"the type `{message.type[:60]}...` exceeds {TYPE_BYTES_MAX} bytes, the limit of RabbitMQ"
            raise RejectedError(text, code="bus.size", hint="use a shorter name for the event or the kind")
        envelope = Envelope(
            encode_message(message),
            message_id=wire_id(message),  # the client matches returned messages by it, so it must be unique
            content_type=CONTENT_TYPE,
            delivery_mode=DeliveryMode.PERSISTENT,
            type=message.type,
            app_id="interlock",
        )
        key = self._address.options.get("queue", message.type)
        channel = None
        try:
            channel = await self._channel.get()
            await channel.exchange.publish(envelope, key, mandatory=True, timeout=SECONDS)
        except Exception as error:
            # A DeliveryError is about this message; any other error ends the channel.
            if channel is not None and not isinstance(error, DeliveryError) and self._channel.discard(channel):
                await _close(channel.connection)
            raise _translate_error(error, self._address) from error

    async def _open_channel(self) -> _Channel:
        async with asyncio.timeout(2 * SECONDS):  # a broker that boots may accept a connection and not respond
            connection = await _connect(self._address)
            try:
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
                return _Channel(connection, await self._find_exchange(channel))
            except BaseException:
                await _close(connection)
                raise

    async def _find_exchange(self, channel: AbstractChannel) -> AbstractExchange:
        options, create = self._address.options, self._address.flag("create")
        if "queue" in options:
            await channel.declare_queue(options["queue"], durable=True, passive=not create, timeout=SECONDS)
            return channel.default_exchange
        return await channel.declare_exchange(
            options["exchange"], "topic", durable=True, passive=not create, timeout=SECONDS
        )

    async def close(self) -> None:
        """Close the connection."""
        channel = self._channel.take()
        if channel is not None:
            await _close(channel.connection)


class RabbitSource:
    """A reader of a RabbitMQ queue."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._connection: AbstractConnection | None = None

    async def incoming(self) -> AsyncGenerator[RabbitIncoming, None]:
        """Yield messages. The stream is endless on purpose; it ends with an error, and may be started again."""
        options, create = self._address.options, self._address.flag("create")
        await self.close()
        try:
            async with asyncio.timeout(2 * SECONDS):
                self._connection = await _connect(self._address)
                channel = await self._connection.channel()
                await channel.set_qos(prefetch_count=PREFETCHED_MAX)
                queue = await channel.declare_queue(options["queue"], durable=True, passive=not create)
                if create and "exchange" in options:
                    exchange = await channel.declare_exchange(options["exchange"], "topic", durable=True)
                    await queue.bind(exchange, options.get("key", "#"))
            async with queue.iterator() as found:
                async for each in found:
                    yield RabbitIncoming(each)
        except Exception as error:
            raise _translate_error(error, self._address) from error

    async def close(self) -> None:
        """Close the connection; unacknowledged messages are delivered to others."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await _close(connection)


class RabbitIncoming:
    """A message of a RabbitMQ queue."""

    def __init__(self, message: AbstractIncomingMessage) -> None:
        self._message = message
        self.body = message.body

    async def ack(self) -> None:
        """Acknowledge it."""
        await self._message.ack()

    async def requeue(self) -> None:
        """Have it delivered again."""
        await self._message.nack(requeue=True)

    async def dead_letter(self) -> None:
        """Send it to the dead letter exchange of the queue, if it has one."""
        await self._message.reject(requeue=False)
