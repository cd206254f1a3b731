"""Live streams: server-sent events for all kinds and for one entity.

Rule 1: the stream of an entity follows its journal. The id of an event is the version, so a client that reconnects
continues where it stopped. A client that is too far behind gets a `gap` and loads the entity again.
Rule 2: the stream of all kinds reports which kinds changed, at most every `CHANGES_MS`; the page loads the details.
Rule 3: a slow client delays no one else: a stream reads at its client's pace and skips what the client missed.
Rule 4: streams are limited per session and per user, more strictly once three quarters of all are in use. A stream ends
soon after its session. It counts from the moment it is granted, so parallel requests cannot exceed a limit.
Rule 5: if the store is unavailable, the stream ends and its client reconnects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from interlock.errors import InterlockError, InternalError, UnavailableError
from interlock.model.encoding.codec import encode
from interlock.model.limits import STREAMS_ALL_MAX, STREAMS_MAX, STREAMS_PER_USER_MAX, STREAMS_SHARE
from interlock.runtime.request_checks import check_entity
from interlock.web.api.covered import counts_covered
from interlock.web.api.views import entry_view, mask_for, visible_entry_view
from interlock.web.http.console import Console, reader_of
from interlock.web.http.endpoint import Endpoint, RequestContext, authenticate
from interlock.web.http.errors import HttpProblem

T = TypeVar("T")

CHANGES_MS = 500
"""Time between two reads of the counters, and so between two events."""

HEARTBEAT_MS = 15_000
"""Time without events after which a comment is sent, so that no proxy closes the stream."""

BEHIND_MAX = 500
"""A client that is further behind gets a `gap` in place of the entries."""

POLL_MS = 500
"""How soon entries of other processes are noticed."""

_log = logging.getLogger("interlock.web")


class StreamQuery(Struct, frozen=True):
    """The version after which the stream starts."""

    after: Annotated[int, Meta(ge=0)] | None = None


async def entity_stream(request: RequestContext) -> StreamingResponse:
    """Stream the entries of an entity as they are written."""
    entity = request.path("entity")
    kind = check_entity(entity)
    is_covered = request.console.sees_covers(request.user, kind)
    runtime = request.console.runtime
    if is_covered:
        version = (await runtime.state(entity, reader=reader_of(request.user))).version
    else:
        await runtime.permissions.check_reader(entity, reader_of(request.user))
        version = (await runtime.state(entity)).version
    after = _last_version(request.http)
    after = request.query.after if after is None else after
    after = version if after is None else after
    if is_covered:
        return _open_stream(request, _covered_entries(request, entity, after, version))
    return _open_stream(request, _entries(request, entity, after, version))


def _last_version(http: Request) -> int | None:
    """The version that a reconnecting client received last."""
    _, _, version = http.headers.get("last-event-id", "").rpartition("@")
    return int(version) if version.isascii() and version.isdigit() and len(version) < 16 else None


async def _entries(request: RequestContext, entity: str, after: int, latest: int) -> AsyncGenerator[bytes, None]:
    runtime = request.console.runtime
    kind = entity.partition("/")[0]
    if latest - after > BEHIND_MAX or after > latest:
        yield _event("gap", {"version": latest}, f"{entity}@{latest}")
        after = latest
    else:
        yield _event("hello", {"version": latest})
    watching = runtime.watch(entity, after=after, poll_ms=POLL_MS)
    async with aclosing(_with_heartbeats(request, watching)) as entries:
        async for entry in entries:
            if entry is None:
                yield b": still here\n\n"
                continue
            await runtime.permissions.check_reader(entity, reader_of(request.user))
            chart = await runtime.revisions.chart(kind, entry.revision)
            request.console.check_chart(request.user, chart)
            mask = mask_for(chart, request.user)
            yield _event(
                "entry", entry_view(entry, mask, request.user, request.may_see_entity), f"{entity}@{entry.version}"
            )


async def _covered_entries(
    request: RequestContext, entity: str, after: int, latest: int
) -> AsyncGenerator[bytes, None]:
    """Yield the entries that a user sees who may not see hidden states. An unseen entry leaves no trace."""
    if latest - after > BEHIND_MAX or after > latest:
        yield _event("gap", {"version": latest}, f"{entity}@{latest}")
        after = latest
    else:
        yield _event("hello", {"version": latest})
    watched = request.console.runtime.watch(entity, after=after, poll_ms=POLL_MS, reader=reader_of(request.user))
    async with aclosing(_with_heartbeats(request, watched)) as entries:
        async for entry in entries:
            if entry is None:
                yield b": still here\n\n"
                continue
            yield _event("entry", visible_entry_view(entry), f"{entity}@{entry.version}")


async def _with_heartbeats(request: RequestContext, entries: AsyncGenerator[T, None]) -> AsyncGenerator[T | None, None]:
    """Yield the entries, and None for each `HEARTBEAT_MS` without one; end with the console or the session."""
    clock, closing = request.console.clock, asyncio.ensure_future(request.console.closing.wait())
    following: asyncio.Future[T] | None = None
    try:
        while await _is_allowed(request):
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
                finished, following = following, None
                if not await _is_allowed(request):  # the key may have been removed while the stream waited
                    return
                try:
                    yield finished.result()
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


async def changes_stream(request: RequestContext) -> StreamingResponse:
    """Stream the names of kinds that changed."""
    return _open_stream(request, _changes(request))


async def _changes(request: RequestContext) -> AsyncGenerator[bytes, None]:
    console, silent_ms = request.console, 0
    seen = await _marks(request)
    yield _event("hello", {"kinds": sorted(seen)})
    while await _is_allowed(request):
        nap = asyncio.ensure_future(console.clock.sleep_ms(CHANGES_MS))
        closing = asyncio.ensure_future(console.closing.wait())
        try:
            await asyncio.wait({nap, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()
            closing.cancel()
        if console.closing.is_set():
            return
        now = await _marks(request)
        changed = sorted(kind for kind in {*seen, *now} if seen.get(kind) != now.get(kind))
        seen, silent_ms = now, silent_ms + CHANGES_MS
        if changed:
            silent_ms = 0
            yield _event("changed", {"kinds": changed})
        elif silent_ms >= HEARTBEAT_MS:
            silent_ms = 0
            yield b": still here\n\n"


async def _marks(request: RequestContext) -> dict[str, int]:
    """For each visible kind a number that differs when its counters do, as the user sees them."""
    marks, visible = request.console.change_marks, await request.console.change_marks.visible_marks()
    found = {kind: mark for kind, mark in (await marks.marks()).items() if request.may_see(kind)}
    return found | {kind: mark for kind, mark in visible.items() if await counts_covered(request, kind)}


async def _is_allowed(request: RequestContext) -> bool:
    """Whether the session or key that opened the stream is still valid, with the same roles and rights."""
    await request.console.access.refresh()
    user, _ = await authenticate(request.console, request.http, touch=False)
    return user == request.user and not request.console.closing.is_set()


def _open_stream(request: RequestContext, events: AsyncGenerator[bytes, None]) -> StreamingResponse:
    """Return a stream. Raises HttpProblem at the limit of the user or session, UnavailableError at the total limit."""
    streams = request.console.streams
    names = [f"user {request.user.name}"]
    if request.session is not None:
        names.append(f"session {request.session.csrf}")
        if streams[names[1]] >= STREAMS_MAX:
            raise _too_many(f"this session has {STREAMS_MAX} live streams", "close a tab")
    count = sum(each for name, each in streams.items() if name.startswith("user "))
    most = STREAMS_PER_USER_MAX if count < STREAMS_ALL_MAX * 3 // 4 else STREAMS_SHARE
    if count >= STREAMS_ALL_MAX:
        hint = "try again later"
        raise UnavailableError(f"all {STREAMS_ALL_MAX} live streams are in use", code="stream.full", hint=hint)
    if streams[names[0]] >= most:
        raise _too_many(f"`{request.user.name}` has {streams[names[0]]} live streams", "close one")
    return _Stream(request.console, names, events)


def _too_many(detail: str, hint: str) -> HttpProblem:
    return HttpProblem(429, "Too many streams", detail, code="stream.full", hint=hint)


class _Stream(StreamingResponse):
    """A stream. It counts under these names until it ends, and closes what it reads from."""

    def __init__(self, console: Console, names: Iterable[str], events: AsyncGenerator[bytes, None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        self._events = _guarded(events)
        super().__init__(self._events, media_type="text/event-stream", headers=headers)
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
            await self._events.aclose()


async def _guarded(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the events; end quietly on an error that reconnecting may cure (Rule 5)."""
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
    id_line = b"" if version is None else f"id: {_single_line(version)}\n".encode()
    return id_line + b"event: %b\ndata: %b\n\n" % (name.encode(), encode(data))


def _single_line(text: str) -> str:
    """An id without line breaks. Entity ids contain no control characters today."""
    return text.replace("\r", " ").replace("\n", " ")


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/streams/fleet",
        summary="Stream the names of kinds that changed",
        handler=changes_stream,
        media="text/event-stream",
    ),
    Endpoint(
        method="GET",
        path="/streams/entity/{entity:path}",
        summary="Stream the entries of an entity",
        handler=entity_stream,
        query=StreamQuery,
        media="text/event-stream",
    ),
)
