"""The same runtime for code without an event loop: scripts, notebooks, Django, Flask.

One loop in one thread of its own; each call hands over its coroutine and waits. Nothing is implemented twice.

Rule 1: a call is answered by a ring (`stores.bells`): it costs the caller two switches of threads.
Rule 2: a call runs in the context of its caller: what traces and logs take from there is theirs.
Rule 3: whoever has handed over a call is answered, also when the runtime is closed meanwhile.
Rule 4: a signal handler may call in the middle of a call of its own thread: nothing on the way is held that it needs.
Rule 5: a forked child is refused (`runtime.forked`): the thread of the loop is not there. What it inherits is never
freed: finalizers of transports would change the epoll instance that it shares with its parent.
Rule 6: a coroutine handler runs in the loop: a call from there would wait for itself for ever, and is refused.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from contextvars import copy_context
from threading import Lock, RLock, Thread, get_ident
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interlock.errors import UnavailableError, UsageError
from interlock.kernel.explain import Candidate
from interlock.model.journal.entry import Entry, Receipt
from interlock.model.limits import STOP_MS_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.fork import after_fork, forked_error, keep_forever
from interlock.ports.store import EntityPage, EntityQuery
from interlock.ports.threads import start_thread
from interlock.runtime.history.travel import At
from interlock.runtime.history.verify import Verification
from interlock.runtime.runtime import Runtime
from interlock.runtime.shutdown import DRAIN_MS as SIGNAL_DRAIN_MS
from interlock.runtime.shutdown import DrainReport, Signals, until_heard
from interlock.stores.threads.wakeup import WakeupPipe

if TYPE_CHECKING:
    pass

BELLS_MAX = 64
"""Callers that wait by a pipe at once: it has two descriptors, of which a process has few. Others wait by a lock."""

T = TypeVar("T")


class BlockingRuntime:
    """A runtime whose methods wait. Safe to call from many threads."""

    def __init__(self, opened: Callable[[], Coroutine[Any, Any, Runtime]]) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._bells: list[WakeupPipe | None] = [None] * BELLS_MAX  # of calls that have ended, behind those not made yet
        self._under_way: set[_Call[Any]] = set()  # in the loop
        self._gate = RLock()
        self._ended = False
        self._thread = Thread(target=self._run, name="interlock", daemon=True)
        try:
            start_thread(self._thread)
        except BaseException:
            self._loop.close()
            raise
        after_fork(self, keep_forever)
        try:
            self.runtime = self._wait(opened())
        except BaseException:
            self._stop()
            raise

    def _run(self) -> None:
        """The loop's thread. A handler that means to end the program ends its own task: others wait for this loop."""
        is_over = False
        while not is_over:
            with suppress(SystemExit, KeyboardInterrupt):  # which the loop lets through
                self._loop.run_forever()
                is_over = True

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if os.getpid() != self._process:
            coroutine.close()
            raise forked_error("this runtime", code="runtime.forked")
        if get_ident() == self._thread.ident:
            coroutine.close()
            message = "a coroutine of this runtime's own loop cannot wait for it"
            raise UsageError(
                message, code="runtime.loop", hint="make the handler a plain function: it runs in a thread"
            )
        call = _Call(coroutine, self._bell())
        try:
            with self._gate:  # what is handed over before the end is answered; afterwards nothing is
                if self._ended:
                    coroutine.close()
                    raise UnavailableError("the runtime is closed", code="runtime.closed")
                self._loop.call_soon_threadsafe(call.begin, self._loop, self._under_way)
            call.bell.wait()
        except BaseException:  # interrupted: nobody waits for it any more, and its bell will ring for nobody
            self._give_up(call)
            raise
        if isinstance(call.bell, WakeupPipe):
            self._bells.append(call.bell)
        return call.result()

    def _bell(self) -> WakeupPipe | _Latch:
        """What a call rings when it has ended."""
        try:
            bell = self._bells.pop() or WakeupPipe()
        except IndexError:
            return _Latch()
        except OSError:  # no descriptor is left
            self._bells.insert(0, None)
            return _Latch()
        return bell

    def _give_up(self, call: _Call[Any]) -> None:
        if isinstance(call.bell, WakeupPipe):
            self._bells.insert(0, None)
        with suppress(RuntimeError):  # the loop is closed: it has ended
            self._loop.call_soon_threadsafe(call.give_up)

    def _stop(self) -> None:
        with self._gate:
            if self._ended:
                return
            self._ended = True
        last = _Call(_drained(), self._bell())
        self._loop.call_soon_threadsafe(last.begin, self._loop, self._under_way)
        last.bell.wait()
        last.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for each in self._under_way:  # one that swallows its cancellation is left to itself, and its caller is not
            each.bell.ring()
        self._loop.close()
        self._bells.clear()  # their pipes go with them

    def create(
        self,
        entity: str,
        context: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        principal: Mapping[str, Any] | None = None,
        trace: str | None = None,
    ) -> Receipt:
        """As `Runtime.create`."""
        return self._wait(self.runtime.create(entity, context, key=key, principal=principal, trace=trace))

    def send(
        self,
        entity: str,
        event: str,
        payload: Any = None,
        *,
        key: str | None = None,
        expected: int | None = None,
        principal: Mapping[str, Any] | None = None,
        trace: str | None = None,
        sent_ms: int | None = None,
    ) -> Receipt:
        """As `Runtime.send`."""
        sent = self.runtime.send(
            entity,
            event,
            payload,
            key=key,
            expected=expected,
            principal=principal,
            trace=trace,
            sent_ms=sent_ms,
        )
        return self._wait(sent)

    def rehearse(
        self,
        entity: str,
        event: str,
        payload: Any = None,
        *,
        key: str | None = None,
        principal: Mapping[str, Any] | None = None,
    ) -> Receipt:
        """As `Runtime.rehearse`."""
        return self._wait(self.runtime.rehearse(entity, event, payload, key=key, principal=principal))

    def state(self, entity: str, *, at: At | None = None) -> Snapshot:
        """As `Runtime.state`."""
        return self._wait(self.runtime.state(entity, at=at))

    def journal(self, entity: str, *, after: int = 0, limit: int | None = None) -> tuple[Entry, ...]:
        """As `Runtime.journal`."""
        return self._wait(self.runtime.journal(entity, after=after, limit=limit))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that uses `runtime` on its event loop, and return its result."""
        return self._wait(work)

    def list(self, query: EntityQuery) -> EntityPage:
        """As `Runtime.list`."""
        return self._wait(self.runtime.list(query))

    def can(self, entity: str) -> tuple[Candidate, ...]:
        """As `Runtime.can`."""
        return self._wait(self.runtime.can(entity))

    def watch(self, entity: str, *, after: int = 0, poll_ms: int = 1_000) -> Generator[Entry, None, None]:
        """As `Runtime.watch`, as an ordinary iterator."""
        yield from self._each(self.runtime.watch(entity, after=after, poll_ms=poll_ms))

    def verify(self, entity: str) -> Verification:
        """As `Runtime.verify`."""
        return self._wait(self.runtime.verify(entity))

    def verify_all(self) -> Generator[Verification, None, None]:
        """As `Runtime.verify_all`, as an ordinary iterator."""
        yield from self._each(self.runtime.verify_all())

    def _each(self, values: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        try:
            while True:
                yield self._wait(_next(values))
        except StopAsyncIteration:
            return
        finally:
            # Closed meanwhile, of the process that was forked, or interrupted while it waits: it ends.
            with suppress(UnavailableError, UsageError, RuntimeError):
                self._wait(values.aclose())

    def drain(self, timeout_ms: int) -> DrainReport:
        """As `Runtime.drain`."""
        return self._wait(self.runtime.drain(timeout_ms))

    def run_until_signal(
        self, *, drain_ms: int = SIGNAL_DRAIN_MS, told: Callable[[int], object] = lambda _: None
    ) -> DrainReport:
        """As `Runtime.run_until_signal`."""
        heard = asyncio.Event()
        with Signals(lambda _: self._loop.call_soon_threadsafe(heard.set)) as signals:
            self._wait(until_heard(self.runtime, heard))
            told(signals.first or 0)
            return self.drain(drain_ms)

    def close(self) -> None:
        """As `Runtime.close`, and the thread ends. Whoever waits in another thread is answered. May be called again.

        In a forked child it does nothing: the runtime is its parent's.
        """
        if os.getpid() != self._process:
            return
        with suppress(UnavailableError):
            self._wait(self.runtime.close())
        self._stop()


class _Call(Generic[T]):
    """A coroutine on its way to the loop, and what rings when it has ended."""

    __slots__ = ("_context", "_coroutine", "_task", "_under_way", "bell")

    def __init__(self, coroutine: Coroutine[Any, Any, T], bell: WakeupPipe | _Latch) -> None:
        self.bell = bell
        self._coroutine = coroutine
        self._context = copy_context()
        self._task: asyncio.Task[T] | None = None
        self._under_way: set[_Call[Any]] = set()

    def begin(self, loop: asyncio.AbstractEventLoop, under_way: set[_Call[Any]]) -> None:
        """In the loop: run it, and be among those under way until it has ended."""
        self._under_way = under_way
        under_way.add(self)
        self._task = loop.create_task(self._coroutine, context=self._context)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # seen, also when the caller was interrupted and does not ask for it
        self._under_way.discard(self)
        self.bell.ring()

    def give_up(self) -> None:
        """In the loop: nobody waits for it any more, whether it has begun or never will."""
        if self._task is None:
            self._coroutine.close()
        else:
            self._task.cancel()

    def result(self) -> T:
        """What it gave or raised. Raises UnavailableError when it was cancelled, or has not ended with its loop."""
        assert self._task is not None
        if self._task.cancelled() or not self._task.done():
            raise UnavailableError("the runtime was closed meanwhile", code="runtime.closed")
        return self._task.result()


class _Latch:
    """What rings where there are too many pipes: it costs more switches of threads, and no descriptor."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake whoever waits."""
        self._lock.release()

    def wait(self) -> None:
        """Wait for the ring."""
        self._lock.acquire()


async def _next(values: AsyncGenerator[T, None]) -> T:
    return await anext(values)


async def _drained() -> None:
    """Cancel what is left, so that nobody in another thread waits for a loop that has stopped."""
    loop = asyncio.get_running_loop()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for each in rest:
        each.cancel()
    if rest:  # not for ever: a handler may swallow its cancellation
        await asyncio.wait(rest, timeout=STOP_MS_MAX / 1000)
    await loop.shutdown_asyncgens()
    with suppress(RuntimeError):  # the system refuses the thread that would wait for it
        await loop.shutdown_default_executor()
