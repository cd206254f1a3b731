"""`interlock demo`: a world that runs by itself, to be looked at with the console and every other command.

Rule 1: everything is in one folder, which is named, and can be thrown away. Run again, it goes on where it was.
Rule 2: it ends as a worker does: the first signal drains and the report tells what was done and what waits; a second
signal ends it at once, and nothing is lost by that either.
Rule 3: its services fail all the time, on purpose: what is logged of that shows with -v only.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shlex
import shutil
import sys
import webbrowser
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from interlock.assemble.charts import BoundChart
from interlock.assemble.runtimes import open as open_runtime
from interlock.cli import exit_codes
from interlock.cli.commands.history import duration_ms
from interlock.cli.commands.serve import PORT, everybody, web_module
from interlock.cli.options import common, example, pass_terminal
from interlock.cli.output import values
from interlock.cli.output.log_handler import LogHandler
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Terminal
from interlock.cli.session import run
from interlock.demo.census import Census, census
from interlock.demo.charts import settled_in, trades
from interlock.demo.services import SEED, Services
from interlock.demo.traffic import RATE_MAX, Traffic
from interlock.errors import MissingExtraError, UnavailableError
from interlock.ports.clock import SystemClock
from interlock.runtime.runtime import Runtime
from interlock.runtime.shutdown import DrainReport, Signals

FOLDER = "interlock-demo"
PORTS = 20
"""Ports after the wanted one that are tried; then any that is free."""

DRAIN_MS = 5_000
LEASE_MS = 5_000
STATUS_MS = 500
HOST = "127.0.0.1"

_log = logging.getLogger("interlock")


class DemoOptions(Struct, frozen=True, kw_only=True):
    """How the demo is to be shown."""

    folder: Path
    console: bool
    browser: bool
    port: int
    rate: float
    seed: int
    duration_ms: int | None


class DemoReport(Struct, frozen=True, kw_only=True):
    """What happened from the start to the end."""

    before: Census
    after: Census
    sent: int
    done: int
    drained: DrainReport


@example("interlock demo", "interlock demo --no-browser --rate 20 --duration 30s")
@click.command(short_help="Run a small world with failing services, to look at.")
@click.option(
    "--folder",
    default=FOLDER,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help=f"Where it lives ({FOLDER}, in this folder).",
)
@click.option("--port", default=PORT, type=click.IntRange(0, 65535), metavar="PORT", help="Of the console.")
@click.option("--no-console", is_flag=True, help="Only the world: look at it with other commands.")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option("--rate", default=3.0, type=click.FloatRange(0.01, RATE_MAX), metavar="N", help="Newcomers a second (3).")
@click.option("--seed", default=SEED, type=int, metavar="N", help=f"Another number is another world ({SEED}).")
@click.option("--duration", metavar="DURATION", help="End by itself after this, such as 30s.")
@common
@pass_terminal
def demo(
    terminal: Terminal,
    *,
    folder: Path,
    port: int,
    no_console: bool,
    no_browser: bool,
    rate: float,
    seed: int,
    duration: str | None,
) -> int:
    """Run orders and virtual machines on a SQLite file, with services that fail, and show them in the console.

    Charges are lost, carriers refuse, sagas compensate, dead letters wait, and a support comes late. Everything is in
    the folder; there, `interlock top`, `stuck` and all others need no further words. Ctrl-C ends it; started again, it
    goes on where it was.
    """
    if math.isnan(rate):  # it compares with nothing, so that every range lets it pass
        raise click.BadParameter("nan is no number", param_hint="'--rate'")
    plan = DemoOptions(
        folder=folder,
        console=not no_console,
        browser=not no_browser and sys.stdout.isatty(),
        port=port,
        rate=rate,
        seed=seed,
        duration_ms=None if duration is None else duration_ms(duration, "--duration"),
    )
    server = _server() if plan.console else None
    clock = SystemClock()
    services = Services(clock, seed)
    address = settled_in(folder)
    charts = trades(folder, services)
    with _hushed(terminal):
        story = run(_lived(terminal, plan, server, address, charts, services))
    _say_ended(terminal, plan, story)
    return exit_codes.OK


def _server() -> Any:
    """The console's server. Raises MissingExtraError when it cannot be shown."""
    try:
        return web_module("interlock.web.server")
    except MissingExtraError as error:
        hint = f"{error.hint}, or run it with --no-console"
        raise MissingExtraError(error.message, code=error.code, hint=hint) from error


async def _lived(
    terminal: Terminal, plan: DemoOptions, server: Any, address: str, charts: list[BoundChart], services: Services
) -> DemoReport:
    """From the start to the end: a signal, or the end of the duration."""
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    with Signals(lambda _: loop.call_soon_threadsafe(heard.set)), Progress(terminal, "") as progress:
        async with open_runtime(address, charts=charts, work=True, clock=SystemClock(), lease_ms=LEASE_MS) as runtime:
            before = await census(runtime)
            _say_begun(terminal, plan, before)
            traffic = Traffic(runtime, services, plan.rate)
            waits = [traffic.run(), heard.wait(), _status(progress, runtime, services)]
            if server is not None:
                waits.append(_console(terminal, progress, plan, server, runtime, charts, heard))
            async with _side_by_side(waits) as tasks:
                seconds = None if plan.duration_ms is None else plan.duration_ms / 1_000
                await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                heard.set()
                if server is not None:
                    await tasks[-1]  # requests in hand are answered while everything still runs
            progress.line("draining: what is in hand finishes; Ctrl-C ends it at once")
            drained = await runtime.drain(DRAIN_MS)
            after = await census(runtime)
    sent = sum(traffic.sent.values()) - traffic.sent["missed"]
    return DemoReport(before=before, after=after, sent=sent, done=sum(services.done.values()), drained=drained)


