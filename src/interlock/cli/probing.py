"""`--probe`: the server of `/livez`, `/readyz` and `/metrics` next to a command that runs until it is stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import click

from interlock.cli.output.terminal import Terminal
from interlock.errors import MissingExtraError
from interlock.observe.metrics.exporter import MetricsExporter
from interlock.runtime.runtime import Runtime
from interlock.stores.registry import upgrade_script
from interlock.web.probe import ProbeServer, parse_address
from interlock.web.readiness import Readiness

probe_option = click.option(
    "--probe", metavar="[HOST]:PORT", help="Answer /livez, /readyz and /metrics here, without a key, such as :8471."
)


class Probe:
    """The probes of one process. They answer before the store is open, and until the process has drained."""

    def __init__(self, terminal: Terminal, readiness: Readiness, server: ProbeServer) -> None:
        self._terminal = terminal
        self._readiness = readiness
        self._server = server

    @asynccontextmanager
    async def watching(self, runtime: Runtime) -> AsyncIterator[MetricsExporter | None]:
        """For the block, the store is open: the process may be ready, and has metrics. Yields what exports them."""
        exporter = MetricsExporter(runtime)
        has_metrics = True
        try:
            await exporter.start()
        except MissingExtraError as error:
            has_metrics = False
            text = f": {error.message}, so /metrics does not answer; {error.hint}"
            self._terminal.message(("warning", "yellow"), text)
        self._server.show_metrics(exporter.render)
        self._readiness.open(runtime)
        try:
            yield exporter if has_metrics else None
        finally:
            self._readiness.drain()
            await exporter.stop()


class NoProbe:
    """What a command without `--probe` has."""

    @asynccontextmanager
    async def watching(self, runtime: Runtime) -> AsyncIterator[None]:
        """Do nothing, and yield None."""
        del runtime
        yield None


@asynccontextmanager
async def probing(terminal: Terminal, address: str | None, url: str) -> AsyncIterator[Probe | NoProbe]:
    """Answer probes for the block. Raises UsageError for an invalid address, UnavailableError for a port in use."""
    if address is None:
        yield NoProbe()
        return
    host, port = parse_address(address)
    readiness = Readiness(partial(upgrade_script, url))
    server = ProbeServer(readiness)
    number = await server.start(host, port)
    shown = f"[{host}]" if ":" in host else host
    terminal.message(("probes", "bold"), f": http://{shown}:{number}/livez, /readyz and /metrics")
    try:
        yield Probe(terminal, readiness, server)
    finally:
        with suppress(OSError):
            await server.close()
