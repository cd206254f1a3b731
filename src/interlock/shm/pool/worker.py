"""A worker of a pool: takes tasks, its own or others', runs the handler, writes the result, rings the owner.

Rule 1: a worker that has nothing to do sleeps on a word in the region, at most a quarter of a second at a time, and
reaps dead seats when it wakes for nothing.
Rule 2: an exception of the handler is a result, whichever it is: `SystemExit` ends no worker. Whatever ends the process
is not: its task is listed again.
Rule 3: the worker ends when the lifecycle is closed and nothing waits, or when its owner is dead
or another has taken its place.
Rule 4: an interrupt from the keyboard is for the owner, who drains; workers ignore it.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import reduction
from time import monotonic
from typing import Any, Protocol

from interlock.errors import InternalError, UnavailableError, UsageError
from interlock.shm.memory.permits import Phase
from interlock.shm.memory.region import STATE, MemoryRegion
from interlock.shm.memory.words import WAIT_SECONDS_MAX
from interlock.shm.pool.layout import AGAIN, ASLEEP, DONE, FAILED, TERM, TOO_LARGE, Shape
from interlock.shm.pool.member import PoolMember, decode_value, encode_error, encode_value
from interlock.shm.queue.notifier import EventNotifier
from interlock.shm.queue.ring import LINE

Handler = Callable[[Any], object]

OWNER = 0
"""The seat of the process that made the pool."""

_log = logging.getLogger("interlock.shm.pool.pool")
_current: Worker | None = None


def spawn(payload: object, *, priority: int = 0) -> bool:
    """Inside a handler: submit another task of the same pool, which nobody awaits; False when there is no room.

    It goes to this worker's own deque, from which idle workers steal. Raises UsageError outside of a handler.
    """
    if _current is None:
        raise UsageError("only a handler of a pool can spawn", code="pool.not_inside", hint="use TaskPool.submit")
    return _current.spawn(payload, priority)


class Inherited:
    """A descriptor on its way to a child that is being spawned."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[[_Carrier], Inherited], tuple[object]]:
        return _arrived, (reduction.DupFd(self.descriptor),)


class _Carrier(Protocol):
    """What multiprocessing makes of a descriptor for a child."""

    def detach(self) -> int:
        """The descriptor's number in the child."""


def _arrived(carrier: _Carrier) -> Inherited:
    return Inherited(carrier.detach())


def checked_handler(handler: str | Handler) -> str | Handler:
    """The handler, if a worker will be able to find it. Raises UsageError otherwise."""
    function = resolved_handler(handler) if isinstance(handler, str) else handler
    if not callable(function):
        raise UsageError(f"{handler!r} is not callable", code="pool.handler", hint="a function, or `module:function`")
    if inspect.iscoroutinefunction(function):
        raise UsageError(
            f"{handler!r} is a coroutine function", code="pool.handler", hint="a pool is for work that blocks"
        )
    if not isinstance(handler, str):
        try:
            reduction.ForkingPickler.dumps(handler)
        except Exception as error:  # noqa: BLE001  # the function's own module may refuse in any way
            raise UsageError(
                f"{handler!r} cannot be sent to a worker: {error}",
                code="pool.handler",
                hint="a function at the top of a module, or its name as `module:function`",
            ) from None
    return handler


def resolved_handler(name: str) -> Handler:
    """The function of `module:function`. Raises UsageError when there is none."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise UsageError(f"`{name}` names no function", code="pool.handler", hint="`module:function`")
    try:
        found: object = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"`{name}` is not there: {error}", code="pool.handler", hint="`module:function`") from None
    if not callable(found):
        raise UsageError(f"`{name}` is not callable", code="pool.handler", hint="`module:function`")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLocation:
    """Where a worker works: the pool's area in the region, its sizes, and the term of the owner it works for."""

    offset: int
    shape: Shape
    term: int


