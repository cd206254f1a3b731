"""The runtime for code without an event loop: scripts, Django, Flask.

One loop in one thread. Each call submits a coroutine to it and waits. Nothing is implemented twice.

Rule 1: a wakeup pipe (`stores.threads.wakeup`) reports the end of a call: it costs the caller two thread switches.
Rule 2: a call runs in the context of its caller, so that traces and logs see the caller's context variables.
Rule 3: every submitted call returns or raises, also when the runtime is closed meanwhile.
Rule 4: a signal handler may make a call in the middle of another call of the same thread: no lock is held that it
needs.
Rule 5: a call in a forked child is refused (`runtime.forked`), because the loop's thread does not exist there. What the
child inherits is never freed: finalizers of transports would change the epoll instance that it shares with its parent.
Rule 6: a coroutine handler runs in the loop. A call from there would wait for itself without end, and is refused.
Rule 7: a call from a coroutine of another event loop would stop that loop until it returns, and is refused
(`runtime.running_loop`). Only `close` is allowed there, because a runtime must be closable wherever its program ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import update_wrapper
from threading import Lock, RLock, Thread, get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from interlock.errors import UnavailableError, UsageError
from interlock.model.limits import STOP_MS_MAX
from interlock.ports.fork import after_fork, forked_error, keep_forever
from interlock.ports.threads import start_thread
from interlock.runtime.runtime import Projecting, Runtime
from interlock.runtime.shutdown import DRAIN_MS as SIGNAL_DRAIN_MS
from interlock.runtime.shutdown import DrainReport, Signals, until_stopped
from interlock.stores.threads.wakeup import WakeupPipe

if TYPE_CHECKING:
    from interlock.runtime.join.connections import BlockingConnection
    from interlock.runtime.join.joined import Joined
    from interlock.runtime.trials.shadow_run import ShadowedChart, ShadowRun

PIPES_MAX = 64
"""Callers that wait on a pipe at the same time: each uses two file descriptors. Others wait on a lock."""

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(
    method: Callable[Concatenate[Runtime, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingRuntime, P], T]:
    """Return a method of `Runtime` as one that waits for its result. To type checkers it has the same overloads."""
    name = method.__name__

    def wait(self: BlockingRuntime, /, *args: P.args, **options: P.kwargs) -> T:
        answering: Coroutine[Any, Any, T] = getattr(self.runtime, name)(*args, **options)
        return self._wait(answering)

    update_wrapper(wait, method)
    return wait


def _iterating(
    method: Callable[Concatenate[Runtime, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[BlockingRuntime, P], Generator[T, None, None]]:
    """Return a method of `Runtime` that yields values as one that returns an ordinary iterator."""
    name = method.__name__

    def iterate(self: BlockingRuntime, /, *args: P.args, **options: P.kwargs) -> Generator[T, None, None]:
        values: AsyncGenerator[T, None] = getattr(self.runtime, name)(*args, **options)
        return self._each(values)

    update_wrapper(iterate, method)
    return iterate


class BlockingRuntime:
    """A runtime whose methods wait for their result. Safe to call from many threads."""

    create = _waiting(Runtime.create)
    send = _waiting(Runtime.send)
    dry_run = _waiting(Runtime.dry_run)
    state = _waiting(Runtime.state)
    journal = _waiting(Runtime.journal)
    list = _waiting(Runtime.list)
    indexes = _waiting(Runtime.indexes)
    can = _waiting(Runtime.can)
    counts = _waiting(Runtime.counts)
    ages = _waiting(Runtime.ages)
    hold = _waiting(Runtime.hold)
    resume = _waiting(Runtime.resume)
    hold_kind = _waiting(Runtime.hold_kind)
    resume_kind = _waiting(Runtime.resume_kind)
    hold_matching = _waiting(Runtime.hold_matching)
    resume_matching = _waiting(Runtime.resume_matching)
    holds = _waiting(Runtime.holds)
    holds_of = _waiting(Runtime.holds_of)
    preview_upgrade = _waiting(Runtime.preview_upgrade)
    projections = _waiting(Runtime.projections)
    verify = _waiting(Runtime.verify)
    preview_refold = _waiting(Runtime.preview_refold)
    refold = _waiting(Runtime.refold)
    preview_erasure = _waiting(Runtime.preview_erasure)
    erase = _waiting(Runtime.erase)
    drain = _waiting(Runtime.drain)
    watch = _iterating(Runtime.watch)
    feed = _iterating(Runtime.feed)
    verify_all = _iterating(Runtime.verify_all)

    def __init__(self, open_runtime: Callable[[], Coroutine[Any, Any, Runtime]]) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._pipes: list[WakeupPipe | None] = [None] * PIPES_MAX  # None: not created yet
        self._calls: set[_Call[Any]] = set()  # in the loop
        self._lock = RLock()
        self._ended = False
        self._thread = Thread(target=self._run, name="interlock", daemon=True)
        try:
            start_thread(self._thread)
        except BaseException:
            self._loop.close()
            raise
        after_fork(self, keep_forever)
        try:
            self.runtime = self._wait(open_runtime())
        except BaseException:
            self._stop()
            raise

    def _run(self) -> None:
        """Run the loop. An exception that would end the program ends only its own task: other callers need the loop."""
        is_over = False
        while not is_over:
            with suppress(SystemExit, KeyboardInterrupt):  # the loop re-raises them
                self._loop.run_forever()
                is_over = True

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for it. Raises UsageError where waiting would stop an event loop."""
        if _is_in_event_loop() and get_ident() != self._thread.ident:
            coroutine.close()
            raise _running_loop_error()
        return self._wait_anywhere(coroutine)

    def _wait_anywhere(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if os.getpid() != self._process:
            coroutine.close()
            raise forked_error("this runtime", code="runtime.forked")
        if get_ident() == self._thread.ident:
            coroutine.close()
            message = "a coroutine handler cannot call its own runtime, whose event loop it runs in"
            hint = "make the handler a plain function, which runs in a thread"
            raise UsageError(message, code="runtime.loop", hint=hint)
        call = _Call(coroutine, self._take_waiter())
        try:
            with self._lock:  # a call that is submitted before the end is answered; later ones are refused
                if self._ended:
                    coroutine.close()
                    raise UnavailableError("the runtime is closed", code="runtime.closed")
                self._loop.call_soon_threadsafe(call.start, self._loop, self._calls)
            call.waiter.wait()
        except BaseException:  # interrupted: the caller no longer waits
            self._give_up(call)
            raise
        if isinstance(call.waiter, WakeupPipe):
            self._pipes.append(call.waiter)
        return call.result()

    def _take_waiter(self) -> WakeupPipe | _Latch:
        """Return what wakes the caller when its call has ended."""
        try:
            return self._pipes.pop() or WakeupPipe()
        except IndexError:
            return _Latch()
        except OSError:  # no file descriptor is left
            self._pipes.insert(0, None)
            return _Latch()

    def _give_up(self, call: _Call[Any]) -> None:
        if isinstance(call.waiter, WakeupPipe):
            self._pipes.insert(0, None)
        with suppress(RuntimeError):  # the loop is closed: the call has ended
            self._loop.call_soon_threadsafe(call.give_up)

    def _stop(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
        last = _Call(_cancel_all(), self._take_waiter())
        self._loop.call_soon_threadsafe(last.start, self._loop, self._calls)
        last.waiter.wait()
        last.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for each in self._calls:  # a task that ignores its cancellation is abandoned; its caller must not wait
            each.waiter.wake()
        self._loop.close()
        self._pipes.clear()  # closes them

    def join(self, connection: BlockingConnection, /, *, wait: bool = True) -> Joined:
        """As `Runtime.join`, for a blocking connection: of sqlite3, psycopg, SQLAlchemy or Django.

        The calls run in the thread of their caller.

            with Session(engine) as session, session.begin():
                session.add(Payment(order="A-1"))
                orders.join(session).send("order/A-1", "pay", key="p-1").expect()
        """
        from interlock.runtime.join.adapters import kind_of
        from interlock.runtime.join.joined import Joined

        adapter = kind_of(connection, is_async=False).adapter(connection)
        return Joined(self.runtime.join_calls(self._loop), adapter, self._check_joined_call, wait=wait)

    def _check_joined_call(self) -> None:
        """Raises UsageError in a forked child, and where the call would stop an event loop."""
        if os.getpid() != self._process:
            raise forked_error("this runtime", code="runtime.forked")
        if _is_in_event_loop():
            raise _running_loop_error()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that uses `runtime` on its event loop, and return its result."""
        return self._wait(work)

    def projection(
        self, name: str, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> Callable[[Projecting], Projecting]:
        """As `Runtime.projection`."""

        def start(projector: Projecting) -> Projecting:
            async def register() -> Projecting:
                return self.runtime.projection(name, kinds=kinds, batch=batch)(projector)

            return self._wait(register())

        return start

    def shadow(self, chart: ShadowedChart, *, share: float = 0.25) -> ShadowRun:
        """As `Runtime.shadow`."""

        async def start() -> ShadowRun:
            return self.runtime.shadow(chart, share=share)

        return self._wait(start())

    def _each(self, values: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        try:
            while True:
                yield self._wait(_next(values))
        except StopAsyncIteration:
            return
        finally:
            # The runtime was closed, the process was forked, or the wait was interrupted: the iteration ends.
            with suppress(UnavailableError, UsageError, RuntimeError):
                self._wait(values.aclose())

    def run_until_signal(
        self, *, drain_ms: int = SIGNAL_DRAIN_MS, on_signal: Callable[[int], object] = lambda _: None
    ) -> DrainReport:
        """As `Runtime.run_until_signal`."""
        arrived = asyncio.Event()
        with Signals(lambda _: self._loop.call_soon_threadsafe(arrived.set)) as signals:
            self._wait(until_stopped(self.runtime, arrived))
            on_signal(signals.first or 0)
            return self.drain(drain_ms)

    def close(self) -> None:
        """As `Runtime.close`; the thread ends too. Calls that wait in other threads return. May be called again.

        In a forked child it does nothing: the runtime belongs to the parent.
        """
        if os.getpid() != self._process:
            return
        with suppress(UnavailableError):
            self._wait_anywhere(self.runtime.close())
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Call(Generic[T]):
    """A coroutine submitted to the loop, and what wakes its caller when it has ended."""

    __slots__ = ("_calls", "_context", "_coroutine", "_task", "waiter")

    def __init__(self, coroutine: Coroutine[Any, Any, T], waiter: WakeupPipe | _Latch) -> None:
        self.waiter = waiter
        self._coroutine = coroutine
        self._context = copy_context()
        self._task: asyncio.Task[T] | None = None
        self._calls: set[_Call[Any]] = set()

    def start(self, loop: asyncio.AbstractEventLoop, calls: set[_Call[Any]]) -> None:
        """In the loop: run the coroutine; the call is in `calls` until it has ended."""
        self._calls = calls
        calls.add(self)
        self._task = loop.create_task(self._coroutine, context=self._context)
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the caller may have been interrupted
        self._calls.discard(self)
        self.waiter.wake()

    def give_up(self) -> None:
        """In the loop: cancel the call, started or not."""
        if self._task is None:
            self._coroutine.close()
        else:
            self._task.cancel()

    def result(self) -> T:
        """Return the result. Raises what the call raised, UnavailableError when it was cancelled or did not end."""
        assert self._task is not None
        if self._task.cancelled() or not self._task.done():
            raise UnavailableError("the runtime was closed during the call", code="runtime.closed")
        return self._task.result()


class _Latch:
    """Wakes a caller where there are too many pipes: it costs more thread switches, but no file descriptor."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake the caller."""
        self._lock.release()

    def wait(self) -> None:
        """Wait to be woken."""
        self._lock.acquire()


def _is_in_event_loop() -> bool:
    """Whether the caller runs in an event loop of its thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _running_loop_error() -> UsageError:
    hint = "await the methods of `async with interlock.open(...)`, or use `await asyncio.to_thread(...)`"
    message = "a blocking runtime cannot be used inside a running event loop, which it would stop"
    return UsageError(message, code="runtime.running_loop", hint=hint)


async def _next(values: AsyncGenerator[T, None]) -> T:
    return await anext(values)


async def _cancel_all() -> None:
    """Cancel all other tasks, so that no thread waits for a loop that has stopped."""
    loop = asyncio.get_running_loop()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for each in rest:
        each.cancel()
    if rest:  # with a limit: a handler may ignore its cancellation
        await asyncio.wait(rest, timeout=STOP_MS_MAX / 1000)
    await loop.shutdown_asyncgens()
    with suppress(RuntimeError):  # the system refuses the thread that waits for it
        await loop.shutdown_default_executor()
