"""Draining a server of several worker processes: an ASGI middleware, and the call that begins the drain.

Rule 1: a request is admitted by a permit of the lifecycle that all workers share, or answered with 503 at once.
Rule 2: a worker joins when its lifespan starts (or with its first request), never when the application is imported:
workers are forked after that.
Rule 3: a region belongs to one run of the server: its name is taken from the parent process unless given, and a name
whose lifecycle is closed is used anew.
Works with any ASGI server; nothing of one is imported.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from interlock.shm.lifecycle.drain import CloseReport
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.memory.fallback import FileLock
from interlock.shm.memory.file import check_name, region_directory
from interlock.shm.memory.permits import Phase
from interlock.shm.memory.process_locks import start_time
from interlock.shm.memory.region import STATE, MemoryRegion

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SERVICE_RESTART = 1012
"""The close code of a WebSocket that comes too late."""

AREAS_BYTES = 64 * 1024
"""Room beside the slots: a drain needs none, a few words of the application fit."""


def server_name() -> str:
    """The name that all workers of one server run share: their parent and when it started."""
    parent = os.getppid()
    return f"server-{parent}-{start_time(parent)}"


class DrainMiddleware:
    """Admits requests while the server runs, and refuses them everywhere as soon as one worker drains.

    `cleanup` runs in one worker only, once no request is inside anywhere. On shutdown a worker drains all of them and
    waits at most `timeout` seconds; with `drain_on_shutdown=False` it only leaves: for servers that replace workers
    while they run. `drain_workers(name)` begins a drain from outside.

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
        """How the drain of this worker's shutdown ended."""

    @property
    def lifecycle(self) -> Lifecycle:
        """This worker's place in the lifecycle; joins and starts it when it is asked for first."""
        if self._life is None or self._pid != os.getpid():  # also in a worker that was forked too late
            self._pid = os.getpid()
            with _alone():
                self._region = _opened(self._name or server_name(), self._slots)
                self._life = Lifecycle(self._region, cleanup=self._cleanup)
            self._life.start()
        return self._life

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        permit = self.lifecycle.try_enter()
        if permit is None:
            await _refused(scope, receive, send)
            return
        async with permit:
            await self._app(scope, receive, send)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen: set[str] = set()

        async def received() -> Message:
            message = await receive()
            seen.add(message["type"])
            if message["type"] == "lifespan.startup":
                _ = self.lifecycle
            elif message["type"] == "lifespan.shutdown":
                await self._shut_down()
            return message

        async def told(message: Message) -> None:
            seen.add(message["type"])
            await send(message)

        try:
            await self._app(scope, received, told)
        except Exception:
            if seen - {"lifespan.startup"}:  # the application knows lifespans, and failed
                raise
            await _own_lifespan(received, send, started=bool(seen))

    async def _shut_down(self) -> None:
        life = self.lifecycle
        if self._drain_on_shutdown:
            self.report = await life.drain(timeout=self._timeout)
        if life.permits:  # whoever is inside when the time is over keeps the slot until the process ends
            return
        with _alone():
            if life.phase is Phase.CLOSED or len(life.participants()) == 1:
                self._region.forget()
            life.leave()


def drain_workers(name: str, *, timeout: float = 30.0) -> CloseReport:
    """Drain all workers of a name from outside, and wait in this thread. Raises NotFoundError when there are none."""
    with MemoryRegion.attach(name) as region, Lifecycle(region) as life:
        return life.drain(timeout=timeout).wait()


@contextmanager
def shared_lifecycle(name: str, *, slots: int = 256) -> Iterator[Lifecycle]:
    """The lifecycle that all processes of this name share, joined and started; left in the end.

    A name whose lifecycle is closed is used anew, and with the last process it is gone.
    """
    with _alone():
        region = _opened(check_name(name), slots)
        life = Lifecycle(region)
    life.start()
    try:
        yield life
    finally:
        if not life.permits:  # else it keeps its slot until the process ends
            with _alone():
                if life.phase is Phase.CLOSED or len(life.participants()) == 1:
                    region.forget()
                life.leave()


async def _own_lifespan(receive: Receive, send: Send, *, started: bool) -> None:
    """Lifespan for an application that has none: without it, nobody would tell us of the shutdown."""
    if not started:
        await receive()
    await send({"type": "lifespan.startup.complete"})
    while (await receive())["type"] != "lifespan.shutdown":  # ends: the server's last message is the shutdown
        pass
    await send({"type": "lifespan.shutdown.complete"})


async def _refused(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": SERVICE_RESTART, "reason": "draining"})
        return
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b"this server is shutting down; try again\n"})


def _opened(name: str, slots: int) -> MemoryRegion:
    region = MemoryRegion.open(name, slots=slots, areas_bytes=AREAS_BYTES)
    if region.words.load(STATE) >> 32 == Phase.CLOSED:  # an earlier run of the same name
        region.forget()
        region = MemoryRegion.open(name, slots=slots, areas_bytes=AREAS_BYTES)
    return region


def _alone() -> FileLock:
    """One process at a time looks whether a name is to be used anew, or nobody's any more."""
    return FileLock(str(region_directory()))
