"""Heartbeats from other processes: each is one datagram, heard in the event loop.

Rule 1: a lost datagram costs one sign of life and nothing else; a process never waits long for somebody to listen.
Rule 2: what was told before an attempt ended has been heard when its end is known.
Rule 3: the address is a name that nobody can guess; what comes from elsewhere all the same is dropped unread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import msgspec

from interlock.model.codec import encode
from interlock.model.json_value import payload_refusal
from interlock.model.limits import DETAILS_BYTES_MAX

SEND_SECONDS = 0.1
"""How long a process waits for room to tell something: the loop that hears it is busy, and the next one will do."""

HEARD_MAX = 64
"""Datagrams heard in one turn of the loop, so that a handler that tells much does not hold up the others."""

ROUNDS_MAX = 16
"""Turns in which the end of an attempt hears what was told before: more than a socket can hold, whoever tells more."""

_ENVELOPE_BYTES = 64
_NUMBERS = count()

_log = logging.getLogger("interlock.effects")


class HeartbeatListener:
    """Hears the heartbeats of attempts in other processes, in the running event loop."""

    def __init__(self, token: str) -> None:
        self.address = f"\0interlock-beats-{os.getpid()}-{next(_NUMBERS)}-{token}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self.address)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._hear)
        self._listeners: dict[int, Callable[[Any], None]] = {}
        self._count = 0

    @contextmanager
    def heard(self, listener: Callable[[Any], None] | None) -> Iterator[int]:
        """A number under which an attempt tells; what it told until it ended is told to the listener."""
        self._count += 1
        number = self._count
        if listener is not None:
            self._listeners[number] = listener
        try:
            yield number
        finally:
            for _ in range(ROUNDS_MAX):
                if not self._hear():
                    break
            self._listeners.pop(number, None)

    def close(self) -> None:
        """Hear nothing more."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _hear(self) -> bool:
        """Tell what has come; True when there may be more."""
        for _ in range(HEARD_MAX):
            try:
                told = self._socket.recv(DETAILS_BYTES_MAX + _ENVELOPE_BYTES)
            except OSError:  # nothing more has come, or it was closed
                return False
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                number, details = msgspec.json.decode(told, type=tuple[int, Any])
                listener = self._listeners.get(number)
                if listener is not None:
                    listener(details)
        return True


@contextmanager
def heartbeat_sender(address: str, number: int) -> Iterator[Callable[[Any], None]]:
    """What tells heartbeats from the process of an attempt, while that lasts; from any of its threads."""
    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.settimeout(SEND_SECONDS)

    def tell(details: Any) -> None:
        problem = payload_refusal(details)
        told = b"null" if problem is not None else encode(details)
        if len(told) > DETAILS_BYTES_MAX:
            problem, told = f"it has {len(told):,} bytes; {DETAILS_BYTES_MAX:,} are allowed", b"null"
        if problem is not None:
            _log.warning("the details of a heartbeat cannot be kept", extra={"problem": problem})
        with suppress(OSError):  # nobody listens any more, or not now
            own.sendto(b"[%d,%s]" % (number, told), address)

    with own:
        yield tell
