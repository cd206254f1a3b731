"""The intake: messages of a bus become events of entities, each once.

Rule 1: a message is acknowledged after its receipt. After a kill in between, it is delivered again, and its key, made
of source and id, is known: `duplicate`. No other sender can use that key (`model.keys`).
Rule 2: messages of one source entity are processed one after another, in the bus's order; others in parallel.
Rule 3: a message that cannot be sent now (the store is unavailable, other writers kept winning) is tried again in its
place, however long.
Rule 4: a message that cannot become an applied event is a dead letter with the reason: the chart or the policy refuses
the event (`rejected`, `denied`), invalid bytes, a route that fails, an unknown entity, an event that no loaded revision
of the kind knows, a payload that its declaration refuses, a source and id under which the entity recorded another
event. So is a message that is older than the deduplication window (`key.expired`): whether it was applied is unknown,
and an operator decides.
Rule 5: after an unexpected failure a message is requeued after a while, so that it is neither lost nor blocks the bus,
which waits for an acknowledgement.
Rule 6: where order matters more than completeness, `ordered` drops a message whose `sequence` is not above the last one
of its source entity: a relay that was paused may repeat an old message after newer ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from hashlib import blake2b
from inspect import isawaitable
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from interlock.effects.retry import code_of, error_facts, shown_message
from interlock.effects.waiting import first_of
from interlock.errors import (
    ConflictError,
    DeniedError,
    InterlockError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    UsageError,
)
from interlock.model.backoff import Backoff
from interlock.model.encoding.codec import to_builtins
from interlock.model.encoding.storable import describe
from interlock.model.journal.entry import Receipt
from interlock.model.journal.message import Message, decode_message
from interlock.model.keys import bus_key
from interlock.ports.bus import Bus, IncomingMessage, MessageSource
from interlock.ports.fork import after_fork, keep_forever
from interlock.runtime.entities.send_request import EXPIRED
from interlock.runtime.request_checks import check_principal, check_trace
from interlock.runtime.runtime import Runtime

UNACKNOWLEDGED_MAX = 64
"""Messages that are processed at a time: the bus keeps the others."""

SOURCES_MAX = 100_000
"""Source entities whose last `sequence` an ordered intake remembers; the least recent is forgotten first."""

DRAIN_MS = 10_000
"""How long messages may take when the intake stops; the others are requeued."""

UNEXPECTED_FAILURES = 5
"""After an unexpected failure a message waits as after this many failures: some seconds."""

DEAD_TYPE = "interlock.message.dead"
"""The type of a dead letter on the bus for dead letters."""

_BACKOFF = Backoff(200, 30_000, jitter=0.5)
_log = logging.getLogger("interlock.intake")


class Delivery(Struct, frozen=True):
    """What a message becomes: an event for an entity. With `create`, an unknown entity is created with that context."""

    entity: str
    event: str
    payload: Any = None
    create: dict[str, Any] | None = None


Route = Callable[[Message], Delivery | Awaitable[Delivery | None] | None]
"""Returns what a message becomes, or None to skip it. It must have no side effects, and return the same each time."""


class Consumer:
    """Turns messages into events, inside `async with` or while `run` runs."""

    def __init__(
        self,
        source: MessageSource,
        runtime: Runtime,
        route: Route,
        *,
        principal: Mapping[str, Any] | None = None,
        ordered: bool = False,
        dead_letters: Bus | None = None,
    ) -> None:
        check_principal(principal, now_ms=runtime.clock.now_ms())
        self.counts: Counter[str] = Counter()
        self._source = source
        self._runtime = runtime
        self._clock = runtime.clock
        self._route = route
        self._principal = principal
        self._ordered = ordered
        self._dead_letters = dead_letters
        self._lines: dict[str, deque[IncomingMessage]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unprocessed: list[IncomingMessage] = []
        self._room = asyncio.Semaphore(UNACKNOWLEDGED_MAX)
        self._last: OrderedDict[tuple[str, str], str] = OrderedDict()
        after_fork(self, keep_forever)  # finalizers of inherited connections would act on the parent's
        self._stopping = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reader = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DRAIN_MS / 1000)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.requeue() for each in self._unprocessed), return_exceptions=True)
        await self._source.close()
        if self._dead_letters is not None:
            await self._dead_letters.close()

    async def run(self) -> None:
        """Process messages until cancelled. The wait is endless on purpose."""
        async with self:
            assert self._reader is not None
            await self._reader

    # Reading

    async def _read(self) -> None:
        """Read on, whatever happens to the bus. The loop is endless on purpose."""
        failures = 0
        while True:
            try:
                async with aclosing(self._source.incoming()) as found:
                    while True:
                        incoming = await self._next(found)
                        failures = 0
                        self._enqueue(incoming)
            except InterlockError as error:
                extra = {"code": error.code, "hint": error.hint, "error": error.message}
                _log.warning("the bus cannot be read", extra=extra)
            except Exception:  # noqa: BLE001 - whatever a client raises, the intake continues
                _log.exception("the bus cannot be read")
            await self._clock.sleep_ms(_BACKOFF.wait_ms(failures, self._clock.jitter()))
            failures += 1

    async def _next(self, found: AsyncGenerator[IncomingMessage, None]) -> IncomingMessage:
        """Return the next message, once there is room for it."""
        await self._room.acquire()
        try:
            return await anext(found)
        except BaseException:
            self._room.release()
            raise

    def _enqueue(self, incoming: IncomingMessage) -> None:
        """Put a message behind earlier ones of its source entity. An invalid message has a separate line."""
        try:
            message = decode_message(incoming.body)
            name = f"{message.source} {message.subject}" if message.subject else f"{message.source} {message.id}"
        except InterlockError:
            name = f"\0{id(incoming)}"
        line = self._lines.get(name)
        if line is not None:
            line.append(incoming)
            return
        self._lines[name] = deque((incoming,))
        task = asyncio.ensure_future(self._process_line(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _process_line(self, name: str) -> None:
        line = self._lines[name]
        try:
            while line:
                try:
                    await self._process(line[0])
                except Exception:  # noqa: BLE001 - whatever it was, the others continue
                    _log.exception("a message failed unexpectedly")
                    await self._requeue_later(line[0])
                line.popleft()
                self._room.release()
        finally:
            self._unprocessed += line
            del self._lines[name]

    async def _requeue_later(self, incoming: IncomingMessage) -> None:
        """Requeue after a while: a message that fails each time must not keep the intake busy."""
        with suppress(_Stopped):
            await self._wait(UNEXPECTED_FAILURES)
        with suppress(Exception):  # an unreachable bus redelivers it automatically
            await incoming.requeue()

    # Processing

    async def _process(self, incoming: IncomingMessage) -> None:
        try:
            message = decode_message(incoming.body)
            delivery = await self._find_delivery(message)
            if delivery is None or self._is_stale(message):
                self.counts["passed"] += 1
                await incoming.ack()
                return
            receipt = await self._send(message, delivery)
        except _Stopped:
            self.counts["requeued"] += 1
            await incoming.requeue()
            return
        except InterlockError as error:
            await self._dead_letter(incoming, error)
            return
        if receipt.reason == EXPIRED.code:
            await self._dead_letter(incoming, _expired(message, receipt))
            return
        self._record(message, receipt)
        try:
            receipt.expect()
        except (RejectedError, DeniedError) as error:
            await self._dead_letter(incoming, error)
            return
        await incoming.ack()

    async def _find_delivery(self, message: Message) -> Delivery | None:
        try:
            found = self._route(message)
            delivery = await found if isawaitable(found) else found
        except Exception as error:
            text = f"the route failed for message `{message.id[:200]}`: {type(error).__name__}: {describe(error)[:200]}"
            hint = "fix the route, then send the message again"
            raise InterlockError(text, code="route.failed", hint=hint) from error
        if not isinstance(delivery, Delivery | None):
            text = f"the route returned {type(delivery).__name__} for message `{message.id[:200]}`"
            raise InterlockError(text, code="route.failed", hint="return an interlock.Delivery, or None")
        return delivery

    def _is_stale(self, message: Message) -> bool:
        if not self._ordered or message.sequence is None:
            return False
        last = self._last.get((message.source, message.subject or ""))
        return last is not None and message.sequence <= last

    async def _send(self, message: Message, delivery: Delivery) -> Receipt:
        """Send the event, and try again until the store gives a receipt."""
        failures = 0
        while True:
            try:
                return await self._try_send(message, delivery)
            except (UnavailableError, ConflictError) as error:
                _log.warning("a message waits for a retry", extra={"code": error.code, "entity_id": delivery.entity})
            await self._wait(failures)
            failures += 1

    async def _try_send(self, message: Message, delivery: Delivery) -> Receipt:
        principal = self._principal or {"id": f"bus:{message.source}", "kind": "bus", "roles": []}
        key = bus_key(message.source, message.id)
        fields: dict[str, Any] = {"principal": principal, "trace": _valid_trace(message.trace)}
        while True:
            try:
                return await self._runtime.submit(
                    delivery.entity, delivery.event, delivery.payload, key=key, sent_ms=message.time_ms, **fields
                )
            except NotFoundError as error:
                if delivery.create is None or error.code != "entity.unknown":
                    raise
            created = await self._runtime.create(delivery.entity, delivery.create, **fields)
            if created.outcome == "denied":
                return created

    async def _wait(self, failures: int) -> None:
        """Wait before the next try. Raises `_Stopped` when the intake stops meanwhile."""
        await first_of(self._stopping.wait(), self._clock.sleep_ms(_BACKOFF.wait_ms(failures, self._clock.jitter())))
        if self._stopping.is_set():
            raise _Stopped

    def _record(self, message: Message, receipt: Receipt) -> None:
        if receipt.outcome not in ("rejected", "denied"):
            self.counts[receipt.outcome] += 1
        if self._ordered and message.sequence is not None:
            name = (message.source, message.subject or "")
            self._last[name] = max(message.sequence, self._last.get(name, ""))
            self._last.move_to_end(name)
            if len(self._last) > SOURCES_MAX:
                self._last.popitem(last=False)

    async def _dead_letter(self, incoming: IncomingMessage, error: InterlockError) -> None:
        """Move a message to the dead letters, with the reason."""
        self.counts["dead"] += 1
        facts = {"code": code_of(error), "error": shown_message(error), "hint": error.hint}
        _log.error("a message is a dead letter", extra=facts)
        if self._dead_letters is None:
            await incoming.dead_letter()
            return
        letter = _letter(incoming.body, error, self._clock.now_ms())
        failures = 0
        while True:
            try:
                await self._dead_letters.publish(letter)
                break
            except UnavailableError:
                pass
            try:
                await self._wait(failures)
            except _Stopped:
                await incoming.requeue()
                return
            failures += 1
        await incoming.ack()


class _Stopped(Exception):
    """The intake stops: waiting messages are requeued."""


def _valid_trace(trace: str | None) -> str | None:
    """Return a trace that can be stored. An event is not refused because its sender's trace is invalid."""
    try:
        check_trace(trace)
    except UsageError:
        return None
    return trace or None


def _expired(message: Message, receipt: Receipt) -> InterlockError:
    text = f"message `{message.id[:200]}` is older than the deduplication window of `{receipt.entity}`"
    hint = "check the journal; if the message was not applied, send it again with a new id"
    return InterlockError(text, code=EXPIRED.code, hint=hint)


def _letter(body: bytes, error: InterlockError, now_ms: int) -> Message:
    digest = blake2b(body, digest_size=16).hexdigest()
    try:
        text: dict[str, Any] = {"body": body.decode()}
    except UnicodeDecodeError:
        text = {"body_base64": to_builtins(body)}
    data = {"hint": None, **error_facts(error), **text}
    return Message(id=digest, source="/interlock/intake", type=DEAD_TYPE, time_ms=now_ms, data=data)
