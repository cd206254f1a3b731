"""Draining a server with several worker processes: an ASGI middleware, and the call that starts the drain.

Rule 1: a request is admitted by a permit of the lifecycle that all workers share, or answered with 503 immediately.
Rule 2: a worker joins when its lifespan starts (or with its first request), never when the application is imported:
workers are forked after that.
Rule 3: a region belongs to one run of the server: its name comes from the parent process unless given, and a name whose
lifecycle is closed is used again with a new region.
It works with any ASGI server and imports none.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from interlock.shm.lifecycle.drain import CloseReport
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.lifecycle.permits import Phase
from interlock.shm.memory.fallback import FileLock
from interlock.shm.memory.file import check_name, region_directory
from interlock.shm.memory.process_locks import start_time
from interlock.shm.memory.region import STATE, MemoryRegion

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SERVICE_RESTART = 1012
"""The close code of a WebSocket that is refused during a drain."""

AREAS_BYTES = 64 * 1024
"""Space for areas: a drain needs none, and the application can add a few words."""


def server_name() -> str:
    """Return the name that all workers of one server run share: their parent process and its start time."""
    parent = os.getppid()
    return f"server-{parent}-{start_time(parent)}"


class DrainMiddleware:
    """Admits requests while the server runs, and refuses them in all workers as soon as one worker drains.

    `cleanup` runs in one worker only, when no worker has a request in progress. On shutdown a worker drains all of them
    and waits at most `timeout` seconds. With `drain_on_shutdown=False` it only leaves: for servers that replace workers
    while they run. `drain_workers(name)` starts a drain from outside.

        app = DrainMiddleware(app, cleanup=close_pool)
    """

    def __init__(
        self,
        app: Application,
        *,
        name: str | None = None,
        cleanup: Callable[[], object] | None = None,
        slots: int = 256,
        timeout: float = 30.0,
        drain_on_shutdown: bool = True,
    ) -> None:
        self._app = app
        self._name = check_name(name) if name is not None else None
        self._cleanup = cleanup
        self._slots = slots
        self._timeout = timeout
        self._drain_on_shutdown = drain_on_shutdown
        self._life: Lifecycle | None = None
        self._pid = 0
        self.report: CloseReport | None = None
        """The report of the drain at the shutdown of this worker."""

    @property
    def lifecycle(self) -> Lifecycle:
        """The lifecycle of this worker. The first access joins and starts it."""
        if self._life is None or self._pid != os.getpid():  # also in a worker that was forked after the first access
            self._pid = os.getpid()
            self._region, self._life = _join(self._name or server_name(), slots=self._slots, cleanup=self._cleanup)
        return self._life

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the ASGI application."""
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        permit = self.lifecycle.try_enter()
        if permit is None:
            await _refuse(scope, receive, send)
            return
        async with permit:
            await self._app(scope, receive, send)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen: set[str] = set()

        async def receive_message() -> Message:
            message = await receive()
            seen.add(message["type"])
            if message["type"] == "lifespan.startup":
                _ = self.lifecycle
            elif message["type"] == "lifespan.shutdown":
                await self._shut_down()
            return message

        async def send_message(message: Message) -> None:
            seen.add(message["type"])
            await send(message)

        try:
            await self._app(scope, receive_message, send_message)
        except Exception:
            if seen - {"lifespan.startup"}:  # the application supports lifespans, and failed
                raise
            await _default_lifespan(receive_message, send, started=bool(seen))

    async def _shut_down(self) -> None:
        life = self.lifecycle
        if self._drain_on_shutdown:
            self.report = await life.drain(timeout=self._timeout)
        _leave(self._region, life)


def drain_workers(name: str, *, timeout: float = 30.0) -> CloseReport:
    """Drain all workers of a name from outside, and wait in this thread. Raises NotFoundError if there are none."""
    with MemoryRegion.attach(name) as region, Lifecycle(region) as life:
        return life.drain(timeout=timeout).wait()


@contextmanager
def shared_lifecycle(name: str, *, slots: int = 256) -> Iterator[Lifecycle]:
    """Join and start the lifecycle that all processes of this name share, and leave it at the end.

    If the lifecycle of the name is closed, the name gets a new one. The last process that leaves removes the name.
    """
    region, life = _join(check_name(name), slots=slots)
    try:
        yield life
    finally:
        _leave(region, life)


def _join(name: str, *, slots: int, cleanup: Callable[[], object] | None = None) -> tuple[MemoryRegion, Lifecycle]:
    """Join the lifecycle of a name, in a new region if the old one is closed, and start it."""
    with _name_lock():
        region = MemoryRegion.open(name, slots=slots, areas_bytes=AREAS_BYTES)
        if region.words.load(STATE) >> 32 == Phase.CLOSED:  # of an earlier run with the same name
            region.unlink_name()
            region = MemoryRegion.open(name, slots=slots, areas_bytes=AREAS_BYTES)
        life = Lifecycle(region, cleanup=cleanup)
    life.start()
    return region, life


def _leave(region: MemoryRegion, life: Lifecycle) -> None:
    """Leave the lifecycle. The last participant also removes the name."""
    if life.permits:  # the process keeps its slot until it ends
        return
    with _name_lock():
        if life.phase is Phase.CLOSED or len(life.participants()) == 1:
            region.unlink_name()
        life.leave()


def _name_lock() -> FileLock:
    """Return the lock under which one process at a time decides whether a name is used again or removed."""
    return FileLock(str(region_directory()))


async def _default_lifespan(receive: Receive, send: Send, *, started: bool) -> None:
    """Answer the lifespan messages for an application without a lifespan, so that the shutdown is noticed."""
    if not started:
        await receive()
    await send({"type": "lifespan.startup.complete"})
    while (await receive())["type"] != "lifespan.shutdown":  # ends: the server's last message is the shutdown
        pass
    await send({"type": "lifespan.shutdown.complete"})


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": SERVICE_RESTART, "reason": "draining"})
        return
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b"this server is shutting down; try again\n"})
