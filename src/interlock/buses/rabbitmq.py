"""Messages to and from RabbitMQ: `amqp://user@host:5672/?exchange=orders`, or `?queue=orders`.

Rule 1: a message is persistent, has its `message_id`, and is sent when the broker has confirmed it. To an exchange it
goes under its type, so that `order.#` binds all of a kind; one that no queue takes is refused, and not lost.
Rule 2: exchanges and queues are somebody's to set up; with `create=1` missing ones are made, durable.
Rule 3: a reader takes from `queue=`; what it sets aside goes where the queue's dead letter exchange leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING

from interlock.buses.address import BusAddress, missing_extra, parse_address, wire_id
from interlock.errors import DeniedError, InterlockError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.journal.message import CONTENT_TYPE, Message, encode_message

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange, AbstractIncomingMessage

EXAMPLE = "amqp://guest:guest@127.0.0.1:5672/?exchange=orders"
SECONDS = 10.0
"""How long the broker may take to answer: a mirrored queue confirms when the mirrors have it."""

PREFETCHED_MAX = 64
TYPE_BYTES_MAX = 255
"""Bytes of a message's type: it is a header and the key by which an exchange finds queues, and AMQP takes no more."""


def open_bus(url: str) -> RabbitBus:
    """The bus of `amqp://user:password@host:5672/vhost?exchange=name` or `?queue=name`, `amqps:` by TLS; `create=1`."""
    address = _address(url, ("create", "exchange", "queue"))
    if ("exchange" in address.options) == ("queue" in address.options):
        message = f"the address of the bus at {address.place} names an `exchange` or a `queue`"
        raise UsageError(message, code="bus.option", hint=f"such as {EXAMPLE}")
    return RabbitBus(address)


def open_source(url: str) -> RabbitSource:
    """The reader of `amqp://host:5672/vhost?queue=name`; `create=1` makes it, and binds it to `exchange=` by `key=`."""
    address = _address(url, ("create", "exchange", "key", "queue"))
    address.needed("queue", "amqp://guest:guest@127.0.0.1:5672/?queue=billing")
    return RabbitSource(address)


def _address(url: str, options: tuple[str, ...]) -> BusAddress:
    address = parse_address(url, port=5672 if url.startswith("amqp:") else 5671, options=options, example=EXAMPLE)
    address.flag("create")
    if len(address.hosts) != 1:
        raise UsageError("RabbitMQ is reached at one host", code="bus.address", hint="put a balancer before several")
    try:
        import aio_pika  # noqa: F401 - a missing one shows when the bus is opened, not when the first message goes
    except ModuleNotFoundError as error:
        raise missing_extra(error, "aio_pika", "rabbitmq") from error
    return address


async def _connected(address: BusAddress) -> AbstractConnection:
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


async def _let_go(connection: AbstractConnection) -> None:
    """Close a connection; a broker that is away need not hear of it."""
    with suppress(Exception):
        async with asyncio.timeout(SECONDS):
            await connection.close()


def _explained(error: Exception, address: BusAddress) -> InterlockError:
    """What a failure means for whoever waits."""
    from aio_pika import exceptions
    from aiormq.exceptions import ChannelAccessRefused, ConnectionNotAllowed

    refused = exceptions.AuthenticationError | exceptions.ProbableAuthenticationError
    if isinstance(error, refused | ChannelAccessRefused | ConnectionNotAllowed):
        hint = "check user, password, virtual host and its permissions"
        return DeniedError(f"RabbitMQ at {address.place} denies it", code="bus.denied", hint=hint)
    if isinstance(error, exceptions.PublishError):
        message = f"no queue of RabbitMQ at {address.place} takes messages of this type"
        return NotFoundError(message, code="bus.unroutable", hint="bind a queue to the exchange")
    if isinstance(error, exceptions.ChannelNotFoundEntity):
        hint = "make the exchange or queue, or add `create=1` to the address"
        return NotFoundError(f"RabbitMQ at {address.place}: {error.reason}", code="bus.stream", hint=hint)
    if isinstance(error, exceptions.ChannelPreconditionFailed):
        hint = "let its settings be as they are: leave `create=1` out"
        return DeniedError(f"RabbitMQ at {address.place}: {error.reason}", code="bus.refused", hint=hint)
    return UnavailableError(f"RabbitMQ at {address.place} does not answer: {type(error).__name__}", code="bus.away")


