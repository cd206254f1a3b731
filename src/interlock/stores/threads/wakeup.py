"""How the threads of a store and event loops wake each other: by a byte in a pipe.

Whoever waits behind a lock, a condition or a queue is woken by somebody who holds the interpreter's own lock and goes
on holding it: the one who wakes finds it taken, sleeps again and is woken a second time. A write to a pipe gives that
lock up in the very moment of the waking. A call to a thread and its answer are four switches then, not eight, and a
pipe of our own also spares the loop what its own way for calls from threads does beside that.

Rule 1: a byte only says "look": what is to be done stands in a queue beside it.
Rule 2: nothing is written to a pipe that is closed: the number of its descriptor could be another file's by then.
Rule 3: whoever rings takes no lock that whoever wakes asks for: that would be the second sleep again.
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
_HEARD_BYTES_MAX = 4_096

_Call = tuple[Callable[..., object], tuple[Any, ...]]


class WakeupPipe:
    """A pipe: each `ring` lets one `wait` return. Once closed, nobody hears it any more."""

    def __init__(self) -> None:
        self._guard = Lock()  # of those who ring
        self.descriptor, self._write = os.pipe()
        self._poll: select.poll | None = None

    def ring(self) -> None:
        """Wake whoever waits."""
        with self._guard:
            if self._write >= 0:
                os.write(self._write, _BYTE)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for one ring, for so long at most; False when none came. With a time: from one thread only."""
        if seconds is not None:
            if self._poll is None:
                self._poll = select.poll()
                self._poll.register(self.descriptor, select.POLLIN)
            if not self._poll.poll(seconds * 1000):
                return False
        os.read(self.descriptor, 1)
        return True

    def close(self) -> None:
        """Let go of the pipe, once nobody waits. May be called again."""
        with self._guard:
            self._let_go()

    def __del__(self) -> None:
        if hasattr(self, "_write"):  # else the system had no pipe for it
            self._let_go()  # without the guard, which a thread may hold that is not in this process: after a fork

    def _let_go(self) -> None:
        descriptors, self.descriptor, self._write = (self.descriptor, self._write), -1, -1
        for each in descriptors:
            if each >= 0:
                os.close(each)


class LoopEntryQueue:
    """The event loops in which callers of one store wait, and the way for its threads to call into them."""

    def __init__(self) -> None:
        self._ways: dict[AbstractEventLoop, _Way | None] = {}  # none into a loop that is called in its own way
        self._guard = Lock()
        self._is_closed = False

    def listen(self, loop: AbstractEventLoop) -> None:
        """Called in a loop, before a thread is to call into it."""
        if loop in self._ways:
            return
        with self._guard:
            if self._is_closed:
                return
            for each in [each for each in self._ways if each.is_closed()]:
                way = self._ways.pop(each)
                if way is not None:
                    way.close()
            with contextlib.suppress(OSError):  # no descriptor is left: in its own way, until there is one
                self._ways[loop] = _way(loop)

    def call(self, loop: AbstractEventLoop, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in a loop, from a thread. If the loop is closed, nobody waits there any more."""
        way = self._ways.get(loop)
        if way is None or not way.call(function, arguments):
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """Listen no longer, in any thread; what was called before is still heard."""
        with self._guard:
            self._is_closed = True
            ways, self._ways = self._ways, {}
        for loop, way in ways.items():
            if way is None:
                continue
            try:
                loop.call_soon_threadsafe(way.end, loop)
            except RuntimeError:  # closed
                way.close()


class _Way:
    """Into one loop. It is rung for the first of the calls that were not heard yet."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._calls: deque[_Call] = deque()
        self._is_open = True
        self._guard = Lock()  # of those who call
        self._bell = WakeupPipe()
        os.set_blocking(self._bell.descriptor, False)
        loop.add_reader(self._bell.descriptor, self._hear)

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> bool:
        """Have a function called; False when the way is closed."""
        with self._guard:
            if self._is_open:
                self._calls.append((function, arguments))
                if len(self._calls) == 1:
                    self._bell.ring()
            return self._is_open

    def end(self, loop: AbstractEventLoop) -> None:
        """In the loop: let go, and do what is left."""
        loop.remove_reader(self._bell.descriptor)
        self.close()
        self._take()

    def _hear(self) -> None:
        """In the loop, when it was rung."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell.descriptor, _HEARD_BYTES_MAX)
        self._take()

    def _take(self) -> None:
        """Do what was called for. No more comes meanwhile than there are callers, who all wait for this."""
        calls = self._calls
        while calls:
            function, arguments = calls.popleft()
            try:
                function(*arguments)
            except Exception as error:  # noqa: BLE001 - the others hear theirs
                get_running_loop().call_exception_handler({"message": "an answer was not taken", "exception": error})

    def close(self) -> None:
        """Nobody comes here any more."""
        with self._guard:
            self._is_open = False
            self._bell.close()


def _way(loop: AbstractEventLoop) -> _Way | None:
    """Into a loop; None if it cannot look after descriptors."""
    try:
        return _Way(loop)
    except NotImplementedError:
        return None
