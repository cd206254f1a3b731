"""Shared by the kill storms of shared memory: victims, random times, and the outcome.

Rule 1: a storm runs in its own process, single-threaded, so that forking a victim is cheap.
Rule 2: every victim is killed by its id, and one whose storm has died ends by an alarm.
Rule 3: a storm proves something only if kills happened inside an operation: it counts them, and its test asserts the
count.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import NoReturn

from tests.crash.shm.mutants import MUTANTS

VICTIM_SECONDS_MAX = 120


@dataclass
class Outcome:
    """The result of a storm: `work` is what was done; `lost`, `doubled`, `torn` and `notes` must be empty.

    `pidfd_us` and `timer_us` are how long it took to notice a death, by its pidfd and by the timer.
    """

    name: str
    kills: int = 0
    inside: int = 0
    work: int = 0
    lost: int = 0
    doubled: int = 0
    torn: int = 0
    notes: list[str] = field(default_factory=list)
    pidfd_us: list[int] = field(default_factory=list)
    timer_us: list[int] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing was lost, doubled, torn or unexpected."""
        return not (self.lost or self.doubled or self.torn or self.notes)

    def note(self, text: str) -> None:
        """Record an unexpected event, up to twenty."""
        if len(self.notes) < 20:
            self.notes.append(text)


class Victim:
    """A forked child that works until it is killed."""

    def __init__(self, work: Callable[[], NoReturn]) -> None:
        self.pid = os.fork()
        if self.pid:
            return
        signal.alarm(VICTIM_SECONDS_MAX)
        code = 70
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # printed on the child's stderr before it ends
            os.write(2, f"a victim ended early: {error!r}\n".encode())
            code = 71
        finally:
            os._exit(code)

    def kill(self) -> bool:
        """Kill it and wait for it. False if it had ended before, which is an error."""
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


class RandomTimes:
    """Random times, from a seed that is printed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def spend(self, meanwhile: Callable[[], object], us_max: int = 3_000) -> None:
        """Call a function repeatedly for a random time, at least once."""
        end = perf_counter_ns() + 1_000 * self.chance.randrange(10, us_max)
        meanwhile()
        while perf_counter_ns() < end:
            meanwhile()


def stays_alive(pid: int) -> bool:
    """Return whether a process is alive and stays so. A dying process releases its locks before it is a zombie."""
    end = perf_counter_ns() + 2_000_000_000
    while perf_counter_ns() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state in "ZX":
            return False
    return True


def run(storm: Callable[[int, int], Outcome]) -> None:
    """Run a storm from the command line: KILLS SEED [MUTANT]. Prints the outcome as JSON."""
    kills, seed = int(sys.argv[1]), int(sys.argv[2])
    for mutant in sys.argv[3:]:
        MUTANTS[mutant][1]()
    sys.stdout.write(json.dumps(asdict(storm(kills, seed))) + "\n")
