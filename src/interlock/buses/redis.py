"""Messages to and from Redis Streams: `redis://host:6379/0?stream=orders`.

Rule 1: a message is an entry of the stream with the fields `id` and `body`. Redis drops no repeats: readers do, by id
or `sequence`. It is sent when Redis has answered; whether it then survives a crash is for `appendfsync` to say.
Rule 2: what waits together goes together, in one round trip.
Rule 3: a reader is one of a consumer group, `group=`. One that comes back under its name, `reader=`, begins with what
it did not finish; what another one left unfinished for a minute is taken over. What is never taken is put into the
stream `<stream>.dead`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from interlock.buses.address import BusAddress, malformed_address, missing_extra, parse_address, wire_id
from interlock.buses.polling import poll_once
from interlock.errors import DeniedError, InterlockError, NotFoundError, RejectedError, UnavailableError
from interlock.model.journal.message import Message, encode_message
from interlock.ports.clock import SystemClock

if TYPE_CHECKING:
    from redis.asyncio import Redis

EXAMPLE = "redis://127.0.0.1:6379/0?stream=orders"
SECONDS = 5.0
"""How long the server may take to answer."""

READ_MAX = 64
OWN_MAX = 10_000
"""Unfinished messages of a reader: many more than it can have in hand."""

TOGETHER_MAX = 256
"""Messages of one round trip."""

BLOCK_MS = 500
"""How long one question for messages stands: a reader that stops waits for its end."""

LEFT_MS = 60_000
"""How long a message may lie with a reader before another takes it over."""


def open_bus(url: str) -> RedisBus:
    """The bus of `redis://[user:password@]host:6379/0?stream=name`, `rediss:` by TLS; `length=`: about so many stay."""
    return RedisBus(_address(url, ("length", "stream")))


def open_source(url: str) -> RedisSource:
    """The reader of `redis://host:6379/0?stream=name&group=name`; `reader=` names it among those of its group."""
    address = _address(url, ("group", "reader", "stream"))
    address.needed("group", f"{EXAMPLE}&group=billing")
    return RedisSource(address)


def _address(url: str, options: tuple[str, ...]) -> BusAddress:
    address = parse_address(url, port=6379, options=options, example=EXAMPLE)
    address.needed("stream", EXAMPLE)
    if len(address.hosts) != 1 or not (address.path or "0").isdecimal():
        raise malformed_address(EXAMPLE)
    address.number("length", 1)
    try:
        import redis  # noqa: F401 - a missing one shows when the bus is opened, not when the first message goes
    except ModuleNotFoundError as error:
        raise missing_extra(error, "redis", "redis") from error
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
        retry=Retry(NoBackoff(), 0),  # the relay tries again, and a lost answer must not double what it sends
        client_name="interlock",
    )


def _explained(error: Exception, address: BusAddress) -> InterlockError:
    """What a failure means for whoever waits."""
    from redis import exceptions

    stream, text = address.options["stream"], str(error)[:200]
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError | exceptions.NoPermissionError):
        hint = f"give its user the right to XADD, XGROUP, XREADGROUP and XACK on `{stream}`"
        return DeniedError(f"Redis at {address.place} denies it", code="bus.denied", hint=hint)
    if isinstance(error, exceptions.OutOfMemoryError | exceptions.ReadOnlyError | exceptions.ClusterError):
        return UnavailableError(f"Redis at {address.place} takes nothing now: {text}", code="bus.away")
    if isinstance(error, exceptions.ResponseError):
        if "exceeds" in text or "too big" in text:
            return RejectedError("the message is too large for Redis", code="bus.size", hint="emit less")
        if "MISCONF" in text or "LOADING" in text or "TRYAGAIN" in text:
            return UnavailableError(f"Redis at {address.place} takes nothing now: {text}", code="bus.away")
        message = f"`{stream}` of Redis at {address.place} takes no message: {text}"
        return NotFoundError(message, code="bus.stream", hint="let `stream` name a stream, or nothing yet")
    return UnavailableError(f"Redis at {address.place} does not answer: {type(error).__name__}", code="bus.away")


class RedisBus:
    """A stream of Redis."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._client: Redis | None = None
        self._waiting: list[tuple[Message, asyncio.Future[None]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def publish(self, message: Message) -> None:
        """Give a message to the stream."""
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, sent))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send())
        await sent

    async def _send(self) -> None:
        """Send what waits, together, until nothing does."""
        while self._waiting:
            batch, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
            try:
                answers = await self._sent([message for message, _ in batch])
            except Exception as error:  # noqa: BLE001 - each who waits hears of it
                answers = [error] * len(batch)
            for (_, sent), answer in zip(batch, answers, strict=True):
                if sent.done():  # nobody waits any more
                    continue
                if isinstance(answer, Exception):
                    sent.set_exception(_explained(answer, self._address))
                else:
                    sent.set_result(None)

    async def _sent(self, messages: list[Message]) -> list[Any]:
        if self._client is None:
            self._client = _client(self._address)
        options = self._address.options
        length = self._address.number("length", 1) if "length" in options else None
        async with self._client.pipeline(transaction=False) as together:
            for message in messages:
                fields: dict[Any, Any] = {"id": wire_id(message), "body": encode_message(message)}
                together.xadd(options["stream"], fields, maxlen=length, approximate=True)
            return await together.execute(raise_on_error=False)

    async def close(self) -> None:
        """Let go of the connection."""
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=SECONDS)
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


