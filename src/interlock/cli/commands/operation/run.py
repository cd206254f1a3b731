"""`interlock run`: a worker that runs handlers, timers and messages of a store until it is stopped.

Rule 1: it prints its status when that changes: running, draining, stopped. The last line is the report.
Rule 2: the exit code after a drain is 0, whatever its result: requeued and abandoned work is not lost.
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
from interlock.cli.options import common, duration_ms, example, key_prefix_option, log_option, pass_terminal
from interlock.cli.output.log_handler import LogForm
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import age_text, count_text
from interlock.cli.probing import probe_option, probing
from interlock.cli.project import default_keyring, default_store, key_prefix_of, load_charts, project
from interlock.cli.session import forbid_core_dumps, frozen_heap, run
from interlock.cli.user_code import load_code
from interlock.errors import UsageError
from interlock.model.limits import LEASE_MS_MAX, LEASE_MS_MIN
from interlock.observe.stuck import missing_revisions
from interlock.runtime.shutdown import DrainReport, Signals, until_stopped
from interlock.shm.lifecycle.asgi import shared_lifecycle
from interlock.stores.registry import without_password


@example(
    "interlock run orders:charts --store sqlite:///orders.db",
    "interlock run orders:charts -q --log json",
    "interlock run orders:charts --bus nats://127.0.0.1:4222?stream=orders",
    "interlock run orders:charts --probe :8471",
)
@click.command("run")
@click.argument("app", required=False, metavar="[MODULE:NAME]")
@click.option("--store", metavar="URL", help="The store (default: that of the project).")
@click.option("--bus", metavar="URL", help="Where messages go, such as nats://127.0.0.1:4222?stream=orders.")
@click.option(
    "--drain", default="30s", metavar="DURATION", help="Time for running work to finish on shutdown (default 30s)."
)
@click.option(
    "--lease", default="30s", metavar="DURATION", help="Time until work of a dead worker is requeued (default 30s)."
)
@click.option("--lifecycle", metavar="NAME", help="Stop together with all processes that use this lifecycle.")
@probe_option
@key_prefix_option
@log_option
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
    lifecycle: str | None,
    probe: str | None,
    key_prefix: str | None,
    log: str | None,
) -> int:
    """Runs until SIGTERM or Ctrl-C. MODULE:NAME is a chart, a list of charts, or a function that returns either; the
    default is the charts of the project.

    On the first signal it claims no more work, waits for running work, requeues unfinished work, and exits with code 0.
    A second signal stops it immediately: its work is requeued when the leases expire.
    """
    charts = load_charts(()) if app is None else load_code(app)
    url, prefix = store or default_store(), key_prefix_of(key_prefix)
    drain_ms, lease_ms = duration_ms(drain, "--drain"), duration_ms(lease, "--lease")
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        message = f"--lease must be {LEASE_MS_MIN}ms to {LEASE_MS_MAX // 60_000}m, got {lease[:40]}"
        raise UsageError(message, code="lease.malformed", hint="write 30s, or omit it")

    async def work() -> DrainReport:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        forbid_core_dumps(charts)
        with ExitStack() as stack:
            # Signals are handled from here on, also while the store is opened.
            signals = stack.enter_context(Signals(lambda _: loop.call_soon_threadsafe(stop.set)))
            gate = None if lifecycle is None else stack.enter_context(shared_lifecycle(lifecycle))
            opening = open_runtime(
                url,
                charts=charts,
                work=True,
                lifecycle=gate,
                bus=bus,
                lease_ms=lease_ms,
                key_prefix=prefix,
                handler_defaults=project().handler_defaults,
                keyring=default_keyring(),
            )
            async with probing(terminal, probe, url) as probes, opening as runtime, probes.watching(runtime):
                stack.enter_context(frozen_heap())
                _print_running(terminal, charts, url)
                for each in await missing_revisions(runtime):
                    text = f": entities of {each.kind} {each.revision} wait: {each.reason}"
                    terminal.message(("warning", "yellow"), f"{text}; {each.hint}")
                await until_stopped(runtime, stop)
                _print_draining(terminal, signals.first, drain_ms)
                report = await runtime.drain(drain_ms)
                if report.still_running:
                    # A handler that does not stop would block the exit of the interpreter; its lease expires.
                    _print_stopped(terminal, report)
                    _exit_now()
            return report

    _print_stopped(terminal, run(work(), log=None if log is None else LogForm(log)))
    return exit_codes.OK


def _print_running(terminal: Terminal, charts: Sequence[BoundChart], url: str) -> None:
    kinds = ", ".join(f"{each.chart.kind} {each.chart.revision_text}" for each in charts)
    handlers = count_text(len({name for each in charts for name in each.handlers}), "handler", "handlers")
    terminal.message(
        ("running", "bold green"), f": {kinds} on {without_password(url)}, {handlers}, process {os.getpid()}"
    )
    if not any(each.handlers for each in charts) and any(each.chart.handlers for each in charts):
        terminal.message(("  handlers are registered by a module: interlock run MODULE:NAME", "dim"))


def _print_draining(terminal: Terminal, number: int | None, drain_ms: int) -> None:
    why = "the lifecycle is closing" if number is None else signal.Signals(number).name
    wait = f"waiting up to {age_text(drain_ms)} for running work; signal again to stop now"
    terminal.message(("draining", "bold yellow"), f": {why}; {wait}")


def _print_stopped(terminal: Terminal, report: DrainReport) -> None:
    terminal.report(("stopped", "bold"), f"{drain_text(report)} ({age_text(report.duration_ms)})")


def drain_text(report: DrainReport) -> str:
    """Return what happened to running work, as the end of a line."""
    text = f": {report.finished} finished, {report.requeued} requeued"
    if not (report.finished or report.requeued or report.still_running):
        text = "; no work in progress"
    if report.still_running:
        text += f", {report.still_running} abandoned; requeued when their leases expire"
    if report.unanswered:
        text += f", {count_text(report.unanswered, 'request', 'requests')} unanswered"
    return text


def _exit_now() -> None:
    """End the process without waiting for its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_codes.OK)
