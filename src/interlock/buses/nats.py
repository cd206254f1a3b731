"""Messages to and from NATS JetStream: `nats://host:4222?stream=orders`.

Rule 1: a message goes to the subject `<subject>.<kind>` (`subject` is the stream's name unless the address says
otherwise) and is sent when the stream has it. `Nats-Msg-Id` is its id: within the stream's window a repeat is dropped.
Rule 2: the stream is somebody's to set up; with `create=1` a missing one is made, kept in files.
Rule 3: a reader is a durable pull consumer, `group=`; readers of one group share the messages.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from interlock.buses.address import BusAddress, missing_extra, parse_address, wire_id
from interlock.buses.polling import poll_once
from interlock.errors import DeniedError, InterlockError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.journal.message import CONTENT_TYPE, Message, encode_message

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

EXAMPLE = "nats://127.0.0.1:4222?stream=orders"
SECONDS = 5.0
"""How long the server may take to answer."""

DUPLICATES_SECONDS = 3600
"""The window of a stream that we make in which a repeated id is dropped: longer than a relay's death and its lease."""

WAIT_SECONDS = 30
"""After which a message that nobody answered for is brought again."""

FETCHED_MAX = 64
FETCH_SECONDS = 0.5
"""How long one request for messages stands: a reader that stops waits for its end."""

_TOKENS = re.compile(r"[^\s.*>\x00]+(\.[^\s.*>\x00]+)*")
_TOO_LARGE = 10054


def open_bus(url: str) -> NatsBus:
    """The bus of `nats://[user:password@]host:4222[,host...]?stream=name`; `subject=`, `create=1`, `tls=1`."""
    return NatsBus(_address(url, ("create", "stream", "subject", "tls")))


def open_source(url: str) -> NatsSource:
    """The reader of `nats://host:4222?stream=name&group=name`; `subject=` narrows it, such as `orders.order`.

    When the group is first made, `in_hand=1` lets one message be under way at a time, so that order holds whatever
    dies, and `wait=` says after how many seconds one that nobody answered for comes again.
    """
    address = _address(url, ("create", "group", "in_hand", "stream", "subject", "tls", "wait"))
    address.needed("group", f"{EXAMPLE}&group=billing")
    return NatsSource(address)


def _address(url: str, options: tuple[str, ...]) -> BusAddress:
    address = parse_address(url, port=4222, options=options, example=EXAMPLE)
    stream = address.needed("stream", EXAMPLE)
    for name in ("stream", "subject", "group"):
        if _TOKENS.fullmatch(address.options.get(name, "x").removesuffix(".>")) is None:
            raise UsageError(f"`{name}` of the bus's address is no name that NATS takes", code="bus.option")
    if "." in stream or "." in address.options.get("group", ""):
        raise UsageError("names of streams and groups have no dots", code="bus.option", hint=f"such as {EXAMPLE}")
    for name in ("create", "tls"):
        address.flag(name)
    try:
        import nats  # noqa: F401 - a missing one shows when the bus is opened, not when the first message goes
    except ModuleNotFoundError as error:
        raise missing_extra(error, "nats", "nats") from error
    return address


class _Link:
    """A connection that is made when it is first needed, and mends itself."""

    def __init__(self, address: BusAddress) -> None:
        self.address = address
        self.stream = address.options["stream"]
        self.subject = address.options.get("subject", self.stream)
        self.denied: str | None = None
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def stream_context(self) -> JetStreamContext:
        """JetStream, connected. Raises UnavailableError, or DeniedError when we may not log in."""
        async with self._connecting:
            if self._client is None or self._client.is_closed:
                self._client = await self._connected()
            return self._client.jetstream(timeout=SECONDS)

    async def _connected(self) -> Client:
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
                    error_cb=self._noted,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=1,
                    connect_timeout=2,
                )
                if address.flag("create"):
                    await self._created(client.jetstream(timeout=SECONDS))
        except BaseException as error:
            await _let_go(client)
            if isinstance(error, Exception):
                raise self.explained(error) from error
            raise
        return client

    async def _created(self, context: JetStreamContext) -> None:
        import nats.js.errors

        try:
            await context.stream_info(self.stream)
        except nats.js.errors.NotFoundError:
            await context.add_stream(
                name=self.stream, subjects=[f"{self.subject}.>"], duplicate_window=DUPLICATES_SECONDS
            )

    async def _noted(self, error: Exception) -> None:
        """What the server says beside its answers: a missing right is told only here."""
        text = str(error).lower()
        if "permissions violation" in text or "authorization" in text:
            self.denied = str(error)

    def explained(self, error: Exception) -> InterlockError:
        """What a failure means for whoever waits."""
        import nats.errors
        import nats.js.errors

        place = self.address.place
        if isinstance(error, InterlockError):
            return error
        if self.denied is not None:
            denied, self.denied = self.denied, None
            message = f"NATS at {place} denies it: {denied[:200]}"
            return DeniedError(message, code="bus.denied", hint=f"allow publishing to `{self.subject}.>`")
        if isinstance(error, nats.errors.MaxPayloadError) or getattr(error, "err_code", None) == _TOO_LARGE:
            hint = "emit less, or raise `max_payload` of the server and `max_msg_size` of the stream"
            return RejectedError("the message is too large for NATS", code="bus.size", hint=hint)
        if isinstance(error, nats.js.errors.NoStreamResponseError | nats.js.errors.NotFoundError):
            message = f"no stream of NATS at {place} takes `{self.subject}.>`"
            return NotFoundError(message, code="bus.stream", hint=f"make stream `{self.stream}`, or add `create=1`")
        if isinstance(error, nats.js.errors.BadRequestError):
            message = f"stream `{self.stream}` of NATS at {place} refuses it: {error.description}"
            return DeniedError(message, code="bus.refused", hint="look at the settings of the stream")
        return UnavailableError(f"NATS at {place} does not answer: {type(error).__name__}", code="bus.away")

    async def close(self) -> None:
        """Let go of the connection."""
        client, self._client = self._client, None
        if client is not None:
            await _let_go(client)


