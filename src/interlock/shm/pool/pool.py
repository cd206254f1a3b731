"""A pool of worker processes to which an event loop submits tasks, and which survives the death of any of them.

Rule 1: the event loop never waits: it submits into the region, and is notified when a task has finished.
Rule 2: a task is claimed once at a time. If a worker dies, another one runs its task again, at most `claims_max` times.
So under a kill a handler may run more than once for a task: make it idempotent, or pass a key.
Rule 3: every submitted task holds a permit of the region's lifecycle until it has finished. A drain refuses new tasks,
lets the others finish, and then closes, which ends the workers.
Rule 4: dead workers are detected by the kernel and replaced. If a worker died with a task, that task is the likely
cause and is given up by rule 2. If workers die without a task, and no task finishes, the pool gives up and raises an
error; it starts again with the first task after a delay. The tasks that it had then may still run, as under a kill.
Rule 5: the owner stores that it sleeps before its last check, as every consumer of a notifier does; workers notify only
then. Results of a worker that was killed before it notified are found by a timer, within a quarter of a second.
Rule 6: each start is a new term of the owner: a worker of an earlier owner sees that, and ends.
The owner is member 0, each worker one of the others (`worker`).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.process
import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.context import SpawnProcess
from time import monotonic
from types import MappingProxyType
from typing import Any, Self

from interlock.errors import ConflictError, InterlockError, RejectedError, UnavailableError, UsageError
from interlock.ports.fork import after_fork
from interlock.ports.threads import in_thread
from interlock.shm.lifecycle.drain import CloseReport
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.lifecycle.permits import Permit, Phase
from interlock.shm.memory.arguments import check_int
from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.memory.words import WAIT_SECONDS_MAX
from interlock.shm.pool.layout import DONE, POISONED, TERM, TOO_LARGE, PoolLayout
from interlock.shm.pool.member import PoolMember
from interlock.shm.pool.values import RESULT_BYTES_MIN, decode_error, decode_value, encode_value, poisoned_error
from interlock.shm.pool.worker import OWNER, Handler, InheritedDescriptor, PoolLocation, check_handler, main
from interlock.shm.queue.notifier import EventNotifier

WORKERS_MAX = 1024
DEATHS_MAX = 16
"""Workers that die in a row, without a task and without one task finishing, before the pool gives up."""

RESTART_DELAY_SECONDS = 5.0
"""How long a pool that gave up starts no worker: missing memory or a missing file may be available again then."""

STABLE_SECONDS = 10.0
"""A worker that ran this long did not die at its start."""

EXIT_SECONDS_MAX = 5.0
"""How long workers may take to end after the pool is closed. Then they are killed."""


class TaskPool:
    """Worker processes for work that would block an event loop.

    `handler` is a function of one value at the top level of a module, or its name as `module:function`; values are
    bytes, or plain data (None, numbers, strings, lists, dicts). The pool holds at most `tasks_max` tasks.

    async with TaskPool(region, "shop.pictures:shrink", workers=4) as pool:
        small = await pool.submit(b"...", priority=0)
    """

    def __init__(
        self,
        region: MemoryRegion,
        handler: str | Handler,
        *,
        workers: int = 2,
        name: str = "pool",
        priorities: int = 3,
        tasks_max: int = 256,
        payload_bytes_max: int = 2047,
        result_bytes_max: int = 2047,
        claims_max: int = 3,
    ) -> None:
        check_int("workers", workers, 1, WORKERS_MAX, code="pool.workers")
        self._region, self._handler, self._name, self._workers = region, check_handler(handler), name, workers
        self._layout = PoolLayout(
            members=1 + workers,
            priorities=priorities,
            range=tasks_max,
            payload_max=payload_bytes_max + 1,
            result_max=max(RESULT_BYTES_MIN, result_bytes_max + 1),
            claims_max=claims_max,
        )
        self._offset = region.area(
            f"pool.{name}", self._layout.bytes, prepare=lambda offset: self._layout.prepare(region, offset)
        )
        self._layout.check(region, self._offset)
        self._tasks: dict[int, tuple[asyncio.Future[Any], Permit]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._processes: dict[int, SpawnProcess] = {}
        self._unstarted: set[SpawnProcess] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._deaths = self._restarts = self._deaths_with_task = 0
        self._failure: InterlockError | None = None
        self._failed_at = 0.0
        self._session: _Session | None = None
        self._pid = os.getpid()
        after_fork(self, TaskPool._disown_workers)

    def _disown_workers(self) -> None:
        """Remove the workers from the list of child processes, in a forked child: they are the parent's.

        `multiprocessing` ends all processes in its list when a process exits, also those of the parent.
        """
        for process in (*self._processes.values(), *self._unstarted):
            getattr(multiprocessing.process, "_children", set()).discard(process)

    @property
    def pids(self) -> Mapping[int, SpawnProcess]:
        """The workers by process id."""
        return MappingProxyType(self._processes)

    @property
    def restarts(self) -> int:
        """The number of workers that died and were replaced."""
        return self._restarts

    def __len__(self) -> int:
        """Return the number of tasks in the pool."""
        return len(self._tasks)

    async def start(self) -> None:
        """Become the owner and start the workers; `async with` does this.

        Raises ConflictError while another process owns the pool, RejectedError if the region is draining.
        """
        if self._session is not None:
            raise UsageError("the pool was already started", code="pool.started", hint="create another pool")
        member = PoolMember.join(self._region, self._offset, self._layout, range(OWNER, OWNER + 1))
        if member is None:
            raise ConflictError(
                f"pool `{self._name}` already has an owner", code="pool.owner", hint="use another name or region"
            )
        try:
            life = Lifecycle(self._region)
        except BaseException:
            member.leave()
            raise
        life.start()
        if life.phase is not Phase.RUNNING:
            member.leave()
            life.leave()
            raise RejectedError(
                f"the region is {life.phase.name.lower()}", code="gate.not_running", hint="create a new region"
            )
        location = PoolLocation(offset=self._offset, layout=self._layout, term=self._next_term())
        self._session = _Session(self._region, location, member, life)
        self._session.listen(collect=self._collect, recover=self._recover)
        for _ in range(self._workers):
            self._start_worker()
        await asyncio.wait(tuple(self._starting))  # not gather: if this is cancelled, the processes must be kept
        if self._failure is not None:
            raise self._failure

    def submit(self, payload: object, *, priority: int = 0) -> asyncio.Future[Any]:
        """Submit a task. Await the returned future for its result or its error.

        Cancelling the future does not stop the handler. Raises UnavailableError if the pool is full (`pool.full`) or
        its workers cannot start (`pool.workers`; the pool starts again later), RejectedError if the region drains,
        UsageError if the payload or the priority is invalid.
        """
        session = self._require_session()
        check_int("priority", priority, 0, self._layout.priorities - 1, code="pool.priority")
        data = encode_value(payload)
        permit = session.life.enter()
        if self._failure is not None:
            self._restart()
        full = len(self._tasks) >= self._layout.range
        task = 0 if full else session.member.tasks.submit(data, priority, False)
        if task in {0, TOO_LARGE}:
            session.life.exit(permit)
            raise self._refusal(len(data), full=not task)
        result = session.loop.create_future()
        self._tasks[task] = result, permit
        session.member.tasks.wake_worker()
        return result

    async def run(self, payload: object, *, priority: int = 0) -> Any:
        """Submit a task and return its result. If the pool is full, wait first."""
        while True:  # each round starts when a task has finished
            try:
                result = self.submit(payload, priority=priority)
            except UnavailableError as error:
                if error.code != "pool.full" or not self._tasks:
                    raise
                await self._wait_until_not_full()
            else:
                return await result

    async def drain(self, *, timeout: float = 30.0) -> CloseReport:  # noqa: ASYNC109  # reported, not raised
        """Refuse new tasks, let the others finish, close the region's lifecycle, and end the workers.

        If the timeout expires, the report has `closed=False`; `close` then ends the tasks that still run.
        """
        session = self._require_session()
        report = await session.life.drain(timeout=timeout)
        if report.closed:
            await self._end(EXIT_SECONDS_MAX)
        return report

    async def close(self) -> None:
        """End the workers now. Unfinished tasks raise UnavailableError (`pool.closed`).

        Does nothing when called again, or in a forked child.
        """
        if self._session is not None and not self._session.closed and self._pid == os.getpid():
            await self._end(0.0)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and self._failure is None and self._session is not None and not self._session.ended:
            await self.drain()
        await self.close()

    # Results

    def _collect(self) -> None:
        """Resolve the futures of all finished tasks."""
        session = self._session
        assert session is not None
        finished = session.member.tasks.finished()
        for task, state, data in finished:
            session.member.tasks.release(task)
            known = self._tasks.pop(task, None)
            if known is None:
                continue  # submitted by a previous owner, which died
            result, permit = known
            if not result.done():
                _resolve(result, state, data, self._layout.claims_max)
            session.life.exit(permit)
        if finished:
            self._deaths = 0
            self._wake_waiters(len(finished))

    def _recover(self) -> None:
        """Queue the tasks of dead workers again, and collect what they finished without a notification."""
        session = self._session
        assert session is not None
        queued, given_up = session.member.recover_dead()
        self._deaths_with_task += queued + given_up
        if queued:
            session.member.tasks.wake_worker()
        self._collect()

    async def _wait_until_not_full(self) -> None:
        """Wait until the pool may accept a task: first come, first served."""
        waiter = self._require_session().loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake_waiters(1)  # this waiter was woken: wake the next one instead
            raise

    def _wake_waiters(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    # Workers

    def _next_term(self) -> int:
        return self._region.words.add(self._offset + self._layout.members_at + OWNER * LINE + TERM, 1) + 1

    def _worker_ended(self, pid: int) -> None:
        """Recover the task of a worker whose process has ended, and replace it."""
        session = self._session
        process = self._processes.pop(pid, None)
        if session is None or process is None:
            return
        session.loop.remove_reader(process.sentinel)
        process.join()
        with suppress(ValueError):  # another thread, which starts a worker, may be joining the same process
            process.close()
        ran_seconds = monotonic() - session.started_at.pop(pid)
        session.worker_ended.set()
        self._recover()
        if session.ended or (session.life.phase is not Phase.RUNNING and not self._tasks):
            return
        if ran_seconds > STABLE_SECONDS:
            self._deaths = 0
        had_task = self._deaths_with_task > 0
        self._deaths_with_task -= had_task
        self._restarts += self._failure is None
        self._replace_worker(had_task=had_task)

    def _replace_worker(self, *, had_task: bool = False) -> None:
        if self._session is None or self._session.ended or self._failure is not None:
            return
        self._deaths += not had_task
        if self._deaths > DEATHS_MAX:
            self._give_up()
        else:
            self._start_worker()

    def _restart(self) -> None:
        """Start the missing workers of a pool that gave up, after the delay, because there is a task."""
        self._failure, self._deaths, self._deaths_with_task = None, 0, 0
        for _ in range(self._workers - len(self._processes) - len(self._starting)):
            self._start_worker()

    def _start_worker(self) -> None:
        session = self._session
        assert session is not None
        starting = session.loop.create_task(self._start_process(session))
        self._starting.add(starting)
        starting.add_done_callback(self._worker_started)

    def _worker_started(self, starting: asyncio.Task[None]) -> None:
        self._starting.discard(starting)
        if not starting.cancelled() and starting.exception() is not None:  # out of memory or of processes
            self._replace_worker()

    async def _start_process(self, session: _Session) -> None:
        descriptors = InheritedDescriptor(self._region.fd), InheritedDescriptor(session.notifier.fd)
        process = multiprocessing.get_context("spawn").Process(
            target=main,
            args=(*descriptors, session.location, self._handler),
            name=f"interlock-{self._name}",
            daemon=True,
        )
        self._unstarted.add(process)
        try:
            await asyncio.shield(in_thread(process.start))  # it writes to a pipe, which would block the loop
            pid = process.pid
            assert pid is not None
            self._processes[pid] = process
        finally:
            self._unstarted.discard(process)
        session.started_at[pid] = monotonic()
        session.loop.add_reader(process.sentinel, self._worker_ended, pid)
        if session.ended:
            process.kill()

    def _give_up(self) -> None:
        self._failure = UnavailableError(
            f"{DEATHS_MAX} workers of pool `{self._name}` died in a row without finishing a task",
            code="pool.workers",
            hint="read their stderr; often they cannot import the handler's module. "
            f"The pool starts again with the first task after {RESTART_DELAY_SECONDS:g} seconds",
        )
        self._failed_at = monotonic()
        self._fail_tasks(self._failure)

    def _fail_tasks(self, error: InterlockError) -> None:
        session = self._session
        assert session is not None
        tasks, self._tasks = self._tasks, {}
        for result, permit in tasks.values():
            if not result.done():
                result.set_exception(_copy_error(error))
            session.life.exit(permit)
        self._wake_waiters(len(self._waiters))

    async def _end(self, grace: float) -> None:
        """End the workers: they see that the lifecycle is closed, or are killed."""
        session = self._session
        assert session is not None
        session.ended = True
        session.wake_workers()
        while self._starting:  # ends: no worker is started after the pool has ended
            await asyncio.wait(tuple(self._starting))
        end = monotonic() + grace
        while self._processes and monotonic() < end:
            await session.wait_worker_ended(end - monotonic())
        for process in self._processes.values():
            process.kill()
        while self._processes:  # ends: SIGKILL cannot be ignored
            await session.wait_worker_ended(WAIT_SECONDS_MAX)
        self._fail_tasks(UnavailableError("the pool was closed", code="pool.closed", hint="submit it to another pool"))
        session.close()

    # Refusing

    def _require_session(self) -> _Session:
        session = self._session
        if session is None or session.ended:
            raise UsageError(
                f"pool `{self._name}` {'is not started' if session is None else 'has ended'}",
                code="pool.not_running",
                hint="async with TaskPool(...) as pool",
            )
        if self._pid != os.getpid() or asyncio.get_running_loop() is not session.loop:
            raise UsageError(
                "a pool belongs to the event loop that started it",
                code="pool.loop",
                hint="from a thread: asyncio.run_coroutine_threadsafe(pool.run(...), loop)",
            )
        if self._failure is not None and monotonic() - self._failed_at < RESTART_DELAY_SECONDS:
            raise _copy_error(self._failure)
        return session

    def _refusal(self, size: int, *, full: bool) -> InterlockError:
        if full:
            return UnavailableError(
                f"pool `{self._name}` is full: {self._layout.range} tasks",
                code="pool.full",
                hint="await some of them, or use `run`, which waits",
            )
        return UsageError(
            f"{size} bytes are too large for pool `{self._name}`",
            code="pool.payload_bytes",
            hint=f"at most {self._layout.payload_max - 1}: raise payload_bytes_max, or send a name",
        )


class _Session:
    """The state of a pool between start and end: its member, lifecycle and notifier, and the loop that it runs in."""

    def __init__(self, region: MemoryRegion, location: PoolLocation, member: PoolMember, life: Lifecycle) -> None:
        self.location, self.member, self.life, self.notifier = location, member, life, EventNotifier()
        self.loop = asyncio.get_running_loop()
        self.ended = self.closed = False
        self.worker_ended = asyncio.Event()
        self.started_at: dict[int, float] = {}
        self._words = region.words
        self._wakeups = location.offset + location.layout.wakeups_at
        self._timer: asyncio.TimerHandle | None = None

    def listen(self, *, collect: Callable[[], None], recover: Callable[[], None]) -> None:
        """Call `collect` when a worker notifies, and `recover` four times a second."""
        self._collect, self._recover = collect, recover
        self.loop.add_reader(self.notifier.listen(), self._on_notified)
        self._words.store(self.member.asleep, 1)
        self._on_timer()

    def wake_workers(self) -> None:
        """Wake all sleeping workers."""
        self._words.add(self._wakeups, 1)
        self._words.wake(self._wakeups)

    async def wait_worker_ended(self, seconds: float) -> None:
        """Wait until a worker's process has ended, at most so many seconds."""
        self.worker_ended.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.worker_ended.wait()

    def close(self) -> None:
        """Stop listening, and leave the pool and the lifecycle."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.loop.remove_reader(self.notifier.listen())
        self.notifier.close()
        self.member.leave()
        self.life.leave()

    def _on_notified(self) -> None:
        self.notifier.clear()
        self._words.store(self.member.asleep, 0)
        self._collect()
        self._words.store(self.member.asleep, 1)
        self._collect()  # tasks that finished before workers could see that the owner sleeps

    def _on_timer(self) -> None:
        self._timer = self.loop.call_later(WAIT_SECONDS_MAX, self._on_timer)
        self._recover()
        if not self.member.recovered:
            self.member.recover_predecessor()


def _resolve(result: asyncio.Future[Any], state: int, data: bytes, claims_max: int) -> None:
    """Set the result or the exception of a finished task."""
    if state == DONE:
        try:
            result.set_result(decode_value(data))
        except InterlockError as error:
            result.set_exception(error)
    elif state == POISONED:
        result.set_exception(poisoned_error(claims_max))
    else:
        result.set_exception(decode_error(data))


def _copy_error(error: InterlockError) -> InterlockError:
    """Return a new error: an instance that is raised repeatedly would keep the frames of all its callers alive."""
    return type(error)(error.message, code=error.code, hint=error.hint)
