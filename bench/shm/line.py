"""A line of the tables: a measured implementation, its name, and the workloads that it supports."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkProcess

CHILD_SECONDS_MAX = 60.0
"""A child that has not ended after this time is killed."""

Answer = dict[str, float]
"""`value`, in the unit of the workload, and optional further measures."""

Drive = Callable[[int], Answer]
"""Runs a workload so many times, checks the results, and returns the measurements."""


class WrongResultError(Exception):
    """A result is wrong, so its time means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A measured implementation, with the workloads that it supports."""

    name: str
    version: str
    drives: Mapping[str, Drive]


def check(expected: object, found: object) -> None:
    """Raises WrongResultError unless both are equal."""
    if expected != found:
        raise WrongResultError(f"expected {expected!r}, got {found!r}")


@contextlib.contextmanager
def children(works: list[Callable[[], object]]) -> Iterator[Callable[[], int]]:
    """Fork processes that wait until the returned function starts them; it returns the time of the start.

    The block waits for them at its end, or kills them after an exception.
    """
    context = multiprocessing.get_context("fork")
    ready_out, ready_in = os.pipe()
    go_out, go_in = os.pipe()

    def wait_and_run(work: Callable[[], object]) -> None:
        os.close(go_in)  # otherwise the end of the parent would not be noticed
        os.write(ready_in, b"r")
        if os.read(go_out, 1):
            work()

    def start_all() -> int:
        for _ in processes:
            os.read(ready_out, 1)
        start_ns = time.perf_counter_ns()
        os.write(go_in, b"g" * len(processes))
        return start_ns

    processes: list[ForkProcess] = [context.Process(target=wait_and_run, args=(work,), daemon=True) for work in works]
    try:
        for process in processes:
            process.start()
        yield start_all
        for process in processes:
            process.join(CHILD_SECONDS_MAX)
            check(0, process.exitcode)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()
        for descriptor in (ready_out, ready_in, go_out, go_in):
            os.close(descriptor)
