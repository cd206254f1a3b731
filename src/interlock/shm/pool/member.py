"""Seats of a pool: taking one, reaping the dead ones, and what payloads and results look like between them.

Rule 1: a seat belongs to who holds its lock byte; whoever takes one reaps what the one before left, before anything
else. Any live seat may reap a dead one: it takes the byte, reaps, and lets go.
Rule 2: only the kernel says who is dead (`liveness`); a stopped process keeps its seat and its task.
Rule 3: values cross as bytes that say what they are: bytes as they are, other plain values as MessagePack, errors as
their class, message and traceback. Nothing that is read here can run code.
"""

from __future__ import annotations

import traceback
from typing import Any

import msgspec

from interlock.errors import (
    ConflictError,
    CorruptionError,
    DeniedError,
    InterlockError,
    InternalError,
    MissingExtraError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    UsageError,
)
from interlock.shm.memory.process_locks import ByteLocks
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.pool.layout import ASLEEP, TAKEN, Shape
from interlock.shm.pool.task_table import TaskTable, open_task_table
from interlock.shm.queue.ring import LINE, QUEUE_BYTES

RAW, PLAIN, ERROR = b"\0", b"\1", b"\2"
RESULT_BYTES_MIN = 1024
"""Room for an error's message, at least."""

MESSAGE_CHARACTERS_MAX = 300
_ERRORS: dict[str, type[InterlockError]] = {
    each.__name__: each
    for each in (
        ConflictError,
        CorruptionError,
        DeniedError,
        InternalError,
        MissingExtraError,
        NotFoundError,
        RejectedError,
        UnavailableError,
        UsageError,
    )
}
"""The classes that a handler's error keeps on its way back; every other becomes RejectedError."""

_DAMAGED = "a task's bytes are not what a pool writes"


class PoolMember:
    """One participant of a pool: its lock byte, its hand, its deques and its range of cells."""

    def __init__(self, region: MemoryRegion, offset: int, shape: Shape, locks: ByteLocks, number: int) -> None:
        self.number = number
        self.slab: TaskTable = open_task_table(region, offset, shape, number)
        self._words = region.words
        self._locks = locks
        self._lines = offset + shape.seats_at
        self._count = shape.seats
        self.settled = True
        self.asleep = self._lines + number * LINE + ASLEEP
        """The word that says "ring me"."""

    @classmethod
    def take(cls, region: MemoryRegion, offset: int, shape: Shape, numbers: range) -> PoolMember | None:
        """The first of these seats that nobody alive has, reaped; None when all are taken."""
        locks = region.locks()
        lines = offset + shape.seats_at
        claim = locks.claim_soon if len(numbers) == 1 else locks.claim  # another seat will do, if there is one
        for number in numbers:
            if not claim(QUEUE_BYTES + lines + number * LINE):
                continue
            seat = cls(region, offset, shape, locks, number)
            seat.settle()
            return seat
        locks.close()
        return None

    def settle(self) -> None:
        """Reap what the one before on this seat left; again between tasks until `settled`, as deques may be full."""
        line = self._lines + self.number * LINE
        if self._words.load(line + TAKEN):
            self.settled, _, _ = self.slab.reap(self.number)
        self._words.store(line + TAKEN, 1)

    def reap_dead(self) -> tuple[int, int]:
        """List again what dead seats left: how many tasks were listed, and how many were given up."""
        listed = given_up = 0
        for number in range(self._count):
            line = self._lines + number * LINE
            if number == self.number or not self._words.load(line + TAKEN) or self.alive(number):
                continue
            if not self._locks.claim(QUEUE_BYTES + line):
                continue
            try:
                if self._words.load(line + TAKEN):
                    _, found, ended = self.slab.reap(number)
                    listed, given_up = listed + found - ended, given_up + ended
            finally:
                self._locks.release(QUEUE_BYTES + line)
        return listed, given_up

    def alive(self, number: int) -> bool:
        """Whether somebody alive has that seat."""
        return number == self.number or self._locks.held(QUEUE_BYTES + self._lines + number * LINE)

    def leave(self) -> None:
        """Give the seat back. What it left is reaped by others."""
        self._locks.close()


