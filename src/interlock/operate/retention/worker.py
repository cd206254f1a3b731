"""Runs the retention of the charts in the background of a runtime, once per hour, in one process of a store.

Rule: it never disturbs its runtime: an error of a run is logged, and the next run tries again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from interlock.errors import InterlockError, UnavailableError
from interlock.model.limits import RETENTION_INTERVAL_MS
from interlock.operate.retention.rules import RetentionReport, rules_of_charts
from interlock.operate.retention.run import BeforePrune, OpenArchive, RetentionRun
from interlock.runtime.runtime import Runtime

_log = logging.getLogger("interlock.retention")

FIRST_MS = 60_000
"""How long the first run waits after the start, at most: processes that start together do not run together."""


class RetentionWorker:
    """Runs retention from `start` to `stop`."""

    def __init__(
        self, runtime: Runtime, *, open_archive: OpenArchive | None = None, before_prune: BeforePrune | None = None
    ) -> None:
        self._runtime = runtime
        self._open_archive = open_archive
        self._before_prune = before_prune
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the loop."""
        self._task = asyncio.get_running_loop().create_task(self._loop())

    async def stop(self) -> None:
        """Stop after the statement that is in progress. The next run finishes the remaining ones."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _loop(self) -> None:
        clock = self._runtime.clock
        await clock.sleep_ms(FIRST_MS * clock.jitter())
        while True:  # ends with `stop`
            await self.run_once()
            await clock.sleep_ms(RETENTION_INTERVAL_MS * (1 + clock.jitter() / 10))

    async def run_once(self) -> RetentionReport | None:
        """Run once; None if another process runs, or the run failed."""
        rules = rules_of_charts(self._runtime)
        run = RetentionRun(
            self._runtime,
            rules,
            open_archive=self._open_archive,
            before_prune=self._before_prune,
            reason="retention of the chart",
        )
        try:
            async for _ in run.run():
                pass
        except UnavailableError as error:
            if error.code != "retention.running":
                _log.warning("retention was interrupted", extra={"code": error.code, "error": error.message})
            return None
        except InterlockError as error:
            _log.warning("retention failed", extra={"code": error.code, "error": error.message})
            return None
        if run.report.done:
            _log.info("retention finished", extra={"counts": run.report.counts(), "kept": dict(run.report.reasons)})
        return run.report
