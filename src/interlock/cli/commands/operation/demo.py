"""`interlock demo`: orders and virtual machines that run by themselves, for the console and every other command.

Rule 1: everything is in one folder, which can be deleted. Started again, the demo continues.
Rule 2: the first signal drains it; a second one stops it immediately. Neither loses state.
Rule 3: its services fail on purpose, so log records appear with -v only.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from interlock.assemble.charts import BoundChart
from interlock.cli import exit_codes
from interlock.cli.commands.operation.serve import PORT, known_roles, local_user, web_module
from interlock.cli.options import common, duration_ms, example, pass_terminal
from interlock.cli.output.log_handler import LogHandler
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import age_text, count_text
from interlock.cli.session import run
from interlock.demo.charts import STORE, load_charts, prepare_folder
from interlock.demo.services import SEED, Services
from interlock.demo.traffic import RATE_MAX
from interlock.demo.world import DemoReport, WorldCounts, count_world, run_world
from interlock.errors import MissingExtraError, UnavailableError
from interlock.ports.clock import SystemClock
from interlock.runtime.runtime import Runtime
from interlock.runtime.shutdown import Signals

FOLDER = "interlock-demo"
PORTS_TRIED = 20
"""Ports from the given one on that are tried; then any free port."""

STATUS_MS = 500
HOST = "127.0.0.1"

_log = logging.getLogger("interlock")


class DemoOptions(Struct, frozen=True, kw_only=True):
    """The options of the command."""

    folder: Path
    console: bool
    browser: bool
    port: int
    rate: float
    duration_ms: int | None


@example("interlock demo", "interlock demo --no-browser --rate 20 --duration 30s")
@click.command
@click.option(
    "--folder",
    default=FOLDER,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help=f"The folder of the demo (default {FOLDER}).",
)
@click.option("--port", default=PORT, type=click.IntRange(0, 65535), metavar="PORT", help="The port of the console.")
@click.option("--no-console", is_flag=True, help="Do not start the console.")
@click.option("--no-browser", is_flag=True, help="Print the address; do not open a browser.")
@click.option(
    "--rate",
    default=3.0,
    type=click.FloatRange(0.01, RATE_MAX),
    metavar="N",
    help="New entities per second (default 3).",
)
@click.option("--seed", default=SEED, type=int, metavar="N", help=f"The seed of all random choices (default {SEED}).")
@click.option("--duration", metavar="DURATION", help="Stop after this time, such as 30s.")
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
    """Shows how failures are handled: lost charges, carriers that refuse, sagas that compensate, dead letters, and late
    answers from support.

    All files are in one folder; run `interlock top`, `interlock stuck` and all other commands there, without options.
    Ctrl-C stops the demo; start it again to continue.
    """
    if math.isnan(rate):  # every comparison with it is false, so it passes any range
        raise click.BadParameter("nan is not a number", param_hint="'--rate'")
    options = DemoOptions(
        folder=folder,
        console=not no_console,
        browser=not no_browser and sys.stdout.isatty(),
        port=port,
        rate=rate,
        duration_ms=None if duration is None else duration_ms(duration, "--duration"),
    )
    server = _import_server() if options.console else None
    services = Services(SystemClock(), seed)
    url = prepare_folder(folder)
    charts = load_charts(folder, services)
    with _quiet_logs(terminal):
        report = run(_run(terminal, options, server, url, charts, services))
    _print_report(terminal, options, report)
    return exit_codes.OK


def _import_server() -> Any:
    """The server of the console. Raises MissingExtraError if its dependencies are not installed."""
    try:
        return web_module("interlock.web.server")
    except MissingExtraError as error:
        hint = f"{error.hint}, or use --no-console"
        raise MissingExtraError(error.message, code=error.code, hint=hint) from error


async def _run(
    terminal: Terminal, options: DemoOptions, server: Any, url: str, charts: list[BoundChart], services: Services
) -> DemoReport:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    with Signals(lambda _: loop.call_soon_threadsafe(stop.set)), Progress(terminal, "") as progress:

        async def console(runtime: Runtime) -> None:
            await _serve_console(terminal, progress, options, server, runtime, stop)

        async def status(runtime: Runtime) -> None:
            await _show_status(progress, runtime, services)

        return await run_world(
            url,
            charts,
            services,
            rate=options.rate,
            duration_ms=options.duration_ms,
            stop=stop,
            on_start=lambda before: _print_started(terminal, options, before),
            on_drain=lambda: progress.line("draining: waiting for running work; press Ctrl-C to stop now"),
            status=status,
            console=None if server is None else console,
        )


async def _serve_console(
    terminal: Terminal,
    progress: Progress,
    options: DemoOptions,
    server: Any,
    runtime: Runtime,
    stop: asyncio.Event,
) -> None:
    """Serve the console on the given port, or the next free one, until the demo stops."""
    auth = web_module("interlock.web.auth")
    user = local_user(None, await known_roles(runtime), read_only=False)
    authentication = auth.Authentication(runtime.clock, local=user)

    def ready(address: str) -> None:
        progress.erase()
        link = f"{address}/#login={authentication.link}"
        if options.port and not address.endswith(f":{options.port}"):
            terminal.message(("warning", "yellow"), f": port {options.port} is in use")
        terminal.data(f"{link}\n")
        sys.stdout.flush()
        is_open = options.browser and _has_screen() and webbrowser.open(link)
        terminal.message(("opened in your browser" if is_open else "one-time sign-in link", "dim"))

    for port in (*range(options.port, min(options.port + PORTS_TRIED, 65_536)), 0):
        with suppress(UnavailableError):
            await server.serve(runtime, authentication, host=HOST, port=port, ready=ready, until=stop)
            return
    raise UnavailableError(f"no free port on {HOST}", code="serve.port", hint="give one with --port")


async def _show_status(progress: Progress, runtime: Runtime, services: Services) -> None:
    """Update the status line."""
    started_ms = runtime.clock.now_ms()
    while True:  # ends with the demo
        now = await count_world(runtime)
        seconds = (runtime.clock.now_ms() - started_ms) // 1_000
        age = age_text(seconds * 1_000) if seconds else "0s"
        effects = count_text(services.done.total(), "effect", "effects")
        dead = count_text(now.dead_letters, "dead letter", "dead letters")
        counts = f"{now.entities:,} entities, {now.active:,} active, {effects}, {now.compensated:,} compensated, {dead}"
        progress.line(f"{age}  {counts}  (press Ctrl-C to stop)")
        await runtime.clock.sleep_ms(STATUS_MS)


def _has_screen() -> bool:
    """Whether a browser opens a window and does not use this terminal."""
    return sys.platform == "darwin" or any(os.environ.get(each) for each in ("DISPLAY", "WAYLAND_DISPLAY"))


@contextmanager
def _quiet_logs(terminal: Terminal) -> Iterator[None]:
    """Show log records with -v only."""
    handler = LogHandler(terminal) if terminal.verbose else logging.NullHandler()
    _log.addHandler(handler)
    try:
        yield
    finally:
        _log.removeHandler(handler)


def _print_started(terminal: Terminal, options: DemoOptions, before: WorldCounts) -> None:
    what = "resumed" if before.entities else "started"
    known = f" with {count_text(before.entities, 'entity', 'entities')}" if before.entities else ""
    terminal.message((what, "bold green"), f"{known}: orders and virtual machines on {options.folder}/{STORE}")
    folder = shlex.quote(str(options.folder))
    command = f"{_activation()}cd {folder}, then interlock top, interlock stuck or interlock tail -f"
    terminal.message((f"in another terminal: {command}", "dim"))


def _activation() -> str:
    """The command that activates this environment, if `interlock` is not on the path."""
    script = Path(sys.prefix, "bin", "activate")
    if shutil.which("interlock") is not None or not script.is_file():
        return ""
    return f". {shlex.quote(os.path.relpath(script))} && "


def _print_report(terminal: Terminal, options: DemoOptions, report: DemoReport) -> None:
    before, after = report.before, report.after
    entities = count_text(after.entities - before.entities, "new entity", "new entities")
    events = count_text(report.events, "event", "events")
    effects = count_text(report.effects, "effect", "effects")
    sagas = count_text(after.compensated - before.compensated, "saga", "sagas")
    terminal.report(("stopped", "bold"), f": {entities}, {events} sent, {effects} run, {sagas} compensated")
    dead = count_text(after.dead_letters, "dead letter", "dead letters")
    requeued = f", {report.drained.requeued} effects requeued" if report.drained.requeued else ""
    terminal.report(f"{after.active:,} of {after.entities:,} entities active{requeued}, {dead}; state saved")
    terminal.message((f"run it again to resume; delete {shlex.quote(str(options.folder))} to reset", "dim"))
