"""The workers of a storm: a fixed number, each with its own clock. Killed ones are replaced.

Rule: a worker that ends without having been killed has crashed. Crashes are counted, and too many end the storm.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from multiprocessing.connection import wait
from threading import Lock

from tests.crash.chaos.world import LEASE_MS, works
from tests.crash.kills.forked_workers import ANSWER_SECONDS_MAX, Worker, started

WORKERS = 2
FALLEN_MAX = 10
PAUSE_S = 1.5 * LEASE_MS / 1000
SKEWS_MS = (0, 0, 0, 400, -400, 3_000)
"""How wrong the clock of a worker may be: within the lease, and by far more than it."""


class Crew:
    """The workers of a storm."""

    def __init__(self, chance: random.Random, *arguments: object) -> None:
        self._chance = chance
        self._arguments = arguments
        self._listening = Lock()
        self._paused: Worker | None = None
        self._leaving: list[Worker] = []
        self.pauses = 0
        self.dismissed = 0
        self._workers: list[Worker] = []
        self._last: dict[Worker, bytes] = {}
        self.fallen = 0

    def fill(self) -> None:
        """Start workers until there are enough."""
        while len(self._workers) < WORKERS:
            self._workers.append(started(works, *self._arguments, self._chance.choice(SKEWS_MS)))

    def hear(self, seconds: float) -> int:
        """Receive reports for some time; return how many. It blocks, so it is called in a thread."""
        with self._listening:
            by_pipe = {each.pipe: each for each in self._workers}
            ready = wait(list(by_pipe), timeout=seconds)
            for pipe in ready:
                worker = by_pipe[pipe]  # type: ignore[index]  # the pipes that were waited for
                try:
                    self._last[worker] = worker.pipe.recv_bytes()
                except EOFError:  # it was not killed
                    self.fallen += 1
                    self._forget(worker)
            return len(ready)

    @property
    def is_hopeless(self) -> bool:
        """Whether too many workers crash for a storm."""
        return self.fallen > FALLEN_MAX

    def pause(self) -> None:
        """Suspend one worker for longer than its lease; one at a time."""
        if self._paused is None:
            self._paused = self._chance.choice(self._workers)
            os.kill(self._paused.process.pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(PAUSE_S, self._resume, self._paused)  # it may hold a lock
            self.pauses += 1

    def _resume(self, worker: Worker) -> None:
        if self._paused is worker:
            os.kill(worker.process.pid, signal.SIGCONT)
            self._paused = None

    def kill(self) -> bool:
        """Kill a worker that has reported; return whether a handler was running."""
        able = [each for each in self._workers if each in self._last and each is not self._paused]
        victim = self._chance.choice(able or self._workers)
        said = self._last.get(victim, b"here")
        self._forget(victim)
        return said not in (b"here", b"done")

    def _forget(self, worker: Worker) -> None:
        if worker is self._paused:
            self._paused = None
        self._workers.remove(worker)
        self._last.pop(worker, None)
        worker.killed()

    def dismiss(self) -> None:
        """Send SIGTERM to a worker: it finishes its running work, or requeues it."""
        able = [each for each in self._workers if each in self._last and each is not self._paused]
        if able:
            leaving = self._chance.choice(able)
            os.kill(leaving.process.pid, signal.SIGTERM)
            self._workers.remove(leaving)
            self._last.pop(leaving)
            self._leaving.append(leaving)
            self.dismissed += 1

    def end(self) -> list[str]:
        """End all workers; return the faults of those that were dismissed."""
        with self._listening:  # after an interrupted storm a thread may still receive
            for each in self._workers:
                each.killed()
            self._workers.clear()
        found = []
        for each in self._leaving:
            each.process.join(ANSWER_SECONDS_MAX)
            if each.process.exitcode != 0:
                found.append(f"a dismissed worker ended with {each.process.exitcode}")
            each.killed()
        self._leaving.clear()
        return found