class RedisSource:
    """One of a consumer group of a stream of Redis."""

    def __init__(self, address: BusAddress) -> None:
        self._address = address
        self._client = _client(address)
        self.stream = address.options["stream"]
        self.group = address.options["group"]
        self.reader = address.options.get("reader") or SystemClock().token()

    async def incoming(self) -> AsyncGenerator[RedisIncoming, None]:
        """Messages as they come. An endless stream by intent; it ends with an error, and may be asked for again."""
        try:
            await self._joined()
            question = self._own
            while True:
                async with aclosing(poll_once(question())) as found:
                    async for each in found:
                        yield each
                question = self._found
        except Exception as error:
            raise _explained(error, self._address) from error

    async def _joined(self) -> None:
        from redis.exceptions import ResponseError

        try:
            await self._client.xgroup_create(self.stream, self.group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):  # others have made it
                raise

    async def _own(self) -> list[RedisIncoming]:
        """What this reader was given and did not finish: the answer was lost, or it is the same one started again."""
        found: Any = await self._client.xreadgroup(self.group, self.reader, {self.stream: "0"}, count=OWN_MAX)
        return self._made([each for _, entries in found for each in entries])

    async def _found(self) -> list[RedisIncoming]:
        """What others left lying, else what is new; nothing, after a moment."""
        client, group = self._client, self.group
        answer: Any = await client.xautoclaim(self.stream, group, self.reader, LEFT_MS, count=READ_MAX)
        entries = answer[1]
        if not entries:
            new: Any = await client.xreadgroup(group, self.reader, {self.stream: ">"}, count=READ_MAX, block=BLOCK_MS)
            entries = [each for _, found in new for each in found]
        return self._made(entries)

    def _made(self, entries: list[Any]) -> list[RedisIncoming]:
        return [RedisIncoming(self, self._client, number, fields) for number, fields in entries if fields]

    async def close(self) -> None:
        """Let go of the connection."""
        await self._client.aclose()


class RedisIncoming:
    """A message of a stream of Redis."""

    def __init__(self, source: RedisSource, client: Redis, number: bytes, fields: dict[bytes, bytes]) -> None:
        self._source = source
        self._client = client
        self._number = number
        self._fields = fields
        self.body = fields.get(b"body", b"")

    async def taken(self) -> None:
        """Acknowledge it."""
        await self._client.xack(self._source.stream, self._source.group, self._number)

    async def put_back(self) -> None:
        """As if it had lain there for long: whoever looks next takes it over."""
        source = self._source
        await self._client.xclaim(
            source.stream, source.group, source.reader, 0, [self._number], idle=LEFT_MS, justid=True
        )

    async def set_aside(self) -> None:
        """Into the stream of the dead, with all that it had."""
        fields: dict[Any, Any] = dict(self._fields)
        await self._client.xadd(f"{self._source.stream}.dead", fields)
        await self.taken()
