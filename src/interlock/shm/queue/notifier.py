"""Doorbells: how a producer in one process wakes the event loop of another, without anybody polling.

Rule 1: ringing never waits: a bell that is full has been rung already, a bell without a listener is nobody's loss,
because a new consumer looks before it sleeps.
Rule 2: a bell says "look", never what or how much; the consumer clears it first and looks after.
Rule 3: the listener is a descriptor that turns readable, so any event loop or `poll` can wait for it.

`EventNotifier` is an eventfd: for families of processes that inherit or send descriptors. `SocketNotifier` is a
datagram
socket beside a named region: for processes that attach by name. `WaiterNotifier` is a word in the region and a thread
in
the consumer: for systems that have neither.
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
"""The `eventfd` of a bell that has none, or has none any more."""


class Notifier(Protocol):
    """A bell: producers ring, one consumer listens."""

    @property
    def eventfd(self) -> int:
        """What whoever has just published may write to instead of calling `ring`; NO_EVENTFD: call it."""

    def ring(self) -> None:
        """Wake the listener. Never waits, never fails because nobody listens."""

    def listen(self) -> int:
        """Become the listener: a descriptor that is readable once rung. Called with the consumer's lock held."""

    def clear(self) -> None:
        """Take back every ring so far; the listener looks afterwards."""

    def close(self) -> None:
        """Let go of descriptors, sockets and threads."""


class EventNotifier:
    """An eventfd, shared by inheritance or by sending its descriptor (`socket.send_fds`)."""

    kind = 1

    def __init__(self, descriptor: int | None = None) -> None:
        """A new bell, or the bell behind a descriptor, which stays the caller's."""
        if not hasattr(os, "eventfd"):
            raise UnavailableError(
                "this system has no eventfd", code="bell.eventfd", hint="name the region, or doorbell='waiter'"
            )
        if descriptor is None:
            self.eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return
        try:
            what = Path(f"/proc/self/fd/{descriptor}").readlink()
        except OSError:
            what = Path()
        if "eventfd" not in str(what):
            raise UsageError(
                f"descriptor {descriptor} is no eventfd", code="bell.descriptor", hint="pass `EventNotifier.fd`"
            )
        self.eventfd = os.dup(descriptor)
        os.set_blocking(self.eventfd, False)

    @property
    def fd(self) -> int:
        """The descriptor, for `pass_fds` or `send_fds`; the other side gives it to `EventNotifier`."""
        return self._opened()

    def ring(self) -> None:
        try:  # not `suppress`, and nobody asked first: between a push and its message every line counts
            os.eventfd_write(self.eventfd, 1)
        except BlockingIOError:
            return  # the counter is full: it has been rung
        except (OSError, ValueError):
            self._opened()
            raise

    def listen(self) -> int:
        return self._opened()

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._opened())

    def close(self) -> None:
        descriptor, self.eventfd = self.eventfd, NO_EVENTFD
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if hasattr(self, "eventfd"):
            self.close()

    def _opened(self) -> int:
        if self.eventfd < 0:
            raise UsageError("the doorbell is closed", code="bell.closed", hint="open the inbox again")
        return self.eventfd


class SocketNotifier:
    """A datagram socket in the private directory of the regions. The consumer binds it; producers know its name."""

    kind = 2
    eventfd = NO_EVENTFD

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Through the descriptor, because the address of a socket has room for 107 bytes only.
        self._address = f"/proc/self/fd/{self._folder}/{name}"
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._listener: socket.socket | None = None
        after_fork(self, SocketNotifier._forget)

    def ring(self) -> None:
        try:
            self._sender.sendto(b"\0", self._address)
        except (BlockingIOError, FileNotFoundError, ConnectionRefusedError):
            return  # full: it has been rung; no listener: the next one looks before it sleeps
        except OSError as error:
            if self._folder < 0:
                raise UsageError("the doorbell is closed", code="bell.closed", hint="open the inbox again") from None
            raise UnavailableError(f"the doorbell cannot be rung: {error.strerror}", code="bell.socket") from error

    def listen(self) -> int:
        if self._listener is None:
            with suppress(FileNotFoundError):
                Path(self._address).unlink()  # of a consumer that was killed: we hold its lock
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            try:
                listener.bind(self._address)
            except OSError as error:
                listener.close()
                raise UnavailableError(f"no doorbell: {error.strerror}", code="bell.socket") from error
            self._listener = listener
        return self._listener.fileno()

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while self._listener is not None:  # ends: one datagram each, and ringers see our asleep word at 0
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

    def _forget(self) -> None:
        # The parent listens; a child that kept the socket would hear its rings, and take its name away at the end.
        if self._listener is not None:
            self._listener.close()
            self._listener = None


class WaiterNotifier:
    """A word in the region; the consumer's side is a thread that sleeps on it and passes every ring on to a pipe."""

    kind = 3
    eventfd = NO_EVENTFD

    def __init__(self, words: Words, rings: int) -> None:
        self._words = words
        self._rings = rings
        self._pipe: tuple[int, int] | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        after_fork(self, WaiterNotifier._forget)

    def ring(self) -> None:
        self._words.add(self._rings, 1)
        self._words.wake(self._rings)

    def listen(self) -> int:
        if self._pipe is None:
            self._pipe = reader, writer = os.pipe()
            for descriptor in self._pipe:
                os.set_blocking(descriptor, False)
            self._ended = threading.Event()
            thread = threading.Thread(
                target=_pass_on,
                args=(self._words, self._rings, self._words.load(self._rings), writer, self._ended),
                name="interlock-doorbell",
                daemon=True,
            )
            try:
                start_thread(thread)
            except UnavailableError:
                self._forget()
                raise
            self._thread = thread
            return reader
        return self._pipe[0]

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while self._pipe is not None and os.read(self._pipe[0], 4096):
                pass

    def close(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is None:
            return
        self._ended.set()
        self._words.wake(self._rings)
        if self._thread is not None:
            self._thread.join()  # bounded: it sleeps a quarter of a second at most
        for descriptor in pipe:
            os.close(descriptor)

    def _forget(self) -> None:
        # The thread is the parent's; the child has copies of the pipe, which must not keep it open.
        pipe, self._pipe, self._thread = self._pipe, None, None
        for descriptor in pipe or ():
            os.close(descriptor)


def _pass_on(words: Words, rings: int, seen: int, writer: int, ended: threading.Event) -> None:
    """What the thread does: wait for the word to change, tell the pipe. A full pipe has been told."""
    while not ended.is_set():
        now = words.load(rings)
        if now == seen:
            words.wait(rings, seen & 0xFFFFFFFF, WAIT_SECONDS_MAX)
            continue
        seen = now
        with suppress(BlockingIOError):
            os.write(writer, b"\0")
