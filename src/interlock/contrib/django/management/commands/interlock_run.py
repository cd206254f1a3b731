"""The command `manage.py interlock_run`: a worker process."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from interlock.contrib.django.handler_connections import refresh_connections
from interlock.contrib.django.runtimes import open_runtime
from interlock.contrib.django.settings import DEFAULT, store_settings
from interlock.errors import InterlockError
from interlock.runtime.shutdown import DRAIN_MS


class Command(BaseCommand):
    """Runs effects and timers of a store until SIGTERM or SIGINT; running handlers may then finish."""

    help = "Run the effects and timers of a store of INTERLOCK until SIGTERM or SIGINT."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options of the command."""
        parser.add_argument("--store", default=DEFAULT, help="A store of INTERLOCK (default: %(default)s).")
        seconds = DRAIN_MS // 1_000
        parser.add_argument(
            "--drain",
            type=int,
            default=seconds,
            metavar="SECONDS",
            help="How long running handlers may take at the end (default: %(default)s).",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Work until a signal arrives."""
        try:
            store = store_settings(options["store"])
            store.import_handlers()
            for chart in store.bound_charts():
                refresh_connections(chart)
            with open_runtime(store, work=True) as runtime:
                self.stdout.write(f"worker {os.getpid()} runs the effects of `{store.name}`")
                self.stdout.flush()
                report = runtime.run_until_signal(drain_ms=options["drain"] * 1_000)
        except InterlockError as error:
            raise CommandError(f"{error.message}\nhint: {error.hint}" if error.hint else error.message) from error
        counts = f"{report.finished} finished, {report.requeued} requeued, {report.still_running} still running"
        self.stdout.write(f"stopped: {counts}")
