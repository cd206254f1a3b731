"""The server: bind a socket, run uvicorn, shut down in order. `http.connections` limits connections.

Rule 1: without API keys it listens on this machine only, and users of the machine need the sign-in link.
Rule 2: at the first signal, streams and jobs stop and running requests finish. A second signal stops immediately.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from interlock.errors import UsageError
from interlock.model.limits import HTTP_BACKLOG_MAX, HTTP_IDLE_MS_MAX
from interlock.observe.metrics.exporter import MetricsExporter
from interlock.runtime.runtime import Runtime
from interlock.web.app import application, normalize_origin
from interlock.web.auth import Authentication
from interlock.web.http.connections import Connections
from interlock.web.http.console import Console
from interlock.web.http.log_repeats import limited_logs
from interlock.web.listening import bind_socket

DRAIN_SECONDS = 10
LOGGERS = ("asyncio", "uvicorn.error", "interlock.web", "interlock.web.http", "interlock.operate")
"""Loggers whose records clients can cause."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


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
    exporter: MetricsExporter | None = None,
) -> None:
    """Serve until a signal arrives, or until `until` is set, if given: then the caller handles signals.

    `ready` is called with the address when clients can connect: the first of `origins`, because a server with origins
    does not answer to its own address. Raises UsageError if it would listen on a public address without API keys,
    UnavailableError if the port is in use.
    """
    if host not in LOOPBACK and access.link is not None:
        hint = "add a --key-file, or listen on 127.0.0.1"
        message = f"refusing to listen on the public address {host} without API keys"
        raise UsageError(message, code="serve.open", hint=hint)
    public = [normalize_origin(each) for each in origins]
    listening = bind_socket(host, port)
    number = listening.getsockname()[1]
    own = [
        normalize_origin(f"http://{_name(each)}:{number}") for each in dict.fromkeys((host, "127.0.0.1", "localhost"))
    ]
    app, console = application(runtime, access, origins=public or own, read_only=read_only, exporter=exporter)
    connections = Connections()
    server = _Server(uvicorn_config(app, connections), console, connections)
    stopping = _stop_on_signal(server) if until is None else _stop_on_event(server, until)
    with limited_logs(LOGGERS), _accept_errors(connections), stopping:
        ready((public or own)[0])
        await server.serve(sockets=[listening])


def uvicorn_config(app: ASGIApp, connections: Connections | None = None) -> uvicorn.Config:
    """Return the configuration of uvicorn; benchmarks use the same for their baseline."""
    limits = Connections() if connections is None else connections
    return uvicorn.Config(
        app,
        http=limits.protocol(),
        backlog=limits.accepts,  # asyncio accepts as many in one go; `startup` sets the queue of the kernel
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing uses the client address, and proxy headers can be forged
        timeout_graceful_shutdown=DRAIN_SECONDS,
        timeout_keep_alive=HTTP_IDLE_MS_MAX // 1000,
        ws="none",
    )


def _name(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Server(uvicorn.Server):
    """A server that stops streams and jobs before it waits for running requests."""

    def __init__(self, config: uvicorn.Config, console: Console, connections: Connections) -> None:
        super().__init__(config)
        self._console = console
        self._connections = connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and restore the queue of the kernel, which uvicorn sets to the number of accepts in one go."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(HTTP_BACKLOG_MAX)

    async def on_tick(self, counter: int) -> bool:
        """Close slow connections once a second; uvicorn calls this ten times as often."""
        if counter % 10 == 0:
            self._connections.sweep(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: `serve` handles signals, and uvicorn would raise them again at the end."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop streams and jobs, then wait for running requests."""
        await self._console.close()
        await super().shutdown(sockets)


@contextmanager
def _accept_errors(connections: Connections) -> Iterator[None]:
    """Let `connections` handle errors of accepting; all others go to the previous handler."""
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
def _stop_on_signal(server: uvicorn.Server) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)
    try:
        yield
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)


@contextmanager
def _stop_on_event(server: uvicorn.Server, until: asyncio.Event) -> Iterator[None]:
    async def stop() -> None:
        await until.wait()
        server.should_exit = True

    waiting = asyncio.ensure_future(stop())
    try:
        yield
    finally:
        waiting.cancel()
