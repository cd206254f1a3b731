"""Processes that begin quickly and can be killed at any moment, each with a pipe to whoever started it.

They are forked from one server process that has imported the package already: a kill then costs a hundredth of a second
and not the start of an interpreter. Whoever starts a worker ends it, by `killed` or `ended`.
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
    """A running process and our end of its pipe."""

    process: Any
    pipe: Connection

    def killed(self) -> Iterator[bytes]:
        """Ends it where it stands; gives what it had said by then and nobody had taken in."""
        self.process.kill()
        return self._gone()

    def ended(self) -> Iterator[bytes]:
        """Waits for its own end, killing it when that does not come; gives what it said last."""
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
    """A process that runs `target(pipe, *arguments)`."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours)


@contextmanager
def crowd(count: int, target: Callable[..., None], *arguments: object) -> Iterator[list[Worker]]:
    """Some processes that run `target(pipe, number, *arguments)`; all are killed in the end."""
    workers = [started(target, number, *arguments) for number in range(count)]
    try:
        yield workers
    finally:
        for each in workers:
            each.killed()
