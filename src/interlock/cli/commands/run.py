"""`interlock run`: a process that performs the work of a store until it is told to stop.

Rule 1: it says what it does when that changes: running, draining, closed. The last line is the report.
Rule 2: it ends with 0 after a drain, however that went: what was put back or left running is not lost.
Rule 3: what the worker logs is shown with its facts (`logs`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack

import click

from interlock.assemble.charts import BoundChart
from interlock.assemble.runtimes import open as open_runtime
from interlock.cli import exit_codes
from interlock.cli.commands.history import duration_ms
from interlock.cli.options import common, example, pass_terminal
from interlock.cli.output import values
from interlock.cli.output.terminal import Terminal
from interlock.cli.session import (
    charts_of_code,
    default_store,
    key_prefix_of,
    key_prefix_option,
    loaded_charts,
    run,
)
from interlock.errors import UsageError
from interlock.model.limits import LEASE_MS_MAX, LEASE_MS_MIN
from interlock.observe.fleet import orphans
from interlock.runtime.shutdown import DrainReport, Signals, until_stopped
from interlock.shm.lifecycle.asgi import shared_lifecycle
from interlock.stores.registry import without_password


@example(
    "interlock run orders:charts --store sqlite:///orders.db",
    "interlock run orders:charts --bus nats://127.0.0.1:4222?stream=orders",
)
@click.command("run", short_help="Perform the work of a store until told to stop.")
@click.argument("app", required=False, metavar="[MODULE:NAME]")
@click.option("--store", metavar="URL", help="The store; otherwise that of the project.")
@click.option("--bus", metavar="URL", help="Where messages go, such as nats://127.0.0.1:4222?stream=orders.")
@click.option("--drain", default="30s", metavar="DURATION", help="How long work may take to finish at the end (30s).")
@click.option("--lease", default="30s", metavar="DURATION", help="How long work of a dead process waits (30s).")
@click.option("--life", metavar="NAME", help="Stop as one with all processes of this name on this machine.")
@key_prefix_option
@common
@pass_terminal
def run_command(
    terminal: Terminal,
    *,
    app: str | None,
    store: str | None,
    bus: str | None,
    drain: str,
    lease: str,
    life: str | None,
    key_prefix: str | None,
) -> int:
    """Call handlers, fire timers and deliver what entities send, until SIGTERM or Ctrl-C.

    MODULE:NAME is a chart with its handlers, a list of them, or a function that returns one; otherwise the charts of
    the project. At the end it takes nothing more up, lets what is in hand finish, puts the rest back for others, and
    ends with 0. A second signal ends it at once: what it had in hand is taken up by others when its lease ends.
    """
    charts = loaded_charts(()) if app is None else charts_of_code(app)
    address, prefix = store or default_store(), key_prefix_of(key_prefix)
    drain_ms, lease_ms = duration_ms(drain, "--drain"), duration_ms(lease, "--lease")
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        message = f"--lease {lease[:40]} is not between {LEASE_MS_MIN}ms and {LEASE_MS_MAX // 60_000}m"
        raise UsageError(message, code="lease.malformed", hint="write 30s, or leave it out")

    async def work() -> DrainReport:
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        with ExitStack() as stack:
            # From the first moment to the last: a signal while it still opens is a signal, too.
            signals = stack.enter_context(Signals(lambda _: loop.call_soon_threadsafe(heard.set)))
            door = None if life is None else stack.enter_context(shared_lifecycle(life))
            opening = open_runtime(
                address, charts=charts, work=True, lifecycle=door, bus=bus, lease_ms=lease_ms, key_prefix=prefix
            )
            async with opening as runtime:
                _say_running(terminal, charts, address)
                for each in await orphans(runtime) or ():
                    told = f": entities of {each.kind} {each.revision} wait: no chart here goes on with them"
                    terminal.message(("missing", "yellow"), f"{told}; {each.hint}")
                await until_stopped(runtime, heard)
                _say_draining(terminal, signals.first, drain_ms)
                ended = await runtime.drain(drain_ms)
                if ended.still_running:
                    # What cannot be stopped would hold the interpreter up; its lease lapses, as if this were killed.
                    _say_closed(terminal, ended)
                    _leave()
            return ended

    _say_closed(terminal, run(work()))
    return exit_codes.OK


def _say_running(terminal: Terminal, charts: Sequence[BoundChart], address: str) -> None:
    kinds = ", ".join(f"{each.chart.kind} {each.chart.revision}" for each in charts)
    handlers = values.counted(len({name for each in charts for name in each.handlers}), "handler", "handlers")
    terminal.message(
        ("running", "bold green"), f": {kinds} on {without_password(address)}, {handlers}, process {os.getpid()}"
    )
    for chart in charts:
        for name in chart.chart.handlers:
            if name not in chart.handlers:
                told = f": `{name}` of {chart.chart.kind} has no handler here; its work waits for a process that has it"
                terminal.message(("missing", "yellow"), told)
    if not any(each.handlers for each in charts) and any(each.chart.handlers for each in charts):
        terminal.message(("  name the module that registers them: interlock run MODULE:NAME", "dim"))


def _say_draining(terminal: Terminal, number: int | None, drain_ms: int) -> None:
    why = "the others of this life have ended" if number is None else signal.Signals(number).name
    wait = f"what is in hand may take {values.age_text(drain_ms)}; a second signal ends it at once"
    terminal.message(("draining", "bold yellow"), f": {why}; {wait}")


def _say_closed(terminal: Terminal, ended: DrainReport) -> None:
    told = f": {ended.finished} finished, {ended.requeued} put back for others"
    if not (ended.finished or ended.requeued or ended.still_running):
        told = ": nothing was in hand"
    if ended.still_running:
        told += f", {ended.still_running} left running: taken up by others when their leases end"
    if ended.unanswered:
        told += f", {values.counted(ended.unanswered, 'request', 'requests')} without an answer"
    terminal.report(("closed", "bold"), f"{told}; it took {values.age_text(ended.took_ms)}")


def _leave() -> None:
    """End the process now, with what was said on its way."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_codes.OK)
