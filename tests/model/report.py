"""Prints the results of the explorer for the protocols of shared memory, as one table.

Usage: python -m tests.model.report [--long] [--show NAME]

`--long` adds the models that take minutes. `--show` prints the interleaving of one fault, such as `gate: exit does not
wake`, or of all faults whose name contains the text.
"""

from __future__ import annotations

import sys
import time

from tests.model.catalogue import clean_models, fault_models, long_models
from tests.model.explorer import explore, find_violation


def main(*, long: bool) -> int:
    """Explores every model once. Returns 1 if a result is not the expected one."""
    wrong = 0
    print(f"{'model':<70}{'states':>12}{'seconds':>9}  violations")
    for clean in (*clean_models(), *(long_models() if long else ())):
        start = time.process_time()
        seen = explore(clean.model())
        good = seen.complete and not seen.violations and seen.states == clean.states
        wrong += not good
        note = ", ".join(seen.violations) or ("0" if good else f"expected {clean.states:,} states")
        print(f"{clean.name:<70}{seen.states:>12,}{time.process_time() - start:>9.1f}  {note}")
    print(f"\n{'rule left out':<70}{'steps to':>12}  what goes wrong")
    for each in fault_models():
        found = find_violation(each.model(), each.wrong)
        wrong += found is None
        steps = len(found.steps) if found else 0
        print(f"{each.name:<70}{steps:>12}  {each.wrong if found else 'NOT FOUND'}")
    return int(wrong > 0)


def show(text: str) -> int:
    """Prints interleavings."""
    for each in fault_models():
        if text in each.name:
            print(f"{each.name}\n\n{find_violation(each.model(), each.wrong)}\n")
    return 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(
        show(arguments[arguments.index("--show") + 1]) if "--show" in arguments else main(long="--long" in arguments)
    )
