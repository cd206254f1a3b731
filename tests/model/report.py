"""Prints what the explorer sees of the protocols of shared memory, as one table.

Usage: python -m tests.model.report [--long] [--show NAME]

`--long` adds the walks that take minutes. `--show` prints the interleaving of one fault, such as `gate: exit does not
wake`, or of all whose name contains the text.
"""

from __future__ import annotations

import sys
import time

from tests.model.catalogue import hunts, long_walks, walks
from tests.model.explorer import explore, hunt


def main(*, long: bool) -> int:
    """Walks everything once; gives 1 when something is not as it must be."""
    wrong = 0
    print(f"{'walk':<70}{'states':>12}{'seconds':>9}  violations")
    for walk in (*walks(), *(long_walks() if long else ())):
        start = time.process_time()
        seen = explore(walk.model())
        good = seen.complete and not seen.violations and seen.states == walk.states
        wrong += not good
        note = ", ".join(seen.violations) or ("0" if good else f"expected {walk.states:,} states")
        print(f"{walk.name:<70}{seen.states:>12,}{time.process_time() - start:>9.1f}  {note}")
    print(f"\n{'rule left out':<70}{'steps to':>12}  what goes wrong")
    for each in hunts():
        found = hunt(each.model(), each.wrong)
        wrong += found is None
        steps = len(found.turns) if found else 0
        print(f"{each.name:<70}{steps:>12}  {each.wrong if found else 'NOT FOUND'}")
    return int(wrong > 0)


def show(text: str) -> int:
    """Prints interleavings."""
    for each in hunts():
        if text in each.name:
            print(f"{each.name}\n\n{hunt(each.model(), each.wrong)}\n")
    return 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(
        show(arguments[arguments.index("--show") + 1]) if "--show" in arguments else main(long="--long" in arguments)
    )
