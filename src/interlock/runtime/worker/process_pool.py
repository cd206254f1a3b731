"""CPU handlers run in a pool of processes, so that the event loop stays responsive.

Rule 1: the pool starts with the first call of such a handler, and ends with the worker.
Rule 2: the processes import a function by its module and name, so it must be defined at the top of a module.
Rule 3: what a function raises comes back as from this process. When a process dies, its attempt runs again, under its
key.
Rule 4: heartbeats arrive from there as from here. `cancelled` is not known there.
Rule 5: when an attempt is given up (timeout, state left, worker stops) its process is killed and replaced. Processes
that the handler itself started are its own responsibility.

To kill one attempt without the others, the pool knows which process runs which attempt:

    process:  connects, sends the attempt's number      loop:  answers `+` run it, or `-` it is no longer needed
              runs it, and closes the connection               knows the process until then; a kill closes it too

Rule 6: an attempt starts in a process only after the loop has answered. An attempt that was given up while it waited
for a process, or that the pool gives to another process after a kill, ends before it starts.
Rule 7: before a process is killed, the loop checks that it still runs that attempt: it may run another one by now. If
that one is killed all the same, it runs again under its key, as after any other death.
Rule 8: the address cannot be guessed, and only processes of the pool are ever killed.
Rule 9: while a process runs an attempt it holds the lock of its worker, too (`stores.wakeup_pipes`): if the worker is
killed, its work is not released before the attempt has ended.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import count
from typing import Any

from interlock.effects.handler_calls import call_plain
from interlock.effects.handlers import Attempt, handler_result
from interlock.effects.retry import Failure, HandlerFailed, failure_from
from interlock.effects.user_functions import as_exception
from interlock.errors import UsageError
from interlock.model.limits import DETAILS_BYTES_MAX, PAYLOAD_BYTES_MAX, STOP_MS_MAX
from interlock.runtime.worker.process_heartbeats import HeartbeatListener, heartbeat_sender
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.pool.pool import TaskPool
from interlock.stores.wakeup_pipes import hold_worker_lock

PROCESSES_MAX = 8
"""Processes of one runtime for CPU handlers: as many as there are processors, and no more than this."""

TASKS_MAX = 16
"""Attempts in the pool at the same time: enough to keep every process busy; the others wait."""

REGION_BYTES = 67_108_864
"""Room for the largest inputs and results of as many tasks in all processes; memory is used only where touched."""

BACKLOG = 64
"""Processes that may wait to be accepted at the same time: more than a pool has."""

_ENVELOPE_BYTES = 4_096 + DETAILS_BYTES_MAX
"""Room around an input or a result: names, key, an error's message, and the details of an earlier attempt."""

_GO, _STOP = b"+", b"-"
_NUMBER = struct.Struct("!Q")
_CREDENTIALS = struct.Struct("3i")
_NUMBERS = count()


