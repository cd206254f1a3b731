"""The process that runs batches of one parser: `python -m tests.fuzz.worker TARGET SEED FIRST LAST COUNT PLACE`.

It prints one line of JSON for each batch. Before each input it writes the number of the input to the file PLACE, which
the parent reads when this process dies: the input is then found again from the seed.

Rule 1: a timer of processor time ends an input after a second. What it cannot end, because it does not return to
        Python, is measured afterwards, or found by the parent.
Rule 2: the process may use 256 MiB more than before its first input. So garbage that is never freed counts, too.
"""

from __future__ import annotations

import logging
import mmap
import resource
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal

from msgspec import Struct, json

from tests.fuzz.target import ACCEPTED, Target
from tests.fuzz.targets.table import get_target

BATCH = 500
SECONDS_MAX = 1.0
MEMORY_BYTES_MAX = 256 * 2**20
PLACE = struct.Struct("<Q")

Kind = Literal["crash", "hang", "memory"]


class Finding(Struct, frozen=True):
    """One input that a parser did not survive, and where. `group` is the same for inputs with the same cause."""

    kind: Kind
    group: str
    text: str
    data: bytes


class Batch(Struct, frozen=True):
    """What happened in one batch. `digest` covers the verdicts of all inputs in order."""

    number: int
    inputs: int
    accepted: int
    digest: str
    findings: list[Finding]


class _TooSlowError(BaseException):
    """The timer went off. Not an Exception: no code under test may catch it."""


def batch_inputs(target: Target, seed: int, number: int) -> Iterator[bytes]:
    """Return the inputs of a batch."""
    return islice(target.inputs(Random(f"{seed}/{target.name}/{number}")), BATCH)


def run_batch(target: Target, seed: int, number: int, count: int, place: Any = None) -> Batch:
    """Try the first inputs of a batch."""
    digest, accepted, findings, tried = blake2b(digest_size=16), 0, [], 0
    for tried, data in enumerate(islice(batch_inputs(target, seed, number), count), start=1):
        if place is not None:
            PLACE.pack_into(place, 0, number * BATCH + tried - 1)
        found = attempt(target, data)
        if isinstance(found, Finding):
            findings.append(found)
            found = found.kind
        accepted += found.startswith(ACCEPTED)
        digest.update(found.encode("utf-8", "surrogatepass") + b"\0")
    return Batch(number, tried, accepted, digest.hexdigest(), findings)


def attempt(target: Target, data: bytes) -> str | Finding:
    """Try one input, inside `limits`. Return the verdict, or what was found."""
    started = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MAX)
        try:
            verdict = target.attempt(data)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooSlowError as error:
        return Finding("hang", _group(error), f"over {SECONDS_MAX} s", data)
    except MemoryError as error:
        return Finding("memory", _group(error), f"over {MEMORY_BYTES_MAX} bytes", data)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
        return Finding("crash", _group(error), f"{type(error).__name__}: {str(error)[:300]}", data)
    seconds = time.process_time() - started
    if seconds > SECONDS_MAX:
        return Finding("hang", "not interrupted", f"{seconds:.1f} s", data)
    return verdict


def _group(error: BaseException) -> str:
    """The exception and the last place of our code that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if "/interlock/" in each.filename] or frames
    return f"{type(error).__name__} {Path(ours[-1].filename).name}:{ours[-1].lineno}"


@contextmanager
def limits() -> Iterator[None]:
    """The timer of processor time, and warnings as errors. Both are put back."""
    before = signal.signal(signal.SIGVTALRM, _interrupt)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        signal.signal(signal.SIGVTALRM, before)


def _interrupt(*_: object) -> None:
    raise _TooSlowError


def limit_memory() -> None:
    """Allow this process 256 MiB more than it has."""
    used = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    most = int(used.split()[1]) * 1024 + MEMORY_BYTES_MAX
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))


def main() -> None:
    """Run batches FIRST to LAST, at most COUNT inputs in each."""
    name, seed, first, last, count, path = sys.argv[1:]
    logging.disable()
    target = get_target(name)
    run_batch(target, -1, 0, 20)  # the corpus and what is imported on first use are no cost of an input
    with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), PLACE.size) as place, limits():
        if sys.platform == "linux":
            limit_memory()
        for number in range(int(first), int(last) + 1):
            done = run_batch(target, int(seed), number, int(count), place)
            print(json.encode(done).decode(), flush=True)


if __name__ == "__main__":
    main()