def main(region: Inherited, bell: Inherited, place: PoolLocation, handler: str | Handler) -> None:
    """What a worker's process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = Worker(MemoryRegion.from_fd(region.descriptor), EventNotifier(bell.descriptor), place, handler)
    for inherited in (region, bell):
        os.close(inherited.descriptor)
    global _current  # noqa: PLW0603  # handlers are plain functions: this is how they find their worker
    _current = worker
    worker.run()


class Worker:
    """A seat and a handler."""

    def __init__(self, region: MemoryRegion, bell: EventNotifier, place: PoolLocation, handler: str | Handler) -> None:
        self._handler = resolved_handler(handler) if isinstance(handler, str) else handler
        self._region, self._words, self._bell = region, region.words, bell
        self._place, self._shape = place, place.shape
        self._rings = place.offset + self._shape.rings_at
        self._owner = place.offset + self._shape.seats_at + OWNER * LINE
        self._seat = self._take_seat()
        self._slab = self._seat.slab
        self._mutex = threading.Lock()  # a handler's threads may spawn
        self._tended = monotonic()

    def run(self) -> None:
        """Work until the pool has ended."""
        try:
            while True:  # until the pool has ended
                if not self._work():
                    if self._words.load(STATE) >> 32 == Phase.CLOSED:
                        break
                    self._sleep()
                if monotonic() - self._tended > WAIT_SECONDS_MAX:
                    if not self._owned(self._seat):
                        break
                    self._tend()
        finally:
            self._seat.leave()

    def spawn(self, payload: object, priority: int) -> bool:
        """See the function."""
        if type(priority) is not int or not 0 <= priority < self._shape.priorities:
            raise UsageError(
                f"priority={priority!r} cannot be", code="pool.priority", hint=f"0 to {self._shape.priorities - 1}"
            )
        data = encode_value(payload)
        with self._mutex:
            task = self._slab.submit(data, priority, True)
        if task == TOO_LARGE:
            raise UsageError(
                f"{len(data)} bytes are too large for this pool",
                code="pool.payload_bytes",
                hint=f"at most {self._shape.payload_max - 1}",
            )
        if task:
            self._slab.ring()
        return bool(task)

    def _take_seat(self) -> PoolMember:
        """A free seat. Those of a former owner's workers come free as these notice its death, task by task."""
        seats = range(OWNER + 1, self._shape.seats)
        while (seat := PoolMember.take(self._region, self._place.offset, self._shape, seats)) is None:
            if self._words.load(self._owner + TERM) != self._place.term:
                raise UnavailableError("the owner of the pool has ended", code="pool.owner", hint="start it again")
            self._words.wait(self._rings, self._words.load(self._rings) & 0xFFFFFFFF, 0.02)
        return seat

    def _owned(self, seat: PoolMember) -> bool:
        """Whether the owner that started this worker lives, and is still the owner."""
        return self._words.load(self._owner + TERM) == self._place.term and seat.alive(OWNER)

    def _work(self) -> bool:
        """Run the tasks that are there; False when there was none."""
        with self._mutex:
            task = self._slab.take()
        if task <= 0:
            return task == AGAIN
        state, data = self._result(task)
        with self._mutex:
            answer = self._slab.finish(task, state, data)
            if answer == TOO_LARGE:
                answer = self._slab.finish(task, FAILED, self._too_large(len(data)))
        if answer != 1:
            raise InternalError(f"task {task:x} was not ours to end; please report it")
        if self._words.load(self._owner + ASLEEP):
            self._bell.ring()
        return True

    def _result(self, task: int) -> tuple[int, bytes]:
        payload = self._slab.payload(task)
        try:
            return DONE, encode_value(self._handler(decode_value(payload or b"")))
        except BaseException as error:  # noqa: BLE001  # told to whoever awaits the task
            if self._slab.detached(task):
                _log.exception("a spawned task failed, and nobody awaits it")
            return FAILED, encode_error(error, self._shape.result_max)

    def _too_large(self, size: int) -> bytes:
        error = UsageError(
            f"the result has {size} bytes",
            code="pool.result_bytes",
            hint=f"at most {self._shape.result_max - 1}; put large results into a store and return their name",
        )
        return encode_error(error, self._shape.result_max)

    def _sleep(self) -> None:
        seen = self._words.load(self._rings) & 0xFFFFFFFF
        self._words.store(self._seat.asleep, 1)
        if not self._slab.waiting() and self._words.load(STATE) >> 32 != Phase.CLOSED:
            self._words.wait(self._rings, seen, WAIT_SECONDS_MAX)
        self._words.store(self._seat.asleep, 0)

    def _tend(self) -> None:
        with self._mutex:
            if not self._seat.settled:
                self._seat.settle()
            listed, given_up = self._seat.reap_dead()
        if listed:
            self._slab.ring()
        if given_up:
            self._bell.ring()
        self._tended = monotonic()