class ProcessPool:
    """Runs functions in worker processes."""

    def __init__(self, token: str = "") -> None:
        self._token = token
        self.held_file: str | None = None
        self._heartbeats: HeartbeatListener | None = None
        self._attempts: RunningAttempts | None = None
        self._pool: TaskPool | None = None
        self._region: MemoryRegion | None = None
        self._starting: asyncio.Task[TaskPool] | None = None

    async def run(self, function: Callable[[Attempt], Any], attempt: Attempt) -> Any:
        """Return what the function returns for an attempt. Raises what it raised, as far as that is known here.

        When it is cancelled, the process of the attempt is killed; it has ended when this has.
        """
        pool = await self._start_once()
        heartbeats, attempts = self._heartbeats, self._attempts
        assert heartbeats is not None  # both start with the pool
        assert attempts is not None
        with heartbeats.listen(attempt.on_heartbeat) as number, attempts.expect(number):
            task = {
                "function": address_of(function),
                "attempt": [attempt.entity, attempt.name, attempt.input, attempt.key, attempt.number],
                "timeout_ms": attempt.timeout_ms,
                "trace": attempt.trace,
                "details": attempt.details,
                "heartbeats": [heartbeats.address, number],
                "connection": [attempts.address, number],
                "held_file": self.held_file,
            }
            try:
                answer = await pool.run(task)
            except asyncio.CancelledError:
                await self._kill(pool, attempts, number)
                raise
        if "failed" in answer:
            raise HandlerFailed(Failure(*answer["failed"]))
        return answer["value"]

    async def _kill(self, pool: TaskPool, attempts: RunningAttempts, number: int) -> None:
        """Kill the process that runs an attempt, if there is one; the pool starts another."""
        connection = attempts.give_up(number)
        process = None if connection is None else pool.pids.get(connection.pid)
        if connection is None or process is None:
            return
        with suppress(ValueError):  # it has ended just now
            process.kill()
        with suppress(TimeoutError):  # a process that it started may hold the connection too
            async with asyncio.timeout(STOP_MS_MAX / 1000):
                await connection.closed.wait()

    async def _start_once(self) -> TaskPool:
        """Return the pool; a caller that is cancelled while it starts leaves it to the others."""
        if self._starting is None or (self._starting.done() and self._pool is None):
            self._starting = asyncio.ensure_future(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> TaskPool:
        workers = min(PROCESSES_MAX, os.cpu_count() or 1)
        size = PAYLOAD_BYTES_MAX + _ENVELOPE_BYTES
        region = MemoryRegion.create(slots=workers + 2, areas_bytes=REGION_BYTES)
        try:
            pool = TaskPool(
                region, perform, workers=workers, tasks_max=TASKS_MAX, payload_bytes_max=size, result_bytes_max=size
            )
            try:
                await pool.start()
            except BaseException:
                await pool.close()
                raise
        except BaseException:
            region.close()
            raise
        self._heartbeats, self._attempts = HeartbeatListener(self._token), RunningAttempts(self._token)
        self._region, self._pool = region, pool
        return pool

    async def close(self) -> None:
        """End the processes. What they still run is requeued afterwards."""
        if self._starting is not None:
            await asyncio.wait({self._starting})
        if self._pool is not None:
            await self._pool.close()
            self._pool = None
        if self._heartbeats is not None:
            self._heartbeats.close()
            self._heartbeats = None
        if self._attempts is not None:
            self._attempts.close()
            self._attempts = None
        if self._region is not None:
            self._region.close()
            self._region = None


# In the event loop


class AttemptConnection:
    """The connection of a process that runs an attempt. It closes when the process ends the attempt or dies."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        options = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid: int = _CREDENTIALS.unpack(options)[0]
        self.number: int | None = None
        self.closed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether the process still runs the attempt, as far as this process knows."""
        if self.closed.is_set():
            return False
        try:
            return self.connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


class RunningAttempts:
    """The processes of a pool by their attempts, in the running event loop."""

    def __init__(self, token: str) -> None:
        self.address = f"\0interlock-holds-{os.getpid()}-{next(_NUMBERS)}-{token}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self.address)
        self._socket.listen(BACKLOG)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._accept)
        self._expected: set[int] = set()
        self._connections: set[AttemptConnection] = set()

    @contextmanager
    def expect(self, number: int) -> Iterator[None]:
        """Within this, processes may start the attempt."""
        self._expected.add(number)
        try:
            yield
        finally:
            self._expected.discard(number)

    def give_up(self, number: int) -> AttemptConnection | None:
        """Let no process start the attempt from now on; return the connection of the one that runs it."""
        self._expected.discard(number)
        return next((each for each in self._connections if each.number == number and each.is_open), None)

    def close(self) -> None:
        """Close all connections."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for connection in tuple(self._connections):
            self._remove(connection)

    def _accept(self) -> None:
        try:
            peer, _ = self._socket.accept()
        except OSError:  # it has already ended
            return
        peer.setblocking(False)
        connection = AttemptConnection(peer)
        self._connections.add(connection)
        self._loop.add_reader(peer, self._receive, connection)

    def _receive(self, connection: AttemptConnection) -> None:
        received = b""
        with suppress(OSError):
            received = connection.connection.recv(_NUMBER.size)
        if connection.number is not None or len(received) != _NUMBER.size:
            self._remove(connection)
            return
        (connection.number,) = _NUMBER.unpack(received)
        with suppress(OSError):  # it is dead; the next read shows that
            connection.connection.send(_GO if connection.number in self._expected else _STOP)

    def _remove(self, connection: AttemptConnection) -> None:
        self._loop.remove_reader(connection.connection)
        connection.connection.close()
        self._connections.discard(connection)
        connection.closed.set()


# In a process of the pool


@contextmanager
def attempt_connection(address: str, number: int) -> Iterator[bool]:
    """Connect to the loop for the duration of an attempt; yield whether the attempt is still needed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as own:
        answer = _STOP
        with suppress(OSError):  # the process of the loop has ended
            own.connect(address)
            own.sendall(_NUMBER.pack(number))
            answer = own.recv(1)
        yield answer == _GO


def address_of(function: Callable[..., Any]) -> str:
    """Return `module:name` of a function that another process can import. Raises UsageError for any other."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not name or not all(part.isidentifier() for part in name.split(".")):
        hint = "move it to the top of a module that can be imported"
        raise UsageError(f"another process cannot import {function!r:.120}", code="handler.cpu", hint=hint)
    return f"{module}:{name}"


def perform(task: dict[str, Any]) -> dict[str, Any]:
    """Run one attempt in a process of the pool, unless it is no longer needed."""
    with hold_worker_lock(task["held_file"]), attempt_connection(*task["connection"]) as is_needed:
        return _perform(task) if is_needed else {"failed": ["called_off", "the attempt was given up", "no"]}


def _perform(task: dict[str, Any]) -> dict[str, Any]:
    module, _, name = task["function"].partition(":")
    function: Any = import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    entity, handler, given, key, number = task["attempt"]
    try:
        with heartbeat_sender(*task["heartbeats"]) as send:
            timeout_ms, details = task["timeout_ms"], task["details"]
            attempt = Attempt(
                entity, handler, given, key, number, timeout_ms, asyncio.Event(), details, send, task["trace"]
            )
            value = call_plain(function, attempt)
    except BaseException as error:  # noqa: BLE001 - whatever it raises is its result
        failure = failure_from(as_exception(error))
        pause = [failure.pause_ms, failure.pause_until_ms]
        return {"failed": [failure.code, failure.message, failure.done, *pause]}
    stored = handler_result(handler, value)
    return {"failed": [stored.code, stored.message, "unknown"]} if isinstance(stored, Failure) else {"value": stored}
