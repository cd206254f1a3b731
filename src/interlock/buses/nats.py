"""Messages to and from NATS JetStream: `nats://host:4222?stream=orders`.

Rule 1: a message goes to the subject `<subject>.<kind>` (`subject` is the stream's name unless the address says
otherwise) and is sent when the stream has it. `Nats-Msg-Id` is its id: within the stream's window the server drops
repeated messages.
Rule 2: the operator creates the stream. With `create=1` a missing one is created, stored in files.
Rule 3: a reader is a durable pull consumer, `group=`; readers of one group share the messages.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from interlock.buses.address import BusAddress, BusSpec, LazyConnection, wire_id
from interlock.buses.polling import poll_once
from interlock.errors import DeniedError, InterlockError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.journal.message import CONTENT_TYPE, Message, encode_message

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

EXAMPLE = "nats://127.0.0.1:4222?stream=orders"
SPEC = BusSpec("nats", "nats", 4222, EXAMPLE)
SECONDS = 5.0
"""How long the server may take to respond."""

DUPLICATES_SECONDS = 3600
"""The window in which a stream that we create drops repeated ids: longer than the lease of a relay that died."""

WAIT_SECONDS = 30
"""After how long a message that was not acknowledged is delivered again."""

FETCHED_MAX = 64
FETCH_SECONDS = 0.5
"""How long one poll for messages takes: a reader that stops waits for its end."""

_TOKENS = re.compile(r"[^\s.*>\x00]+(\.[^\s.*>\x00]+)*")
_TOO_LARGE = 10054


def open_bus(url: str) -> NatsBus:
    """Return the bus of `nats://[user:password@]host:4222[,host...]?stream=name`; `subject=`, `create=1`, `tls=1`."""
    return NatsBus(_address(url, ("create", "stream", "subject", "tls")))


def open_source(url: str) -> NatsSource:
    """Return the reader of `nats://host:4222?stream=name&group=name`; `subject=` filters, such as `orders.order`.

    When the group is created, `in_hand=1` allows one unacknowledged message at a time, so that the order is kept
    whatever fails, and `wait=` sets after how many seconds an unacknowledged message is delivered again.
    """
    address = _address(url, ("create", "group", "in_hand", "stream", "subject", "tls", "wait"))
    address.required("group", f"{EXAMPLE}&group=billing")
    return NatsSource(address)


def _address(url: str, options: tuple[str, ...]) -> BusAddress:
    address = SPEC.parse(url, options)
    stream = address.required("stream", EXAMPLE)
    for name in ("stream", "subject", "group"):
        if _TOKENS.fullmatch(address.options.get(name, "x").removesuffix(".>")) is None:
            raise UsageError(f"`{name}` in the address of the bus is not a valid NATS name", code="bus.option")
    if "." in stream or "." in address.options.get("group", ""):
        message = "names of streams and groups must not contain dots"
        raise UsageError(message, code="bus.option", hint=f"such as {EXAMPLE}")
    for name in ("create", "tls"):
        address.flag(name)
    return address


class _Connection:
    """A connection to a server, opened when it is first needed; the client reconnects automatically."""

    def __init__(self, address: BusAddress) -> None:
        self.address = address
        self.stream = address.options["stream"]
        self.subject = address.options.get("subject", self.stream)
        self.denied: str | None = None
        self._client = LazyConnection(self._connect)

    async def stream_context(self) -> JetStreamContext:
        """Return a connected JetStream. Raises UnavailableError, or DeniedError when the login is refused."""
        client = await self._client.get(lambda client: not client.is_closed)
        return client.jetstream(timeout=SECONDS)

    async def _connect(self) -> Client:
        from nats.aio.client import Client

        client = Client()
        address = self.address
        self.denied = None
        try:
            async with asyncio.timeout(SECONDS):
                await client.connect(
                    [f"{'tls' if address.flag('tls') else 'nats'}://{place}" for place in address.place.split(",")],
                    user=address.user,
                    password=address.password,
                    name="interlock",
                    error_cb=self._on_error,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=1,
                    connect_timeout=2,
                )
                if address.flag("create"):
                    await self._create_stream(client.jetstream(timeout=SECONDS))
        except BaseException as error:
            await _close(client)
            if isinstance(error, Exception):
                raise self.translate_error(error) from error
            raise
        return client

    async def _create_stream(self, context: JetStreamContext) -> None:
        import nats.js.errors

        try:
            await context.stream_info(self.stream)
        except nats.js.errors.NotFoundError:
            await context.add_stream(
                name=self.stream, subjects=[f"{self.subject}.>"], duplicate_window=DUPLICATES_SECONDS
            )

    async def _on_error(self, error: Exception) -> None:
        """Record an asynchronous error of the server: a missing permission is reported only here."""
        text = str(error).lower()
        if "permissions violation" in text or "authorization" in text:
            self.denied = str(error)

    def translate_error(self, error: Exception) -> InterlockError:
        """Return the error that a failure means for the caller."""
        import nats.errors
        import nats.js.errors

        place = self.address.place
        if isinstance(error, InterlockError):
            return error
        if self.denied is not None:
            denied, self.denied = self.denied, None
            message = f"NATS at {place} denies access: {denied[:200]}"
            return DeniedError(message, code="bus.denied", hint=f"allow publishing to `{self.subject}.>`")
        if isinstance(error, nats.errors.MaxPayloadError) or getattr(error, "err_code", None) == _TOO_LARGE:
            hint = "emit smaller messages, or raise `max_payload` of the server and `max_msg_size` of the stream"
            return RejectedError("the message is too large for NATS", code="bus.size", hint=hint)
        if isinstance(error, nats.js.errors.NoStreamResponseError | nats.js.errors.NotFoundError):
            message = f"no stream of NATS at {place} has the subject `{self.subject}.>`"
            hint = f"create the stream `{self.stream}`, or add `create=1` to the address"
            return NotFoundError(message, code="bus.stream", hint=hint)
        if isinstance(error, nats.js.errors.BadRequestError):
            message = f"stream `{self.stream}` of NATS at {place} refuses the request: {error.description}"
            return DeniedError(message, code="bus.refused", hint="check the settings of the stream")
        return UnavailableError(f"NATS at {place} does not respond: {type(error).__name__}", code="bus.away")

    async def close(self) -> None:
        """Close the connection."""
        client = self._client.take()
        if client is not None:
            await _close(client)


async def _close(client: Client) -> None:
    """Close a client; the server may be unreachable."""
    with suppress(Exception):
        if client.is_connected:
            await client.flush(1)  # send the last acknowledgements
    with suppress(Exception):
        async with asyncio.timeout(SECONDS):
            await client.close()


class NatsBus:
    """A NATS stream."""

    def __init__(self, address: BusAddress) -> None:
        self._connection = _Connection(address)

    async def publish(self, message: Message) -> None:
        """Publish a message to the stream."""
        connection = self._connection
        context = await connection.stream_context()
        headers = {"Nats-Msg-Id": wire_id(message), "Content-Type": CONTENT_TYPE}
        subject = f"{connection.subject}.{_token(message.kind or message.type)}"
        try:
            await context.publish(
                subject, encode_message(message), timeout=SECONDS, stream=connection.stream, headers=headers
            )
        except Exception as error:
            raise connection.translate_error(error) from error

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


class NatsSource:
    """A durable consumer of a NATS stream."""

    def __init__(self, address: BusAddress) -> None:
        self._connection = _Connection(address)
        self._group = address.options["group"]
        self._unacknowledged_max = address.number("in_hand", 4 * FETCHED_MAX)
        self._wait_seconds = address.number("wait", WAIT_SECONDS)

    async def incoming(self) -> AsyncGenerator[NatsIncoming, None]:
        """Yield messages. The stream is endless on purpose; it ends with an error, and may be started again."""
        from nats.js.api import AckPolicy, ConsumerConfig

        connection = self._connection
        subject = connection.address.options.get("subject", "")
        settings = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT, max_ack_pending=self._unacknowledged_max, ack_wait=self._wait_seconds
        )
        context = await connection.stream_context()
        pulling = None
        try:
            pulling = await context.pull_subscribe(
                subject, durable=self._group, stream=connection.stream, config=settings
            )
            while True:
                async with aclosing(poll_once(_fetch(pulling, min(FETCHED_MAX, self._unacknowledged_max)))) as found:
                    async for each in found:
                        yield each
        except Exception as error:
            raise connection.translate_error(error) from error
        finally:
            if pulling is not None:
                with suppress(Exception):
                    await pulling.unsubscribe()

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


async def _fetch(pulling: JetStreamContext.PullSubscription, count: int) -> list[NatsIncoming]:
    """Return the messages that arrive within a short time."""
    try:
        return [NatsIncoming(each) for each in await pulling.fetch(count, timeout=FETCH_SECONDS)]
    except TimeoutError:  # none arrived
        return []


class NatsIncoming:
    """A message of a NATS stream."""

    def __init__(self, message: Msg) -> None:
        self._message = message

    @property
    def body(self) -> bytes:
        """What was sent."""
        return self._message.data

    async def ack(self) -> None:
        """Acknowledge it."""
        await self._message.ack()

    async def requeue(self) -> None:
        """Have it delivered again."""
        await self._message.nak()

    async def dead_letter(self) -> None:
        """Have it not delivered again; the server reports that in an advisory."""
        await self._message.term()


def _token(text: str) -> str:
    """Return a valid token of a subject."""
    return re.sub(r"[\s.*>\x00]", "_", text) or "_"
