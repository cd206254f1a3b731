"""Set limits for this process, then run `interlock`: `bounded.py FILE_BYTES_MAX HUMBLE ARGUMENT...`.

This is a separate process, because code between fork and exec is not safe in a test runner with threads.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

CPU_SECONDS_MAX = 60
HANG_SECONDS_MAX = 540
"""Real seconds: for a command that waits for something that never comes. A busy machine must not reach it."""
MEMORY_BYTES_MAX = 300 * 2**20
"""The memory limit of one command; Python with our readers alone uses about 35 MB.

A bound, not a measurement: what a parent sees of its child's memory counts the parent's own pages until the exec.
"""
PR_CAPBSET_DROP = 24
PASSING_PERMISSIONS = (1, 2)
"""Linux's capabilities to read and write whatever permissions say: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""


def main() -> None:
    """Set the bounds and run the command in this process."""
    file_bytes_max, humble, *arguments = sys.argv[1:]
    for capability in PASSING_PERMISSIONS if humble == "humble" else ():
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(file_bytes_max), resource.RLIM_INFINITY))
    signal.alarm(HANG_SECONDS_MAX)
    os.execv(sys.executable, [sys.executable, "-m", "interlock", *arguments])


if __name__ == "__main__":
    main()
