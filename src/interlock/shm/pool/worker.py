"""A worker of a pool: claims tasks, its own or others', runs the handler, writes the result, notifies the owner.

Rule 1: an idle worker sleeps on a word in the region, at most a quarter of a second at a time, and then recovers the
tasks of dead members.
Rule 2: every exception of the handler is a result: `SystemExit` does not end a worker. If the process ends, its task is
queued again.
Rule 3: the worker ends when the lifecycle is closed and no task is queued, or when its owner is dead or was replaced.
Rule 4: a keyboard interrupt is for the owner, which drains; workers ignore it.
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
from interlock.shm.lifecycle.permits import Phase
from interlock.shm.memory.arguments import check_int
from interlock.shm.memory.region import LINE, STATE, MemoryRegion
from interlock.shm.memory.words import WAIT_SECONDS_MAX
from interlock.shm.pool.layout import ASLEEP, DONE, FAILED, RETRY, TERM, TOO_LARGE, PoolLayout
from interlock.shm.pool.member import PoolMember
from interlock.shm.pool.values import decode_value, encode_error, encode_value
from interlock.shm.queue.notifier import EventNotifier

Handler = Callable[[Any], object]

OWNER = 0
"""The member number of the process that created the pool."""

_log = logging.getLogger("interlock.shm.pool.pool")
_current: Worker | None = None


def spawn(payload: object, *, priority: int = 0) -> bool:
    """Submit a task without a result from inside a handler, to the same pool. False if the pool is full.

    The task goes to this worker's own deque, from which idle workers steal. Raises UsageError outside of a handler.
    """
    if _current is None:
        raise UsageError("spawn was called outside of a handler", code="pool.not_inside", hint="use TaskPool.submit")
    return _current.spawn(payload, priority)


class InheritedDescriptor:
    """A descriptor that is passed to a new process."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[[_Duplicate], InheritedDescriptor], tuple[object]]:
        return _rebuild, (reduction.DupFd(self.descriptor),)


class _Duplicate(Protocol):
    """A descriptor as multiprocessing passes it to a child."""

    def detach(self) -> int:
        """Return the number of the descriptor in the child."""


def _rebuild(duplicate: _Duplicate) -> InheritedDescriptor:
    return InheritedDescriptor(duplicate.detach())


def check_handler(handler: str | Handler) -> str | Handler:
    """Return the handler if a worker can import it. Raises UsageError otherwise."""
    function = resolve_handler(handler) if isinstance(handler, str) else handler
    if not callable(function):
        raise UsageError(f"{handler!r} is not callable", code="pool.handler", hint="a function, or `module:function`")
    if inspect.iscoroutinefunction(function):
        raise UsageError(
            f"{handler!r} is a coroutine function", code="pool.handler", hint="use a function that may block"
        )
    if not isinstance(handler, str):
        try:
            reduction.ForkingPickler.dumps(handler)
        except Exception as error:  # noqa: BLE001  # pickling calls code of the function's module
            raise UsageError(
                f"cannot send {handler!r} to a worker: {error}",
                code="pool.handler",
                hint="use a function at the top level of a module, or its name as `module:function`",
            ) from None
    return handler


def resolve_handler(name: str) -> Handler:
    """Return the function of `module:function`. Raises UsageError if there is none."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise UsageError(f"invalid handler name `{name}`", code="pool.handler", hint="`module:function`")
    try:
        found: object = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot import `{name}`: {error}", code="pool.handler", hint="`module:function`") from None
    if not callable(found):
        raise UsageError(f"`{name}` is not callable", code="pool.handler", hint="`module:function`")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLocation:
    """The pool of a worker: its area in the region, its sizes, and the term of the owner."""

    offset: int
    layout: PoolLayout
    term: int


def main(
    region: InheritedDescriptor, notifier: InheritedDescriptor, location: PoolLocation, handler: str | Handler
) -> None:
    """Run a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = Worker(MemoryRegion.from_fd(region.descriptor), EventNotifier(notifier.descriptor), location, handler)
    for inherited in (region, notifier):
        os.close(inherited.descriptor)
    global _current  # noqa: PLW0603  # handlers are plain functions: `spawn` finds the worker here
    _current = worker
    worker.run()


