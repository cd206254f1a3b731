"""The intake: messages of a bus become events of entities, each once.

Rule 1: a message is acknowledged after its receipt. Killed in between, it comes again, and its key, made of source and
id, is known: `duplicate`. No sender can take that key (`model.keys`).
Rule 2: messages of one source entity are taken one after another, in the bus's order; others side by side.
Rule 3: what cannot be answered now (the store is away, others kept winning) is tried again in its place, however long.
Rule 4: `rejected` and `denied` are answers: told, and acknowledged. What can never become an event is set aside as a
dead letter, with the reason: bytes that are no message, a route that fails, an entity that is not there, a source and
id under which the entity took another event. So is a message from the time of keys that are forgotten (`key.expired`):
whether it was taken nobody knows, and a person decides.
Rule 5: what fails in a way that nobody foresaw is put back after a while: neither lost, nor held until the bus, which
waits for an answer, brings nothing more.
Rule 6: where order matters more than completeness, `ordered` drops a message whose `sequence` is not above the last
that this intake took of its source entity: a relay that was paused may repeat an old one after newer ones.
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

from interlock.effects.retry import RetryPolicy, backoff_ms, code_of, error_facts, shown_message
from interlock.errors import ConflictError, InterlockError, NotFoundError, UnavailableError
from interlock.model.codec import plain
from interlock.model.journal.entry import Receipt
from interlock.model.journal.message import Message, decode_message
from interlock.model.keys import bus_key
from interlock.model.limits import NAME_BYTES_MAX
from interlock.model.storable import describe
from interlock.ports.bus import Bus, IncomingMessage, MessageSource
from interlock.ports.fork import after_fork, keep_forever
from interlock.runtime.runtime import Runtime
from interlock.runtime.sender import EXPIRED

IN_HAND_MAX = 64
"""Messages in hand at a time: the bus keeps the others."""

SOURCES_MAX = 100_000
"""Source entities whose last `sequence` an ordered intake remembers; the longest unheard of goes first."""

DRAIN_MS = 10_000
"""How long messages in hand may take when the intake stops; the rest is put back."""

UNFORESEEN_FAILURES = 5
"""As after how many failures a message waits that failed in a way nobody foresaw: some seconds."""

DEAD_TYPE = "interlock.message.dead"
"""The type of the message that a dead letter is, on the bus for them."""

_AGAIN = RetryPolicy(backoff_ms_min=200, backoff_ms_max=30_000)
_log = logging.getLogger("interlock.intake")


class Delivery(Struct, frozen=True):
    """What a message becomes: an event for an entity; with `create`, an entity that is not there is begun with it."""

    entity: str
    event: str
    payload: Any = None
    create: dict[str, Any] | None = None


Route = Callable[[Message], Delivery | Awaitable[Delivery | None] | None]
"""What a message becomes; None: it is for others. It must not act, and say the same of a message that comes again."""


class Consumer:
    """Takes messages in, from `async with` to its end, or while `run` runs."""

    def __init__(
        self,
        source: MessageSource,
        runtime: Runtime,
        route: Route,
        *,
        principal: Mapping[str, Any] | None = None,
        ordered: bool = False,
        dead: Bus | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._source = source
        self._runtime = runtime
        self._clock = runtime.clock
        self._route = route
        self._principal = principal
        self._ordered = ordered
        self._dead = dead
        self._lines: dict[str, deque[IncomingMessage]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered: list[IncomingMessage] = []
        self._room = asyncio.Semaphore(IN_HAND_MAX)
        self._last: OrderedDict[tuple[str, str], str] = OrderedDict()
        after_fork(self, keep_forever)  # finalizers of inherited connections would act on the parent's
        self._ending = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DRAIN_MS / 1000)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.put_back() for each in self._unanswered), return_exceptions=True)
        await self._source.close()
        if self._dead is not None:
            await self._dead.close()

    async def run(self) -> None:
        """Take messages in until cancelled. An endless wait by intent."""
        async with self:
            assert self._reading is not None
            await self._reading

    # Reading

    async def _read(self) -> None:
        """Read on, whatever happens to the bus. An endless loop by intent."""
        failures = 0
        while True:
            try:
                async with aclosing(self._source.incoming()) as found:
                    while True:
                        incoming = await self._next(found)
                        failures = 0
                        self._put_in_line(incoming)
            except InterlockError as error:
                extra = {"code": error.code, "hint": error.hint, "error": error.message}
                _log.warning("the bus brings nothing now", extra=extra)
            except Exception:  # noqa: BLE001 - whatever a client raises, the intake goes on
                _log.exception("the bus brings nothing now")
            await self._clock.sleep_ms(backoff_ms(_AGAIN, failures, 0.5 + self._clock.jitter() / 2))
            failures += 1

    async def _next(self, found: AsyncGenerator[IncomingMessage, None]) -> IncomingMessage:
        """The next message, asked for once there is room for it."""
        await self._room.acquire()
        try:
            return await anext(found)
        except BaseException:
            self._room.release()
            raise

    def _put_in_line(self, incoming: IncomingMessage) -> None:
        """Behind what its source entity said before; what is no message has a line of its own."""
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
        task = asyncio.ensure_future(self._work_off(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work_off(self, name: str) -> None:
        line = self._lines[name]
        try:
            while line:
                try:
                    await self._take(line[0])
                except Exception:  # noqa: BLE001 - whatever it was, the others go on
                    _log.exception("a message could not be answered for")
                    await self._returned(line[0])
                line.popleft()
                self._room.release()
        finally:
            self._unanswered += line
            del self._lines[name]

    async def _returned(self, incoming: IncomingMessage) -> None:
        """Put back, after a while: a message that fails each time must not keep everybody busy."""
        with suppress(_Stopped):
            await self._wait(UNFORESEEN_FAILURES)
        with suppress(Exception):  # a bus that is gone brings it again by itself
            await incoming.put_back()

    # Taking

    async def _take(self, incoming: IncomingMessage) -> None:
        try:
            message = decode_message(incoming.body)
            delivery = await self._routed(message)
            if delivery is None or self._is_stale(message):
                self.counts["passed"] += 1
                await incoming.taken()
                return
            receipt = await self._sent(message, delivery)
        except _Stopped:
            self.counts["put_back"] += 1
            await incoming.put_back()
            return
        except InterlockError as error:
            await self._set_aside(incoming, error)
            return
        if receipt.reason == EXPIRED.code:
            await self._set_aside(incoming, _expired(message, receipt))
            return
        self._note(message, receipt)
        await incoming.taken()

    async def _routed(self, message: Message) -> Delivery | None:
        try:
            found = self._route(message)
            delivery = await found if isawaitable(found) else found
        except Exception as error:
            text = f"the route failed for message `{message.id[:200]}`: {type(error).__name__}: {describe(error)[:200]}"
            raise InterlockError(
                text, code="route.failed", hint="mend the route, then send the message again"
            ) from error
        if not isinstance(delivery, Delivery | None):
            text = f"the route gave {type(delivery).__name__} for message `{message.id[:200]}`"
            raise InterlockError(text, code="route.failed", hint="give an interlock.Delivery, or None")
        return delivery

    def _is_stale(self, message: Message) -> bool:
        if not self._ordered or message.sequence is None:
            return False
        last = self._last.get((message.source, message.subject or ""))
        return last is not None and message.sequence <= last

    async def _sent(self, message: Message, delivery: Delivery) -> Receipt:
        """The receipt, whenever the store can give it."""
        failures = 0
        while True:
            try:
                return await self._tried(message, delivery)
            except (UnavailableError, ConflictError) as error:
                _log.warning("a message waits", extra={"code": error.code, "entity_id": delivery.entity})
            await self._wait(failures)
            failures += 1

    async def _tried(self, message: Message, delivery: Delivery) -> Receipt:
        sender = self._principal or {"id": f"bus:{message.source}", "kind": "bus", "roles": []}
        trace = message.trace if message.trace and len(message.trace.encode()) <= NAME_BYTES_MAX else None
        key = bus_key(message.source, message.id)
        given: dict[str, Any] = {"principal": sender, "trace": trace}
        while True:
            try:
                return await self._runtime.submit(
                    delivery.entity, delivery.event, delivery.payload, key=key, sent_ms=message.time_ms, **given
                )
            except NotFoundError as error:
                if delivery.create is None or error.code != "entity.unknown":
                    raise
            await self._runtime.create(delivery.entity, delivery.create, **given)

    async def _wait(self, failures: int) -> None:
        """Wait before the next try. Raises `_Stopped` when the intake ends meanwhile."""
        waits = {
            asyncio.ensure_future(self._ending.wait()),
            asyncio.ensure_future(self._clock.sleep_ms(backoff_ms(_AGAIN, failures, 0.5 + self._clock.jitter() / 2))),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if self._ending.is_set():
            raise _Stopped

    def _note(self, message: Message, receipt: Receipt) -> None:
        self.counts[receipt.outcome] += 1
        if receipt.outcome in ("rejected", "denied"):
            facts = {"entity_id": receipt.entity, "outcome": receipt.outcome, "reason": receipt.reason}
            _log.warning("a message was refused", extra={**facts, "message_id": message.id})
        if self._ordered and message.sequence is not None:
            name = (message.source, message.subject or "")
            self._last[name] = max(message.sequence, self._last.get(name, ""))
            self._last.move_to_end(name)
            if len(self._last) > SOURCES_MAX:
                self._last.popitem(last=False)

    async def _set_aside(self, incoming: IncomingMessage, error: InterlockError) -> None:
        """Where a person finds it, with the reason."""
        self.counts["dead"] += 1
        facts = {"code": code_of(error), "error": shown_message(error), "hint": error.hint}
        _log.error("a message is set aside", extra=facts)
        if self._dead is None:
            await incoming.set_aside()
            return
        letter = _letter(incoming.body, error, self._clock.now_ms())
        failures = 0
        while True:
            try:
                await self._dead.publish(letter)
                break
            except UnavailableError:
                pass
            try:
                await self._wait(failures)
            except _Stopped:
                await incoming.put_back()
                return
            failures += 1
        await incoming.taken()


class _Stopped(Exception):
    """The intake ends: what waits is put back."""


def _expired(message: Message, receipt: Receipt) -> InterlockError:
    text = f"message `{message.id[:200]}` is from a time whose keys `{receipt.entity}` has forgotten"
    hint = "look into the journal; if it was not taken, send it again under a new id"
    return InterlockError(text, code=EXPIRED.code, hint=hint)


def _letter(body: bytes, error: InterlockError, now_ms: int) -> Message:
    digest = blake2b(body, digest_size=16).hexdigest()
    try:
        text: dict[str, Any] = {"body": body.decode()}
    except UnicodeDecodeError:
        text = {"body_base64": plain(body)}
    data = {"hint": None, **error_facts(error), **text}
    return Message(id=digest, source="/interlock/intake", type=DEAD_TYPE, time_ms=now_ms, data=data)
