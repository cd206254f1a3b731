"""Which process of the pool runs which attempt, so that one can be ended without the others.

    process:  connects, gives the attempt's number      loop:  `+` go on, or `-` nobody waits for it any more
              runs it, and closes the connection               knows the process until then; a kill closes it, too

Rule 1: an attempt begins in a process only after the loop has said so. One that was given up while it waited for a
process, or whose process was killed and which the pool gives to another, ends before it has begun.
Rule 2: whoever kills a process looks first whether it has let go: it may be at somebody else's attempt by now. Killed
all the same, that one is run again under its key, as after any other death.
Rule 3: the address is a name that nobody can guess, and only processes of the pool are ever killed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

BACKLOG = 64
"""Processes that wait to be heard at once: more than a pool has."""

_GO, _STOP = b"+", b"-"
_NUMBER = struct.Struct("!Q")
_CREDENTIALS = struct.Struct("3i")
_NUMBERS = count()


class AttemptConnection:
    """A process at an attempt, until it lets go or is dead."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        options = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid: int = _CREDENTIALS.unpack(options)[0]
        self.number: int | None = None
        self.gone = asyncio.Event()

    @property
    def lasts(self) -> bool:
        """Whether the process is at it still, as far as anybody can tell from here."""
        if self.gone.is_set():
            return False
        try:
            return self.connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


class RunningAttempts:
    """Knows the processes of a pool by their attempts, in the running event loop."""

    def __init__(self, token: str) -> None:
        self.address = f"\0interlock-holds-{os.getpid()}-{next(_NUMBERS)}-{token}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self.address)
        self._socket.listen(BACKLOG)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._accept)
        self._wanted: set[int] = set()
        self._holds: set[AttemptConnection] = set()

    @contextmanager
    def wanted(self, number: int) -> Iterator[None]:
        """An attempt that processes may begin, while this lasts."""
        self._wanted.add(number)
        try:
            yield
        finally:
            self._wanted.discard(number)

    def give_up(self, number: int) -> AttemptConnection | None:
        """No process may begin it from now on; gives the one that is at it."""
        self._wanted.discard(number)
        return next((each for each in self._holds if each.number == number and each.lasts), None)

    def close(self) -> None:
        """Know nothing more."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for hold in tuple(self._holds):
            self._let_go(hold)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:  # it is gone already
            return
        connection.setblocking(False)
        hold = AttemptConnection(connection)
        self._holds.add(hold)
        self._loop.add_reader(connection, self._hear, hold)

    def _hear(self, hold: AttemptConnection) -> None:
        told = b""
        with suppress(OSError):
            told = hold.connection.recv(_NUMBER.size)
        if hold.number is not None or len(told) != _NUMBER.size:
            self._let_go(hold)
            return
        (hold.number,) = _NUMBER.unpack(told)
        with suppress(OSError):  # it is dead: that is heard next
            hold.connection.send(_GO if hold.number in self._wanted else _STOP)

    def _let_go(self, hold: AttemptConnection) -> None:
        self._loop.remove_reader(hold.connection)
        hold.connection.close()
        self._holds.discard(hold)
        hold.gone.set()


@contextmanager
def attempt_connection(address: str, number: int) -> Iterator[bool]:
    """In the process of an attempt, around it: whether anybody waits for it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as own:
        answer = _STOP
        with suppress(OSError):  # whoever asked for it has ended
            own.connect(address)
            own.sendall(_NUMBER.pack(number))
            answer = own.recv(1)
        yield answer == _GO