class Worker:
    """A member of a pool with a handler."""

    def __init__(
        self, region: MemoryRegion, notifier: EventNotifier, location: PoolLocation, handler: str | Handler
    ) -> None:
        self._handler = resolve_handler(handler) if isinstance(handler, str) else handler
        self._region, self._words, self._notifier = region, region.words, notifier
        self._location, self._layout = location, location.layout
        self._wakeups = location.offset + self._layout.wakeups_at
        self._owner = location.offset + self._layout.members_at + OWNER * LINE
        self._member = self._join()
        self._tasks = self._member.tasks
        self._mutex = threading.Lock()  # threads of a handler may call spawn
        self._last_recovery = monotonic()

    def run(self) -> None:
        """Run tasks until the pool has ended."""
        try:
            while True:  # until the pool has ended
                if not self._run_task():
                    if self._words.load(STATE) >> 32 == Phase.CLOSED:
                        break
                    self._sleep()
                if monotonic() - self._last_recovery > WAIT_SECONDS_MAX:
                    if not self._has_owner(self._member):
                        break
                    self._recover()
        finally:
            self._member.leave()

    def spawn(self, payload: object, priority: int) -> bool:
        """See the function `spawn`."""
        check_int("priority", priority, 0, self._layout.priorities - 1, code="pool.priority")
        data = encode_value(payload)
        with self._mutex:
            task = self._tasks.submit(data, priority, True)
        if task == TOO_LARGE:
            raise UsageError(
                f"{len(data)} bytes are too large for this pool",
                code="pool.payload_bytes",
                hint=f"at most {self._layout.payload_max - 1}",
            )
        if task:
            self._tasks.wake_worker()
        return bool(task)

    def _join(self) -> PoolMember:
        """Become a member. Workers of a previous owner leave when they notice its death, task by task."""
        numbers = range(OWNER + 1, self._layout.members)
        while (member := PoolMember.join(self._region, self._location.offset, self._layout, numbers)) is None:
            if self._words.load(self._owner + TERM) != self._location.term:
                raise UnavailableError("the owner of the pool has ended", code="pool.owner", hint="start it again")
            self._words.wait(self._wakeups, self._words.load(self._wakeups) & 0xFFFFFFFF, 0.02)
        return member

    def _has_owner(self, member: PoolMember) -> bool:
        """Return whether the owner that started this worker is alive and still the owner."""
        return self._words.load(self._owner + TERM) == self._location.term and member.is_alive(OWNER)

    def _run_task(self) -> bool:
        """Run one task; False if there was none."""
        with self._mutex:
            task = self._tasks.claim()
        if task <= 0:
            return task == RETRY
        state, data = self._result(task)
        with self._mutex:
            finished = self._tasks.finish(task, state, data)
            if finished == TOO_LARGE:
                finished = self._tasks.finish(task, FAILED, self._too_large(len(data)))
        if finished != 1:
            raise InternalError(f"task {task:x} was not claimed by this worker; please report it")
        if self._words.load(self._owner + ASLEEP):
            self._notifier.notify()
        return True

    def _result(self, task: int) -> tuple[int, bytes]:
        payload = self._tasks.payload(task)
        try:
            return DONE, encode_value(self._handler(decode_value(payload or b"")))
        except BaseException as error:  # noqa: BLE001  # raised where the task is awaited
            if self._tasks.is_detached(task):
                _log.exception("a spawned task failed")
            return FAILED, encode_error(error, self._layout.result_max)

    def _too_large(self, size: int) -> bytes:
        error = UsageError(
            f"the result has {size} bytes",
            code="pool.result_bytes",
            hint=f"at most {self._layout.result_max - 1}; put large results into a store and return their name",
        )
        return encode_error(error, self._layout.result_max)

    def _sleep(self) -> None:
        seen = self._words.load(self._wakeups) & 0xFFFFFFFF
        self._words.store(self._member.asleep, 1)
        if not self._tasks.has_queued() and self._words.load(STATE) >> 32 != Phase.CLOSED:
            self._words.wait(self._wakeups, seen, WAIT_SECONDS_MAX)
        self._words.store(self._member.asleep, 0)

    def _recover(self) -> None:
        with self._mutex:
            if not self._member.recovered:
                self._member.recover_predecessor()
            queued, given_up = self._member.recover_dead()
        if queued:
            self._tasks.wake_worker()
        if given_up:
            self._notifier.notify()
        self._last_recovery = monotonic()
