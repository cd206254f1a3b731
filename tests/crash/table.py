"""The table of `make torture`: rows as they come, and the verdict."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass
class Row:
    """The result of one kind of fault. Findings name their kind: `lost: ...`, `doubled: ...`, or anything else."""

    count: int
    found: list[str] = field(default_factory=list)
    note: str = ""

    def tally(self) -> tuple[int, int, int]:
        """How many were lost, doubled and otherwise wrong."""
        lost = sum("lost: " in each for each in self.found)
        doubled = sum("doubled: " in each for each in self.found)
        return lost, doubled, len(self.found) - lost - doubled


@dataclass
class Table:
    """The rows so far. A row's name is shown while it runs."""

    lost: int = 0
    doubled: int = 0
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def head(self) -> None:
        """The names of the columns."""
        _say(f"{'what':<46}{'count':>14}{'lost':>7}{'doubled':>9}{'other':>7}{'seconds':>9}  note")

    def row(self, name: str, run: Callable[[], Row | str]) -> None:
        """Runs one kind of fault and prints what it came to; a text instead of a row says why it cannot run here."""
        _say(f"{name:<46}", end="")
        started = time.monotonic()
        try:
            answer = run()
        except Exception as error:  # noqa: BLE001  # the other rows are run all the same, and this one has failed
            answer = Row(0, [f"crashed: {error!r}"])
        seconds = time.monotonic() - started
        if isinstance(answer, str):
            self.skipped.append(name)
            _say(f"{'SKIPPED':>14}{'':>32}  {answer}")
            return
        lost, doubled, other = answer.tally()
        self.lost += lost
        self.doubled += doubled
        self.failures += [f"{name}: {each}" for each in answer.found]
        if answer.count == 0:
            self.failures.append(f"{name}: it never struck, so it proves nothing")
        _say(f"{_number(answer.count):>14}{lost:>7}{doubled:>9}{other:>7}{seconds:>9.1f}  {answer.note}")

    def control(self, name: str, faulty: Iterable[str], is_found: Callable[[str], bool]) -> None:
        """Runs stores with a fault in them, each of which must be found."""
        _say(f"{name:<46}", end="")
        started = time.monotonic()
        verdicts = {each: is_found(each) for each in faulty}
        missed = [each for each, found in verdicts.items() if not found]
        self.failures += [f"{name}: `{each}` was not found" for each in missed]
        score = f"{len(verdicts) - len(missed)} of {len(verdicts)}"
        note = "must all be found" if not missed else f"MISSED: {', '.join(missed)}"
        _say(f"{score:>14}{'':>23}{time.monotonic() - started:>9.1f}  {note}")

    def foot(self) -> int:
        """The verdict, as the last line; the exit code."""
        minutes = (time.monotonic() - self.started) / 60
        _say(f"\n{len(self.failures)} failures, {len(self.skipped)} rows skipped, {minutes:.1f} minutes")
        for each in self.failures[:50]:
            _say(f"FAILED {each}")
        others = len(self.failures) - self.lost - self.doubled
        verdict = f"torture: {self.lost} lost, {self.doubled} duplicated"
        _say(verdict + (f", {others} other failures" if others else ""))
        return 1 if self.failures else 0


def _number(count: int) -> str:
    """A count as people read it; schedules come in large numbers."""
    return f"{count:,}" if count < 10**10 else f"{count:.1e}"


def _say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()
