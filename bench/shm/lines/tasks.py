"""The task that pools are measured with: so many microseconds of CPU."""

from __future__ import annotations

from time import thread_time_ns


def burn(microseconds: int) -> int:
    """Use the CPU for so long, and return the number."""
    end = thread_time_ns() + 1000 * microseconds
    while thread_time_ns() < end:
        pass
    return microseconds
