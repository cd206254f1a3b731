"""Which priority is served next: the most urgent one that waits, unless another was skipped too often.

So no priority starves, and no clock is read. native/task_table.h has the same function.
"""

from __future__ import annotations

from collections.abc import Sequence

SKIPS_MAX = 8
"""How often a waiting priority is skipped before it is served."""

PRIORITIES_MAX = 8


def choose_priority(waiting: Sequence[int], skips: list[int]) -> int | None:
    """Return the priority to serve, or None if none waits, and count the skips of the others.

    `waiting` lists the priorities that wait, most urgent first. `skips` has a count for every priority.
    """
    if not waiting:
        return None
    oldest = max(waiting, key=lambda each: skips[each])
    chosen = oldest if skips[oldest] >= SKIPS_MAX else waiting[0]
    for each in range(len(skips)):
        skips[each] = skips[each] + 1 if each in waiting and each != chosen else 0
    return chosen
