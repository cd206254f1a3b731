"""Live streams: server-sent events of the fleet and of one entity.

Rule 1: an entity's stream follows its journal: the id of an event is the version, so a client that was away goes on
where it left off. One that is too far behind gets a `gap` instead of all of it, and reads anew.
Rule 2: the fleet's stream tells that something changed, at most `FLEET_MS` apart; what changed, the page asks for.
Rule 3: nobody waits for a slow client: a stream reads at its client's pace and skips what it missed.
Rule 4: a login has few streams, a person a quarter of all, and once three quarters are taken only a few. A stream ends
soon after its login does. It is counted from the moment it is granted, so that many asked for at once are not more than
asked for one by one.
Rule 5: a store that cannot answer ends a stream, and its client comes again: that is no bug.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from interlock.errors import InterlockError, InternalError, UnavailableError
from interlock.model.codec import encode
from interlock.model.journal.entry import Entry
from interlock.model.limits import STREAMS_ALL_MAX, STREAMS_MAX, STREAMS_PERSON_MAX, STREAMS_SHARE
from interlock.runtime.request_checks import check_entity
from interlock.web.api.views import entry_view, masks
from interlock.web.console import Console
from interlock.web.errors import HttpProblem
from interlock.web.http.endpoint import Endpoint, RequestContext, identified

FLEET_MS = 500
"""Between two looks at the counters, and so between two events of the fleet."""

HEARTBEAT_MS = 15_000
"""Silence after which a comment is sent, so that whatever stands between does not close the stream."""

BEHIND_MAX = 500
"""Entries that a client may be behind and still get them one by one."""

POLL_MS = 500
"""How soon entries that another process wrote are seen."""

_log = logging.getLogger("interlock.web")


class After(Struct, frozen=True):
    """From which version on."""

    after: Annotated[int, Meta(ge=0)] | None = None


async def entity_stream(asked: RequestContext) -> StreamingResponse:
    """Entries of an entity as they are kept."""
    entity = asked.path("entity")
    kind = check_entity(entity)
    asked.console.check_kind(asked.person, kind)
    snapshot = await asked.console.runtime.state(entity)
    after = _resumed(asked.request)
    after = asked.query.after if after is None else after
    return _streaming(asked, _entries(asked, entity, snapshot.version if after is None else after, snapshot.version))


def _resumed(request: Request) -> int | None:
    _, _, version = request.headers.get("last-event-id", "").rpartition("@")
    return int(version) if version.isascii() and version.isdigit() and len(version) < 16 else None


async def _entries(asked: RequestContext, entity: str, after: int, latest: int) -> AsyncGenerator[bytes, None]:
    runtime = asked.console.runtime
    kind = entity.partition("/")[0]
    if latest - after > BEHIND_MAX or after > latest:
        yield _event("gap", {"version": latest}, f"{entity}@{latest}")
        after = latest
    else:
        yield _event("hello", {"version": latest})
    async with aclosing(_beating(asked, runtime.watch(entity, after=after, poll_ms=POLL_MS))) as entries:
        async for entry in entries:
            if entry is None:
                yield b": still here\n\n"
                continue
            hidden = masks(runtime.charts.for_revision(kind, entry.revision).chart, asked.person)
            yield _event("entry", entry_view(entry, hidden, asked.may_see_entity), f"{entity}@{entry.version}")


async def _beating(asked: RequestContext, entries: AsyncGenerator[Entry, None]) -> AsyncGenerator[Entry | None, None]:
    """The entries, and None where there was silence; ends when the console closes or the login does."""
    clock, closing = asked.console.clock, asyncio.ensure_future(asked.console.closing.wait())
    following: asyncio.Future[Entry] | None = None
    try:
        while _is_allowed(asked):
            following = following or asyncio.ensure_future(anext(entries))
            beat = asyncio.ensure_future(clock.sleep_ms(HEARTBEAT_MS))
            waits: set[asyncio.Future[Any]] = {following, beat, closing}
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                beat.cancel()
            if closing.done():
                return
            if following.done():
                taken, following = following, None
                try:
                    yield taken.result()
                except StopAsyncIteration:
                    return
            else:
                yield None
    finally:
        closing.cancel()
        if following is not None:
            following.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration, InterlockError):
                await following
        await entries.aclose()


async def fleet_stream(asked: RequestContext) -> StreamingResponse:
    """Something changed, in which kinds."""
    return _streaming(asked, _fleet(asked))


async def _fleet(asked: RequestContext) -> AsyncGenerator[bytes, None]:
    console, silent_ms = asked.console, 0
    seen = await _marks(asked)
    yield _event("hello", {"kinds": sorted(seen)})
    while _is_allowed(asked):
        nap = asyncio.ensure_future(console.clock.sleep_ms(FLEET_MS))
        closing = asyncio.ensure_future(console.closing.wait())
        try:
            await asyncio.wait({nap, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()
            closing.cancel()
        if console.closing.is_set():
            return
        now = await _marks(asked)
        changed = sorted(kind for kind in {*seen, *now} if seen.get(kind) != now.get(kind))
        seen, silent_ms = now, silent_ms + FLEET_MS
        if changed:
            silent_ms = 0
            yield _event("changed", {"kinds": changed})
        elif silent_ms >= HEARTBEAT_MS:
            silent_ms = 0
            yield b": still here\n\n"


async def _marks(asked: RequestContext) -> dict[str, int]:
    """For each kind that one may see a number that is another when its counters are."""
    console = asked.console
    return {kind: mark for kind, mark in (await console.pulse.marks()).items() if console.may_see(asked.person, kind)}


def _is_allowed(asked: RequestContext) -> bool:
    """Whether whoever opened the stream may still have it; a login that is over ends its streams."""
    person, _ = identified(asked.console, asked.request, uses=False)
    return person is not None and not asked.console.closing.is_set()


def _streaming(asked: RequestContext, events: AsyncGenerator[bytes, None]) -> StreamingResponse:
    """The stream of these events. Raises HttpProblem for whoever has too many, UnavailableError when all are taken."""
    streams = asked.console.streams
    names = [f"person {asked.person.name}"]
    if asked.login is not None:
        names.append(f"login {asked.login.csrf}")
        if streams[names[1]] >= STREAMS_MAX:
            raise _too_many(f"this login has {STREAMS_MAX} live streams", "close a tab")
    count = sum(each for name, each in streams.items() if name.startswith("person "))
    most = STREAMS_PERSON_MAX if count < STREAMS_ALL_MAX * 3 // 4 else STREAMS_SHARE
    if count >= STREAMS_ALL_MAX:
        hint = "try again when others have closed theirs"
        raise UnavailableError(f"all {STREAMS_ALL_MAX} live streams are in use", code="stream.full", hint=hint)
    if streams[names[0]] >= most:
        raise _too_many(f"`{asked.person.name}` has {streams[names[0]]} live streams", "close one of yours")
    return _Stream(asked.console, names, events)


def _too_many(detail: str, hint: str) -> HttpProblem:
    return HttpProblem(429, "Too many streams", detail, code="stream.full", hint=hint)


class _Stream(StreamingResponse):
    """A stream: counted under these names from its making to its end, and closed with all that it reads from."""

    def __init__(self, console: Console, names: Iterable[str], events: AsyncGenerator[bytes, None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        self._told = _told(events)
        super().__init__(self._told, media_type="text/event-stream", headers=headers)
        self._streams, self._names = console.streams, tuple(names)
        self._streams.update(self._names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.subtract(self._names)
            for each in self._names:
                if not self._streams[each]:
                    del self._streams[each]
            await self._told.aclose()


async def _told(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        yield b"retry: 2000\n\n"
        try:
            async for each in events:
                yield each
        except InterlockError as error:
            if isinstance(error, InternalError):
                raise
            _log.info("a stream ended", extra={"code": error.code})


def _event(name: str, data: object, version: str | None = None) -> bytes:
    told = b"" if version is None else f"id: {_line(version)}\n".encode()
    return told + b"event: %b\ndata: %b\n\n" % (name.encode(), encode(data))


def _line(text: str) -> str:
    """An id that ends no line; ids of entities hold no control characters, but the next release may differ."""
    return text.replace("\r", " ").replace("\n", " ")


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/streams/fleet",
        summary="Tells which kinds changed, live",
        handler=fleet_stream,
        media="text/event-stream",
    ),
    Endpoint(
        method="GET",
        path="/streams/entity/{entity:path}",
        summary="Entries of an entity, live",
        handler=entity_stream,
        query=After,
        media="text/event-stream",
    ),
)
