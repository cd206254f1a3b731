"""Exponential backoff: how long to wait before the next try.

The wait doubles with every failure, from `ms_min` up to `ms_max`. Part of it is random, so that callers that failed
together do not all come back together.
"""

from __future__ import annotations

from dataclasses import dataclass

DOUBLINGS_MAX = 40
"""Doublings that are counted: 1 ms grows to 34 years, which is longer than any upper bound."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The bounds of a wait in milliseconds, and which part of it is random: 1.0 all of it, 0.5 half, 0.0 nothing."""

    ms_min: float
    ms_max: float
    jitter: float = 1.0

    def __post_init__(self) -> None:
        assert 0 <= self.ms_min <= self.ms_max, f"bounds {self.ms_min} and {self.ms_max} do not rise"
        assert 0 <= self.jitter <= 1, f"jitter {self.jitter} is not a part"

    def wait_ms(self, failures: int, chance: float) -> float:
        """Return the wait after this many earlier failures; `chance` is a random number from 0 to 1.

        >>> Backoff(100, 1_000, jitter=0.5).wait_ms(2, 0.5)
        300.0
        """
        longest = min(self.ms_max, self.ms_min * 2.0 ** min(failures, DOUBLINGS_MAX))
        return longest * (1 - self.jitter + self.jitter * chance)