class RabbitBus:
    """An exchange or a queue of RabbitMQ."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._connection: AbstractConnection | None = None
        self._exchange: AbstractExchange | None = None
        self._connecting = asyncio.Lock()

    async def publish(self, message: Message) -> None:
        """Give a message to the broker."""
        from aio_pika import DeliveryMode
        from aio_pika import Message as Envelope
        from aio_pika.exceptions import DeliveryError

        if len(message.type.encode()) > TYPE_BYTES_MAX:  # else it would look as if the broker were away
            text = f"the type `{message.type[:60]}...` has more than {TYPE_BYTES_MAX} bytes, and RabbitMQ takes no more"
            raise RejectedError(text, code="bus.size", hint="give the event or the kind a shorter name")
        envelope = Envelope(
            encode_message(message),
            message_id=wire_id(message),  # by which the client knows what the broker returns: no two may be the same
            content_type=CONTENT_TYPE,
            delivery_mode=DeliveryMode.PERSISTENT,
            type=message.type,
            app_id="interlock",
        )
        key = self._address.options.get("queue", message.type)
        exchange = None
        try:
            exchange = await self._ready()
            await exchange.publish(envelope, key, mandatory=True, timeout=SECONDS)
        except Exception as error:
            if not isinstance(error, DeliveryError):  # the broker's word on this message; all else ends the channel
                await self._forget(exchange)
            raise _explained(error, self._address) from error

    async def _ready(self) -> AbstractExchange:
        async with self._connecting:
            if self._exchange is None:
                async with asyncio.timeout(2 * SECONDS):  # a broker that boots may take a connection and say nothing
                    self._connection = await _connected(self._address)
                    channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
                    self._exchange = await self._found(channel)
            return self._exchange

    async def _found(self, channel: AbstractChannel) -> AbstractExchange:
        options, create = self._address.options, self._address.flag("create")
        if "queue" in options:
            await channel.declare_queue(options["queue"], durable=True, passive=not create, timeout=SECONDS)
            return channel.default_exchange
        return await channel.declare_exchange(
            options["exchange"], "topic", durable=True, passive=not create, timeout=SECONDS
        )

    async def _forget(self, exchange: AbstractExchange | None) -> None:
        """Let go of a channel that failed, unless others have a new one already: the next message makes another."""
        async with self._connecting:
            if exchange is not self._exchange:
                return
            connection, self._connection, self._exchange = self._connection, None, None
            if connection is not None:
                await _let_go(connection)

    async def close(self) -> None:
        """Let go of the connection."""
        await self._forget(self._exchange)


class RabbitSource:
    """A reader of a queue of RabbitMQ."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._connection: AbstractConnection | None = None

    async def incoming(self) -> AsyncGenerator[RabbitIncoming, None]:
        """Messages as they come. An endless stream by intent; it ends with an error, and may be asked for again."""
        options, create = self._address.options, self._address.flag("create")
        await self.close()
        try:
            async with asyncio.timeout(2 * SECONDS):
                self._connection = await _connected(self._address)
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
            raise _explained(error, self._address) from error

    async def close(self) -> None:
        """Let go of the connection; what was not taken is brought to others."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await _let_go(connection)


class RabbitIncoming:
    """A message of a queue of RabbitMQ."""

    def __init__(self, message: AbstractIncomingMessage) -> None:
        self._message = message
        self.body = message.body

    async def taken(self) -> None:
        """Acknowledge it."""
        await self._message.ack()

    async def put_back(self) -> None:
        """Have it brought again."""
        await self._message.nack(requeue=True)

    async def set_aside(self) -> None:
        """To the dead letter exchange of the queue, if it has one."""
        await self._message.reject(requeue=False)
