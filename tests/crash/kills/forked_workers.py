"""Processes that start quickly and can be killed at any moment, each with a pipe to the process that started it.

They are forked from a server process that has already imported the package, so that a kill costs a hundredth of a
second and not the start of an interpreter. The caller ends each worker with `killed` or `ended`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from tests.support.eventually import PATIENCE_SECONDS

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([
    "interlock.assemble.runtimes",
    "interlock.runtime.runtime",
    "interlock.stores.files.store",
    "interlock.stores.sqlite.store",
    "interlock.testing.store_suite.subject",
])  # fmt: skip

ANSWER_SECONDS_MAX = PATIENCE_SECONDS


class Worker(NamedTuple):
    """A running process, and the caller's end of its pipe."""

    process: Any
    pipe: Connection

    def killed(self) -> Iterator[bytes]:
        """Kill the process; return the lines that it sent and that were not yet received."""
        self.process.kill()
        return self._gone()

    def ended(self) -> Iterator[bytes]:
        """Wait until the process ends, and kill it if it does not; return its last lines."""
        self.process.join(ANSWER_SECONDS_MAX)
        self.process.kill()
        return self._gone()

    def _gone(self) -> Iterator[bytes]:
        self.process.join()
        said = []
        try:
            while True:
                said.append(self.pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            pass
        self.pipe.close()
        self.process.close()
        return iter(said)


def started(target: Callable[..., None], *arguments: object) -> Worker:
    """Start a process that runs `target(pipe, *arguments)`."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours)


@contextmanager
def worker_processes(count: int, target: Callable[..., None], *arguments: object) -> Iterator[list[Worker]]:
    """Start processes that run `target(pipe, number, *arguments)`; all are killed at the end."""
    workers = [started(target, number, *arguments) for number in range(count)]
    try:
        yield workers
    finally:
        for each in workers:
            each.killed()
