"""Whether TLS works in a forked child.

OpenSSL locks what its threads share. When a process forks while another of its threads is inside OpenSSL, the child
inherits such a lock as held, and the first TLS context of the child waits for it without end, without releasing the
interpreter: no timeout can end it. So a child of the child tries it first, and is killed if it does not end.
"""

from __future__ import annotations

import os
import signal
import ssl
import warnings
from time import sleep

from interlock.errors import UsageError
from interlock.ports.fork import FORKED_HINT
from interlock.ports.threads import in_thread

LOOK_SECONDS = 0.005

LOOKS_MAX = 2_000
"""Ten seconds. A context takes some milliseconds; a machine that is slower than this cannot run a worker."""


_checked: set[int] = set()
"""The processes that were checked: a child of a child has its own id."""


async def check_tls() -> None:
    """Raise UsageError (`store.forked_tls`) if a TLS connection of this process would hang. Checked once."""
    if os.getpid() in _checked:
        return
    if not await in_thread(_does_tls_end):
        message = "TLS would hang in this process: it was forked while a thread of its parent was using TLS"
        raise UsageError(message, code="store.forked_tls", hint=FORKED_HINT)
    _checked.add(os.getpid())


def _does_tls_end() -> bool:
    """Whether a child of this process can make a TLS context."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about a fork with threads; this child runs one function
        process = os.fork()
    if process == 0:
        _try_tls()
    try:
        for _ in range(LOOKS_MAX):
            if os.waitpid(process, os.WNOHANG)[0]:
                return True
            sleep(LOOK_SECONDS)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    except ChildProcessError:  # the program ignores SIGCHLD: nothing is known about children
        return True
    return False


def _try_tls() -> None:
    """Make a TLS context and end this process, without any clean-up of what it inherited."""
    try:
        ssl.create_default_context()
    finally:
        os._exit(0)
