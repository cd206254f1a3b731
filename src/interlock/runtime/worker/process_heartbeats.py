"""Heartbeats from other processes: each is one datagram, received in the event loop.

Rule 1: a lost datagram costs one heartbeat only. A process never waits long for the receiver.
Rule 2: heartbeats that were sent before an attempt ended are received before its end is reported.
Rule 3: the address cannot be guessed. Datagrams from other senders are dropped.
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

from interlock.errors import UsageError
from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.encoding.json_value import json_payload
from interlock.model.limits import DETAILS_BYTES_MAX

SEND_SECONDS = 0.1
"""How long a process waits for room to send a heartbeat: the receiver is busy, and the next heartbeat will do."""

RECEIVED_MAX = 64
"""Datagrams received in one turn of the loop, so that one busy handler does not block the others."""

ROUNDS_MAX = 16
"""Turns at the end of an attempt in which earlier heartbeats are received: more than a socket buffers."""

_ENVELOPE_BYTES = 64
_NUMBERS = count()

_log = logging.getLogger("interlock.effects")


class HeartbeatListener:
    """Receives the heartbeats of attempts in other processes, in the running event loop."""

    def __init__(self, token: str) -> None:
        self.address = f"\0interlock-beats-{os.getpid()}-{next(_NUMBERS)}-{token}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self.address)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._receive)
        self._listeners: dict[int, Callable[[Any], None]] = {}
        self._count = 0

    @contextmanager
    def listen(self, listener: Callable[[Any], None] | None) -> Iterator[int]:
        """Yield a number for an attempt; the heartbeats that it sends under that number go to the listener."""
        self._count += 1
        number = self._count
        if listener is not None:
            self._listeners[number] = listener
        try:
            yield number
        finally:
            for _ in range(ROUNDS_MAX):
                if not self._receive():
                    break
            self._listeners.pop(number, None)

    def close(self) -> None:
        """Stop receiving."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _receive(self) -> bool:
        """Pass on what has arrived; whether there may be more."""
        for _ in range(RECEIVED_MAX):
            try:
                datagram = self._socket.recv(DETAILS_BYTES_MAX + _ENVELOPE_BYTES)
            except OSError:  # nothing else has arrived, or it was closed
                return False
            with suppress(*UNDECODABLE):
                number, details = msgspec.json.decode(datagram, type=tuple[int, Any])
                listener = self._listeners.get(number)
                if listener is not None:
                    listener(details)
        return True


@contextmanager
def heartbeat_sender(address: str, number: int) -> Iterator[Callable[[Any], None]]:
    """Yield a function that sends heartbeats from the process of an attempt. It may be called from any thread."""
    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.settimeout(SEND_SECONDS)

    def send(details: Any) -> None:
        problem, encoded = None, b"null"
        try:
            encoded = encode(json_payload(details, what="it", code="heartbeat.details"))
        except UsageError as error:
            problem = error.message
        if len(encoded) > DETAILS_BYTES_MAX:
            problem, encoded = f"{len(encoded):,} bytes exceed the limit of {DETAILS_BYTES_MAX:,}", b"null"
        if problem is not None:
            _log.warning("the details of a heartbeat cannot be stored", extra={"problem": problem})
        with suppress(OSError):  # the receiver has ended, or is busy
            own.sendto(b"[%d,%s]" % (number, encoded), address)

    with own:
        yield send
