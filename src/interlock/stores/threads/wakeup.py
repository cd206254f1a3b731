"""How the threads of a store and event loops wake each other: by a byte in a pipe.

A thread that waits on a lock, a condition or a queue is woken by a thread that holds the interpreter's lock and keeps
holding it: the woken one finds it taken, sleeps again and is woken a second time. A write to a pipe releases that lock
at the moment of the wake-up. A call to a thread and its answer then take four switches, not eight; and a pipe of our
own is cheaper than `call_soon_threadsafe`.

Rule 1: a byte only says "look": the work itself is in a queue next to the pipe.
Rule 2: nothing is written to a pipe that is closed: its descriptor could belong to another file by then.
Rule 3: the waking thread holds no lock that the woken thread takes first: that would cost the second sleep again.
"""

from __future__ import annotations

import contextlib
import os
import select
from asyncio import AbstractEventLoop, get_running_loop
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any

_BYTE = b"\0"
_READ_BYTES_MAX = 4_096

_Call = tuple[Callable[..., object], tuple[Any, ...]]


class WakeupPipe:
    """A pipe: each `wake` lets one `wait` return. After `close`, `wake` does nothing."""

    def __init__(self) -> None:
        self._guard = Lock()  # of the waking threads
        self.descriptor, self._write = os.pipe()
        self._poll: select.poll | None = None

    def wake(self) -> None:
        """Let one `wait` return."""
        with self._guard:
            if self._write >= 0:
                os.write(self._write, _BYTE)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for one `wake`; False when none came in time. With a timeout, only one thread may wait."""
        if seconds is not None:
            if self._poll is None:
                self._poll = select.poll()
                self._poll.register(self.descriptor, select.POLLIN)
            if not self._poll.poll(seconds * 1000):
                return False
        os.read(self.descriptor, 1)
        return True

    def close(self) -> None:
        """Close the pipe, once no thread waits. May be called again."""
        with self._guard:
            self._close()

    def __del__(self) -> None:
        if hasattr(self, "_write"):  # otherwise the system refused the pipe
            self._close()  # without the guard: after a fork, a thread of the parent may hold it

    def _close(self) -> None:
        descriptors, self.descriptor, self._write = (self.descriptor, self._write), -1, -1
        for each in descriptors:
            if each >= 0:
                os.close(each)


class LoopEntryQueue:
    """Calls from the threads of one store into the event loops where its callers wait."""

    def __init__(self) -> None:
        self._pipes: dict[AbstractEventLoop, _LoopPipe | None] = {}  # None: the loop cannot watch descriptors
        self._guard = Lock()
        self._is_closed = False

    def listen(self, loop: AbstractEventLoop) -> None:
        """Prepare a loop for calls from threads. Called in the loop."""
        if loop in self._pipes:
            return
        with self._guard:
            if self._is_closed:
                return
            for each in [each for each in self._pipes if each.is_closed()]:
                pipe = self._pipes.pop(each)
                if pipe is not None:
                    pipe.close()
            with contextlib.suppress(OSError):  # no descriptor is left: calls use the slow way until there is one
                self._pipes[loop] = _open_pipe(loop)

    def call(self, loop: AbstractEventLoop, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in a loop, from a thread. Does nothing when the loop is closed."""
        pipe = self._pipes.get(loop)
        if pipe is None or not pipe.call(function, arguments):
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """Remove all pipes; calls that were made before are still carried out."""
        with self._guard:
            self._is_closed = True
            pipes, self._pipes = self._pipes, {}
        for loop, pipe in pipes.items():
            if pipe is None:
                continue
            try:
                loop.call_soon_threadsafe(pipe.end, loop)
            except RuntimeError:  # closed
                pipe.close()


class _LoopPipe:
    """Calls into one loop. Only the first of the calls that wait writes a byte."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._calls: deque[_Call] = deque()
        self._is_open = True
        self._guard = Lock()  # of the calling threads
        self._wakeup = WakeupPipe()
        os.set_blocking(self._wakeup.descriptor, False)
        loop.add_reader(self._wakeup.descriptor, self._on_wakeup)

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> bool:
        """Queue a call; False when the pipe is closed."""
        with self._guard:
            if self._is_open:
                self._calls.append((function, arguments))
                if len(self._calls) == 1:
                    self._wakeup.wake()
            return self._is_open

    def end(self, loop: AbstractEventLoop) -> None:
        """In the loop: close the pipe, and carry out the calls that are left."""
        loop.remove_reader(self._wakeup.descriptor)
        self.close()
        self._run_calls()

    def _on_wakeup(self) -> None:
        """In the loop, after a wake-up."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup.descriptor, _READ_BYTES_MAX)
        self._run_calls()

    def _run_calls(self) -> None:
        """Carry out all calls. No more arrive meanwhile than there are callers, who all wait for this."""
        calls = self._calls
        while calls:
            function, arguments = calls.popleft()
            try:
                function(*arguments)
            except Exception as error:  # noqa: BLE001 - the other calls go on
                get_running_loop().call_exception_handler(
                    {"message": "a call from a thread failed", "exception": error}
                )

    def close(self) -> None:
        """Accept no more calls."""
        with self._guard:
            self._is_open = False
            self._wakeup.close()


def _open_pipe(loop: AbstractEventLoop) -> _LoopPipe | None:
    """Return a pipe into a loop; None if the loop cannot watch descriptors."""
    try:
        return _LoopPipe(loop)
    except NotImplementedError:
        return None
