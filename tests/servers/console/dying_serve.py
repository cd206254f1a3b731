"""`interlock serve` that is killed in the middle of a bulk: its `DIES_AT`-th event is written, and not yet counted.

python -m tests.servers.console.dying_serve serve sqlite:///...
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count

from interlock.cli.main import main
from interlock.operate.jobs.job import Bulk, Item, Job
from interlock.operate.jobs.walk import JobWalker

DIES_AT = 20

_outcome = JobWalker._outcome
_sent = count(1)


async def outcome(walks: JobWalker, job: Job, bulk: Bulk, item: Item) -> tuple[str, str | None]:
    """Send to one entity; kill the process after the last one."""
    found = await _outcome(walks, job, bulk, item)
    if not bulk.dry_run and next(_sent) == DIES_AT:
        os.kill(os.getpid(), signal.SIGKILL)
    return found


if __name__ == "__main__":
    JobWalker._outcome = outcome  # type: ignore[assignment, method-assign]  # the fault
    sys.exit(main(sys.argv[1:]))
