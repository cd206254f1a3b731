"""Messages to and from Redis Streams: `redis://host:6379/0?stream=orders`.

Rule 1: a message is an entry of the stream with the fields `id` and `body`. Redis does not drop repeated messages;
readers do, by id or `sequence`. A message is sent when Redis has confirmed it; whether it survives a crash depends on
`appendfsync`.
Rule 2: waiting messages are sent together, in one round trip.
Rule 3: a reader belongs to a consumer group, `group=`. One that returns under its name, `reader=`, starts with the
messages it did not acknowledge. Messages that another reader has not acknowledged for a minute are claimed. Dead
letters go to the stream `<stream>.dead`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from interlock.buses.address import BusAddress, BusSpec, malformed_address, wire_id
from interlock.buses.polling import poll_once
from interlock.errors import DeniedError, InterlockError, NotFoundError, RejectedError, UnavailableError
from interlock.model.journal.message import Message, encode_message
from interlock.ports.clock import SystemClock

if TYPE_CHECKING:
    from redis.asyncio import Redis

EXAMPLE = "redis://127.0.0.1:6379/0?stream=orders"
SPEC = BusSpec("redis", "redis", 6379, EXAMPLE)
SECONDS = 5.0
"""How long the server may take to respond."""

READ_MAX = 64
OWN_MAX = 10_000
"""Unacknowledged messages of a reader: many more than it can have."""

TOGETHER_MAX = 256
"""Messages of one round trip."""

BLOCK_MS = 500
"""How long one poll for messages takes: a reader that stops waits for its end."""

LEFT_MS = 60_000
"""How long a message may be unacknowledged before another reader claims it."""


def open_bus(url: str) -> RedisBus:
    """Return the bus of `redis://[user:password@]host:6379/0?stream=name`, `rediss:` for TLS; `length=` trims it."""
    return RedisBus(_address(url, ("length", "stream")))


def open_source(url: str) -> RedisSource:
    """Return the reader of `redis://host:6379/0?stream=name&group=name`; `reader=` is its name in the group."""
    address = _address(url, ("group", "reader", "stream"))
    address.required("group", f"{EXAMPLE}&group=billing")
    return RedisSource(address)


def _address(url: str, options: tuple[str, ...]) -> BusAddress:
    address = SPEC.parse(url, options)
    address.required("stream", EXAMPLE)
    if len(address.hosts) != 1 or not (address.path or "0").isdecimal():
        raise malformed_address(EXAMPLE)
    address.number("length", 1)
    return address


def _client(address: BusAddress) -> Redis:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    ((host, port),) = address.hosts
    return Redis(
        host=host,
        port=port,
        db=int(address.path or "0"),
        username=address.user or None,
        password=address.password,
        ssl=address.scheme == "rediss",
        socket_timeout=SECONDS,
        socket_connect_timeout=SECONDS,
        retry=Retry(NoBackoff(), 0),  # the publisher retries; a lost response must not send a message twice
        client_name="interlock",
    )


def _translate_error(error: Exception, address: BusAddress) -> InterlockError:
    """Return the error that a failure means for the caller."""
    from redis import exceptions

    stream, text = address.options["stream"], str(error)[:200]
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError | exceptions.NoPermissionError):
        hint = f"allow the user XADD, XGROUP, XREADGROUP and XACK on `{stream}`"
        return DeniedError(f"Redis at {address.place} denies access", code="bus.denied", hint=hint)
    if isinstance(error, exceptions.OutOfMemoryError | exceptions.ReadOnlyError | exceptions.ClusterError):
        return UnavailableError(f"Redis at {address.place} accepts no writes now: {text}", code="bus.away")
    if isinstance(error, exceptions.ResponseError):
        if "exceeds" in text or "too big" in text:
            return RejectedError("the message is too large for Redis", code="bus.size", hint="emit smaller messages")
        if "MISCONF" in text or "LOADING" in text or "TRYAGAIN" in text:
            return UnavailableError(f"Redis at {address.place} accepts no writes now: {text}", code="bus.away")
        message = f"`{stream}` of Redis at {address.place} refuses the request: {text}"
        return NotFoundError(message, code="bus.stream", hint="set `stream` to a stream or an unused key")
    return UnavailableError(f"Redis at {address.place} does not respond: {type(error).__name__}", code="bus.away")


class RedisBus:
    """A Redis stream."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._client: Redis | None = None
        self._waiting: list[tuple[Message, asyncio.Future[None]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def publish(self, message: Message) -> None:
        """Publish a message to the stream."""
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, sent))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send())
        await sent

    async def _send(self) -> None:
        """Send the waiting messages in batches until none is left."""
        while self._waiting:
            batch, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
            try:
                results = await self._send_batch([message for message, _ in batch])
            except Exception as error:  # noqa: BLE001 - every waiting caller gets it
                results = [error] * len(batch)
            for (_, sent), result in zip(batch, results, strict=True):
                if sent.done():  # the caller was cancelled
                    continue
                if isinstance(result, Exception):
                    sent.set_exception(_translate_error(result, self._address))
                else:
                    sent.set_result(None)

    async def _send_batch(self, messages: list[Message]) -> list[Any]:
        if self._client is None:
            self._client = _client(self._address)
        options = self._address.options
        length = self._address.number("length", 1) if "length" in options else None
        async with self._client.pipeline(transaction=False) as pipeline:
            for message in messages:
                fields: dict[Any, Any] = {"id": wire_id(message), "body": encode_message(message)}
                pipeline.xadd(options["stream"], fields, maxlen=length, approximate=True)
            return await pipeline.execute(raise_on_error=False)

    async def close(self) -> None:
        """Close the connection."""
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=SECONDS)
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