@asynccontextmanager
async def _side_by_side(works: list[Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Tasks that end with the block. The first that failed is told, unless something else failed before."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        yield tasks
        for each in tasks:
            if each.done():
                each.result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _console(
    terminal: Terminal,
    progress: Progress,
    plan: DemoOptions,
    server: Any,
    runtime: Runtime,
    charts: list[BoundChart],
    heard: asyncio.Event,
) -> None:
    """Serve the console at the wanted port, or at the next one that is free, until the end is heard."""
    access = web_module("interlock.web.auth")
    doors = access.Authentication(runtime.clock, local=everybody(access, None, charts, read_only=False))

    def ready(address: str) -> None:
        progress.wipe()
        link = f"{address}/#login={doors.link}"
        if plan.port and not address.endswith(f":{plan.port}"):
            terminal.message(("taken", "yellow"), f": port {plan.port} is somebody else's")
        terminal.data(f"{link}\n")
        sys.stdout.flush()
        opened = plan.browser and _has_screen() and webbrowser.open(link)
        how = "opened in your browser" if opened else "open it in a browser: the link works once"
        terminal.message((how, "dim"))

    for port in (*range(plan.port, min(plan.port + PORTS, 65_536)), 0):
        with suppress(UnavailableError):
            await server.serve(runtime, doors, host=HOST, port=port, ready=ready, until=heard)
            return
    raise UnavailableError(f"no port of {HOST} is free", code="serve.port", hint="name one with --port")


async def _status(progress: Progress, runtime: Runtime, services: Services) -> None:
    """Keep the line that tells how the world stands."""
    began_ms = runtime.clock.now_ms()
    while True:  # ends with the demo
        now = await census(runtime)
        seconds = (runtime.clock.now_ms() - began_ms) // 1_000
        age = values.age_text(seconds * 1_000) if seconds else "0s"
        effects = values.counted(services.done.total(), "effect", "effects")
        told = (
            f"{age}  {now.entities:,} entities, {now.going:,} under way, {effects}, {now.compensated:,} compensated, "
        )
        progress.line(f"{told}{values.counted(now.dead, 'dead letter', 'dead letters')}  (Ctrl-C ends it)")
        await runtime.clock.sleep_ms(STATUS_MS)


def _has_screen() -> bool:
    """Whether a browser would open a window, and not take over this terminal."""
    return sys.platform == "darwin" or any(os.environ.get(each) for each in ("DISPLAY", "WAYLAND_DISPLAY"))


@contextmanager
def _hushed(terminal: Terminal) -> Iterator[None]:
    """Services fail here all the time: only those who ask are told."""
    handler = LogHandler(terminal) if terminal.verbose else logging.NullHandler()
    _log.addHandler(handler)
    try:
        yield
    finally:
        _log.removeHandler(handler)


def _say_begun(terminal: Terminal, plan: DemoOptions, before: Census) -> None:
    what = "goes on" if before.entities else "begins"
    known = f" with {values.counted(before.entities, 'entity', 'entities')}" if before.entities else ""
    terminal.message((what, "bold green"), f"{known}: orders and virtual machines on {plan.folder}/demo.db")
    look = f"{_activated()}cd {shlex.quote(str(plan.folder))}, then interlock top, interlock stuck or interlock tail -f"
    terminal.message((f"in another terminal: {look}", "dim"))


def _activated() -> str:
    """What another terminal has to say first, where this one was started without `interlock` on its path."""
    script = Path(sys.prefix, "bin", "activate")
    if shutil.which("interlock") is not None or not script.is_file():
        return ""
    return f". {shlex.quote(os.path.relpath(script))} && "


def _say_ended(terminal: Terminal, plan: DemoOptions, story: DemoReport) -> None:
    before, after = story.before, story.after
    new = values.counted(after.entities - before.entities, "new entity", "new entities")
    events = values.counted(story.sent, "event", "events")
    effects = values.counted(story.done, "effect", "effects")
    sagas = values.counted(after.compensated - before.compensated, "saga", "sagas")
    terminal.report(("closed", "bold"), f": {new}, {events} taken, {effects} performed, {sagas} compensated")
    dead = values.counted(after.dead, "dead letter", "dead letters")
    back = f", {story.drained.requeued} of their effects put back" if story.drained.requeued else ""
    terminal.report(f"left: {after.going:,} of {after.entities:,} under way{back}, {dead}; nothing is lost")
    terminal.message((f"run it again and it goes on; rm -r {shlex.quote(str(plan.folder))} forgets it", "dim"))