def encode_value(value: object) -> bytes:
    """A payload or result as bytes. Raises UsageError when it is neither bytes nor plain data."""
    if isinstance(value, bytes | bytearray | memoryview):
        return RAW + bytes(value)
    try:
        return PLAIN + msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"a {type(value).__name__} cannot go to another process: {error}",
            code="pool.value",
            hint="bytes, None, numbers, strings, lists and dicts of them",
        ) from None


def decode_value(data: bytes) -> Any:
    """What `encode_value` was given; dataclasses and the like come back as dicts."""
    if data[:1] == RAW:
        return data[1:]
    if data[:1] != PLAIN:
        raise CorruptionError(_DAMAGED, code="pool.bytes", hint="something else writes into the region")
    try:
        return msgspec.msgpack.decode(data[1:])
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise CorruptionError(_DAMAGED, code="pool.bytes", hint="something else writes into the region") from None


def encode_error(error: BaseException, bytes_max: int) -> bytes:
    """An exception of a handler as bytes, with as much of its traceback as there is room for."""
    known = error if isinstance(error, InterlockError) else None
    told = {
        "class": "" if known is None else type(known).__name__,
        "message": f"{type(error).__qualname__}: {_shown(error)}" if known is None else str(known.message),
        "code": "" if known is None else known.code,
        "hint": None if known is None else known.hint,
        "trace": "".join(traceback.format_exception(error)),
    }
    # Half a character, as of a file's name that is no UTF-8, cannot be told as it is.
    told = {name: text and str(text).encode(errors="backslashreplace").decode() for name, text in told.items()}
    data = ERROR + msgspec.msgpack.encode(told)
    if len(data) > bytes_max:
        told["message"] = str(told["message"])[:MESSAGE_CHARACTERS_MAX]
        told["hint"] = str(told["hint"])[:MESSAGE_CHARACTERS_MAX] if told["hint"] else None
        room = bytes_max - len(msgspec.msgpack.encode({**told, "trace": ""})) - 16
        told["trace"] = str(told["trace"]).encode()[-max(0, room) :].decode(errors="ignore") if room > 0 else ""
        data = ERROR + msgspec.msgpack.encode(told)
    if len(data) > bytes_max:  # a message of characters that are four bytes long
        data = ERROR + msgspec.msgpack.encode({"class": "", "message": "an error too long to tell", "code": ""})
    return data


def _shown(error: BaseException) -> str:
    """What an exception says of itself; what it holds may have no text."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever its text fails by, its class is told
        return "it cannot be shown"


def decode_error(data: bytes) -> InterlockError:
    """The error of a task: the class it had if it was one of Interlock's, else RejectedError (`task.failed`)."""
    try:
        told = msgspec.msgpack.decode(data[1:], type=dict[str, str | None])
    except (msgspec.DecodeError, ValueError):
        told = {}
    if data[:1] != ERROR or not told.get("message"):
        return CorruptionError(_DAMAGED, code="pool.bytes", hint="something else writes into the region")
    message = str(told["message"])
    error = _error_class(told.get("class"))(
        message, code=told.get("code") or "task.failed", hint=told.get("hint") or None
    )
    if told.get("trace"):
        error.add_note(f"In the worker:\n{told['trace']}")
    return error


def poisoned(claims: int) -> UnavailableError:
    """The error of a task that took too many workers with it."""
    return UnavailableError(
        f"the task was given up: {claims} workers ended while they ran it",
        code="task.poisoned",
        hint="look for a crash or an out-of-memory kill in its handler; it may have run in part",
    )


def _error_class(name: str | None) -> type[InterlockError]:
    return _ERRORS.get(name or "", RejectedError)