async def _let_go(client: Client) -> None:
    """Close a connection; a server that is away need not hear of it."""
    with suppress(Exception):
        if client.is_connected:
            await client.flush(1)  # what was acknowledged last is on its way
    with suppress(Exception):
        async with asyncio.timeout(SECONDS):
            await client.close()


class NatsBus:
    """A stream of NATS."""

    def __init__(self, address: BusAddress) -> None:
        self._link = _Link(address)

    async def publish(self, message: Message) -> None:
        """Give a message to the stream."""
        link = self._link
        context = await link.stream_context()
        headers = {"Nats-Msg-Id": wire_id(message), "Content-Type": CONTENT_TYPE}
        subject = f"{link.subject}.{_token(message.kind or message.type)}"
        try:
            await context.publish(
                subject, encode_message(message), timeout=SECONDS, stream=link.stream, headers=headers
            )
        except Exception as error:
            raise link.explained(error) from error

    async def close(self) -> None:
        """Let go of the connection."""
        await self._link.close()


class NatsSource:
    """A durable consumer of a stream of NATS."""

    def __init__(self, address: BusAddress) -> None:
        self._link = _Link(address)
        self._group = address.options["group"]
        self._in_hand = address.number("in_hand", 4 * FETCHED_MAX)
        self._wait_seconds = address.number("wait", WAIT_SECONDS)

    async def incoming(self) -> AsyncGenerator[NatsIncoming, None]:
        """Messages as they come. An endless stream by intent; it ends with an error, and may be asked for again."""
        from nats.js.api import AckPolicy, ConsumerConfig

        link = self._link
        subject = link.address.options.get("subject", "")
        settings = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT, max_ack_pending=self._in_hand, ack_wait=self._wait_seconds
        )
        context = await link.stream_context()
        pulling = None
        try:
            pulling = await context.pull_subscribe(subject, durable=self._group, stream=link.stream, config=settings)
            while True:
                async with aclosing(poll_once(_fetched(pulling, min(FETCHED_MAX, self._in_hand)))) as found:
                    async for each in found:
                        yield each
        except Exception as error:
            raise link.explained(error) from error
        finally:
            if pulling is not None:
                with suppress(Exception):
                    await pulling.unsubscribe()

    async def close(self) -> None:
        """Let go of the connection."""
        await self._link.close()


async def _fetched(pulling: JetStreamContext.PullSubscription, count: int) -> list[NatsIncoming]:
    """What came within a moment."""
    try:
        return [NatsIncoming(each) for each in await pulling.fetch(count, timeout=FETCH_SECONDS)]
    except TimeoutError:  # nothing came
        return []


class NatsIncoming:
    """A message of a stream of NATS."""

    def __init__(self, message: Msg) -> None:
        self._message = message

    @property
    def body(self) -> bytes:
        """What was sent."""
        return self._message.data

    async def taken(self) -> None:
        """Acknowledge it."""
        await self._message.ack()

    async def put_back(self) -> None:
        """Have it brought again."""
        await self._message.nak()

    async def set_aside(self) -> None:
        """Have it brought no more; the server tells so in an advisory."""
        await self._message.term()


def _token(text: str) -> str:
    """A word that may stand in a subject."""
    return re.sub(r"[\s.*>\x00]", "_", text) or "_"
