"""What the kill storms of the shared memory share: victims, the moments of their deaths, and the outcome.

Rule 1: a storm runs in a process of its own, single-threaded, so that its victims can be forked cheaply.
Rule 2: every victim is ended by its id, and one whose storm has died ends by itself.
Rule 3: a storm proves something only if kills landed inside: it counts them, and its test asserts the count.
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
    """What came of a storm: `work` is what was done, `lost`, `doubled`, `torn` and `notes` must be empty.

    `pidfd_us` and `timer_us` are how long it took to notice a death, by its pidfd and by the next look.
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
        """Nothing lost, doubled, torn or strange."""
        return not (self.lost or self.doubled or self.torn or self.notes)

    def note(self, text: str) -> None:
        """Keep the first few strange things."""
        if len(self.notes) < 20:
            self.notes.append(text)


class Victim:
    """A forked child that works for ever, until it is killed."""

    def __init__(self, work: Callable[[], NoReturn]) -> None:
        self.pid = os.fork()
        if self.pid:
            return
        signal.alarm(VICTIM_SECONDS_MAX)
        code = 70
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # told on the child's own stderr, then it is gone
            os.write(2, f"a victim ended by itself: {error!r}\n".encode())
            code = 71
        finally:
            os._exit(code)

    def kill(self) -> bool:
        """End it and wait for it; False when it had ended by itself, which it must not."""
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


class Moments:
    """Random moments, from a seed that is printed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def spend(self, meanwhile: Callable[[], object], us_max: int = 3_000) -> None:
        """Do something again and again for a random while, at least once."""
        end = perf_counter_ns() + 1_000 * self.chance.randrange(10, us_max)
        meanwhile()
        while perf_counter_ns() < end:
            meanwhile()


def lives_on(pid: int) -> bool:
    """Whether a process is alive and stays so. One that is dying has let its locks go before it is a zombie."""
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
    """The command line of a storm: KILLS SEED [MUTANT]; prints the outcome as JSON."""
    kills, seed = int(sys.argv[1]), int(sys.argv[2])
    for mutant in sys.argv[3:]:
        MUTANTS[mutant][1]()
    sys.stdout.write(json.dumps(asdict(storm(kills, seed))) + "\n")