class RedisSource:
    """A reader of a consumer group of a Redis stream."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._client = _client(address)
        self.stream = address.options["stream"]
        self.group = address.options["group"]
        self.reader = address.options.get("reader") or SystemClock().token()

    async def incoming(self) -> AsyncGenerator[RedisIncoming, None]:
        """Yield messages. The stream is endless on purpose; it ends with an error, and may be started again."""
        try:
            await self._join()
            poll = self._poll_own
            while True:
                async with aclosing(poll_once(poll())) as found:
                    async for each in found:
                        yield each
                poll = self._poll_new
        except Exception as error:
            raise _translate_error(error, self._address) from error

    async def _join(self) -> None:
        from redis.exceptions import ResponseError

        try:
            await self._client.xgroup_create(self.stream, self.group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):  # another reader has created it
                raise

    async def _poll_own(self) -> list[RedisIncoming]:
        """Return what this reader received and did not acknowledge: after a lost response or a restart."""
        found: Any = await self._client.xreadgroup(self.group, self.reader, {self.stream: "0"}, count=OWN_MAX)
        return self._messages([each for _, entries in found for each in entries])

    async def _poll_new(self) -> list[RedisIncoming]:
        """Return what other readers left unacknowledged, else new messages; none after a short wait."""
        client, group = self._client, self.group
        claimed: Any = await client.xautoclaim(self.stream, group, self.reader, LEFT_MS, count=READ_MAX)
        entries = claimed[1]
        if not entries:
            new: Any = await client.xreadgroup(group, self.reader, {self.stream: ">"}, count=READ_MAX, block=BLOCK_MS)
            entries = [each for _, found in new for each in found]
        return self._messages(entries)

    def _messages(self, entries: list[Any]) -> list[RedisIncoming]:
        return [RedisIncoming(self, self._client, number, fields) for number, fields in entries if fields]

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()


class RedisIncoming:
    """A message of a Redis stream."""

    def __init__(self, source: RedisSource, client: Redis, number: bytes, fields: dict[bytes, bytes]) -> None:
        self._source = source
        self._client = client
        self._number = number
        self._fields = fields
        self.body = fields.get(b"body", b"")

    async def ack(self) -> None:
        """Acknowledge it."""
        await self._client.xack(self._source.stream, self._source.group, self._number)

    async def requeue(self) -> None:
        """Mark it as idle for long: the next reader that polls claims it."""
        source = self._source
        await self._client.xclaim(
            source.stream, source.group, source.reader, 0, [self._number], idle=LEFT_MS, justid=True
        )

    async def dead_letter(self) -> None:
        """Copy it to the stream of dead letters."""
        fields: dict[Any, Any] = dict(self._fields)
        await self._client.xadd(f"{self._source.stream}.dead", fields)
        await self.ack()
