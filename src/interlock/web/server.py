"""The server: a socket, uvicorn behind it, and an end in which streams and jobs end first.

Limits on connections and on what they send are in `connections`.

Rule 1: without keys it listens on this machine only; whoever else is on it still needs the link.
Rule 2: the first signal drains: streams end, requests in hand are answered. A second one does not wait.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from interlock.errors import UnavailableError, UsageError
from interlock.model.limits import HTTP_BACKLOG_MAX, HTTP_IDLE_MS_MAX
from interlock.runtime.runtime import Runtime
from interlock.web.app import application, checked_origin
from interlock.web.auth import Authentication
from interlock.web.console import Console
from interlock.web.http.connections import Connections
from interlock.web.http.log_repeats import limited_logs

DRAIN_SECONDS = 10
LOGGERS = ("asyncio", "uvicorn.error", "interlock.web", "interlock.web.http")
"""Loggers that a stranger can make write, by what they send."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_CURES = {
    errno.EADDRINUSE: "another program has it: name another with --port, or 0 for any",
    errno.EACCES: "it is kept for the system: name one above 1023 with --port, or 0 for any",
}


async def serve(
    runtime: Runtime,
    access: Authentication,
    *,
    host: str,
    port: int,
    origins: Iterable[str] = (),
    read_only: bool = False,
    ready: Callable[[str], None],
    until: asyncio.Event | None = None,
) -> None:
    """Answer until a signal comes. `ready` is called with the address once somebody can connect: the first of
    `origins`, because a server that is reached by other names does not answer to its own.

    With `until`, signals are the caller's: it answers until that is set.
    Raises UsageError when others could reach it without a key, UnavailableError when the port is taken.
    """
    if host not in LOOPBACK and access.link is not None:
        hint = "give it a --key-file, or let it listen on 127.0.0.1"
        raise UsageError(f"{host} is open to other machines, and nobody needs a key", code="serve.open", hint=hint)
    reached = [checked_origin(each) for each in origins]
    listening = bound(host, port)
    number = listening.getsockname()[1]
    own = [checked_origin(f"http://{_name(each)}:{number}") for each in dict.fromkeys((host, "127.0.0.1", "localhost"))]
    app, console = application(runtime, access, origins=reached or own, read_only=read_only)
    connections = Connections()
    server = _Server(settings(app, connections), console, connections)
    ending = _signals(server) if until is None else _told(server, until)
    with limited_logs(LOGGERS), _accept_errors(connections), ending:
        ready((reached or own)[0])
        await server.serve(sockets=[listening])


def settings(app: ASGIApp, connections: Connections | None = None) -> uvicorn.Config:
    """How uvicorn serves an application of ours; benchmarks serve their bare one by the same."""
    limits = Connections() if connections is None else connections
    return uvicorn.Config(
        app,
        http=limits.protocol(),
        backlog=limits.accepts,  # asyncio accepts as many in a row; how many the kernel queues is set in `startup`
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here asks where a request came from, and what a proxy says of it can be forged
        timeout_graceful_shutdown=DRAIN_SECONDS,
        timeout_keep_alive=HTTP_IDLE_MS_MAX // 1000,
        ws="none",
    )


def _name(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises UnavailableError when the port is taken.

    It says that it is TCP: asyncio looks at that, and otherwise leaves Nagle's algorithm on for what it accepts; the
    body of a response would then wait until the client acknowledges its head, which most delay by 40 ms.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(HTTP_BACKLOG_MAX)  # now, so that whoever reads the address can connect
    except OSError as error:
        listening.close()
        hint = _CURES.get(error.errno or 0, "name an address of this machine with --host")
        raise UnavailableError(f"port {port} of {host}: {error.strerror}", code="serve.port", hint=hint) from None
    return listening


class _Server(uvicorn.Server):
    """A server that ends what would never end by itself before it waits for the rest."""

    def __init__(self, settings: uvicorn.Config, console: Console, connections: Connections) -> None:
        super().__init__(settings)
        self._console = console
        self._connections = connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; uvicorn sets the kernel's queue to the number of connections that are accepted in a row."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(HTTP_BACKLOG_MAX)

    async def on_tick(self, counter: int) -> bool:
        """Close connections that take too long, once a second; uvicorn calls this ten times as often."""
        if counter % 10 == 0:
            self._connections.sweep(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the caller's: uvicorn would raise them once more at the end."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams and jobs, then wait for requests in hand."""
        await self._console.close()
        await super().shutdown(sockets)


@contextmanager
def _accept_errors(connections: Connections) -> Iterator[None]:
    """Let `connections` answer errors of accepting; all others go where they went before."""
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()

    def handle(running: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if connections.on_loop_error(running, context):
            return
        if before is None:
            running.default_exception_handler(context)
        else:
            before(running, context)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)


@contextmanager
def _signals(server: uvicorn.Server) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, end)
    try:
        yield
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)


@contextmanager
def _told(server: uvicorn.Server, until: asyncio.Event) -> Iterator[None]:
    async def end() -> None:
        await until.wait()
        server.should_exit = True

    waiting = asyncio.ensure_future(end())
    try:
        yield
    finally:
        waiting.cancel()
