"""Notifiers: how a producer in one process wakes the event loop of another, without polling.

Rule 1: notifying never blocks. A full notifier was notified already; one without a listener loses nothing, because a
new consumer checks before it sleeps.
Rule 2: a notification only says "check". The consumer clears it first and checks after that.
Rule 3: the listener is a descriptor that becomes readable, so any event loop or `poll` can wait for it.

`EventNotifier` is an eventfd, for related processes that inherit or send descriptors. `SocketNotifier` is a datagram
socket next to a named region, for processes that attach by name. `WaiterNotifier` is a word in the region and a thread
in the consumer, for systems that have neither.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from interlock.errors import UnavailableError, UsageError
from interlock.ports.fork import after_fork
from interlock.ports.threads import start_thread
from interlock.shm.memory.words import WAIT_SECONDS_MAX, Words

NO_EVENTFD = -1
"""The `eventfd` of a notifier that has none or is closed."""


class Notifier(Protocol):
    """Producers notify, one consumer listens."""

    @property
    def eventfd(self) -> int:
        """A producer may write to this descriptor instead of calling `notify`, unless it is NO_EVENTFD."""

    def notify(self) -> None:
        """Wake the listener. Never blocks, and does not fail if there is no listener."""

    def listen(self) -> int:
        """Become the listener. Returns a descriptor that is readable after `notify`. The caller is the consumer."""

    def clear(self) -> None:
        """Discard all notifications so far. The listener checks after that."""

    def close(self) -> None:
        """Close descriptors and sockets, and end the thread."""


class EventNotifier:
    """An eventfd, shared by inheritance or by sending its descriptor (`socket.send_fds`)."""

    kind = 1

    def __init__(self, descriptor: int | None = None) -> None:
        """Create a notifier, or open the one behind a descriptor, which the caller still owns."""
        if not hasattr(os, "eventfd"):
            raise UnavailableError(
                "this system has no eventfd", code="bell.eventfd", hint="name the region, or use notifier='waiter'"
            )
        if descriptor is None:
            self.eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return
        try:
            target = Path(f"/proc/self/fd/{descriptor}").readlink()
        except OSError:
            target = Path()
        if "eventfd" not in str(target):
            raise UsageError(
                f"descriptor {descriptor} is not an eventfd", code="bell.descriptor", hint="pass `EventNotifier.fd`"
            )
        self.eventfd = os.dup(descriptor)
        os.set_blocking(self.eventfd, False)

    @property
    def fd(self) -> int:
        """The descriptor, for `pass_fds` or `send_fds`; the other process passes it to `EventNotifier`."""
        return self._require_open()

    def notify(self) -> None:
        try:  # no `suppress` and no check before: this is on the path from a push to its message
            os.eventfd_write(self.eventfd, 1)
        except BlockingIOError:
            return  # the counter is full: it was notified already
        except (OSError, ValueError):
            self._require_open()
            raise

    def listen(self) -> int:
        return self._require_open()

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._require_open())

    def close(self) -> None:
        descriptor, self.eventfd = self.eventfd, NO_EVENTFD
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if hasattr(self, "eventfd"):
            self.close()

    def _require_open(self) -> int:
        if self.eventfd < 0:
            raise _closed_error()
        return self.eventfd


class SocketNotifier:
    """A datagram socket in the private directory of the regions. The consumer binds it; producers know its name."""

    kind = 2
    eventfd = NO_EVENTFD

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Through the descriptor, because the address of a socket is limited to 107 bytes.
        self._address = f"/proc/self/fd/{self._folder}/{name}"
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._listener: socket.socket | None = None
        after_fork(self, SocketNotifier._reset_after_fork)

    def notify(self) -> None:
        try:
            self._sender.sendto(b"\0", self._address)
        except (BlockingIOError, FileNotFoundError, ConnectionRefusedError):
            return  # full: it was notified already; no listener: the next one checks before it sleeps
        except OSError as error:
            if self._folder < 0:
                raise _closed_error() from None
            raise UnavailableError(f"cannot notify the consumer: {error.strerror}", code="bell.socket") from error

    def listen(self) -> int:
        if self._listener is None:
            with suppress(FileNotFoundError):
                Path(self._address).unlink()  # of a consumer that was killed: this process holds its lock now
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            try:
                listener.bind(self._address)
            except OSError as error:
                listener.close()
                raise UnavailableError(f"cannot bind the notifier: {error.strerror}", code="bell.socket") from error
            self._listener = listener
        return self._listener.fileno()

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while self._listener is not None:  # ends: producers send only while the asleep word is 1
                self._listener.recv(16)

    def close(self) -> None:
        if self._listener is not None:
            with suppress(FileNotFoundError):
                Path(self._address).unlink()
            self._listener.close()
            self._listener = None
        self._sender.close()
        folder, self._folder = self._folder, -1
        if folder >= 0:
            os.close(folder)

    def __del__(self) -> None:
        if hasattr(self, "_listener"):
            self.close()

    def _reset_after_fork(self) -> None:
        # The parent listens. A child that kept the socket would receive its notifications, and unlink its name later.
        if self._listener is not None:
            self._listener.close()
            self._listener = None


class WaiterNotifier:
    """A word in the region. In the consumer a thread sleeps on it and passes every notification to a pipe."""

    kind = 3
    eventfd = NO_EVENTFD

    def __init__(self, words: Words, word: int) -> None:
        self._words = words
        self._word = word
        self._pipe: tuple[int, int] | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        after_fork(self, WaiterNotifier._close_pipe)

    def notify(self) -> None:
        self._words.add(self._word, 1)
        self._words.wake(self._word)

    def listen(self) -> int:
        if self._pipe is None:
            self._pipe = reader, writer = os.pipe()
            for descriptor in self._pipe:
                os.set_blocking(descriptor, False)
            self._stopped = threading.Event()
            thread = threading.Thread(
                target=_forward,
                args=(self._words, self._word, self._words.load(self._word), writer, self._stopped),
                name="interlock-notifier",
                daemon=True,
            )
            try:
                start_thread(thread)
            except UnavailableError:
                self._close_pipe()
                raise
            self._thread = thread
            return reader
        return self._pipe[0]

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while self._pipe is not None and os.read(self._pipe[0], 4096):
                pass

    def close(self) -> None:
        if self._pipe is None:
            return
        self._stopped.set()
        self._words.wake(self._word)
        if self._thread is not None:
            self._thread.join()  # bounded: it sleeps a quarter of a second at most
        self._close_pipe()

    def _close_pipe(self) -> None:
        # Also in a forked child: the thread is the parent's, and the child's copies must not keep the pipe open.
        pipe, self._pipe, self._thread = self._pipe, None, None
        for descriptor in pipe or ():
            os.close(descriptor)


def _forward(words: Words, word: int, seen: int, writer: int, stopped: threading.Event) -> None:
    """Wait until the word changes, then write to the pipe. A full pipe was written to already."""
    while not stopped.is_set():
        now = words.load(word)
        if now == seen:
            words.wait(word, seen & 0xFFFFFFFF, WAIT_SECONDS_MAX)
            continue
        seen = now
        with suppress(BlockingIOError):
            os.write(writer, b"\0")


def _closed_error() -> UsageError:
    return UsageError("the notifier is closed", code="bell.closed", hint="open the inbox again")
