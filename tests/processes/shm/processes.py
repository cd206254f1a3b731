"""Children of a test: forked processes that communicate over a pipe and are killed by their ids."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tests.support.eventually import PATIENCE_SECONDS

Line = Connection
Work = Callable[[Line], object]


class Child:
    """A forked process that runs `work(line)` and then ends, with 0 or, after an exception, with 1."""

    def __init__(self, work: Work) -> None:
        self._line, theirs = Pipe()
        with warnings.catch_warnings():
            # Newer interpreters warn about a fork in a process with threads; these tests need it.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                self._line.close()
                work(theirs)
                code = 0
            except BaseException:  # noqa: BLE001  # nothing may return into the test that was copied
                traceback.print_exc()
            finally:
                os._exit(code)
        theirs.close()
        self._status: int | None = None

    def receive(self) -> Any:
        """Return the next message of the child."""
        assert self._line.poll(PATIENCE_SECONDS), "the child said nothing"
        return self._line.recv()

    def send(self, thing: object = None) -> None:
        """Send a message to the child."""
        self._line.send(thing)

    def kill(self, *, reap: bool = True) -> None:
        """SIGKILL; without `reap` the child stays a zombie."""
        os.kill(self.pid, signal.SIGKILL)
        if reap:
            self.wait()
        else:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def stop(self) -> None:
        """Send SIGSTOP, and wait until the process has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Wait for the end. Returns the exit code, negative for a signal."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def end(self) -> None:
        """Kill the process if it still runs."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self._line.close()
