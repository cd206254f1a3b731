"""A pool of worker processes that an event loop gives tasks to, and that survives the death of any of them.

Rule 1: the event loop never waits: it submits into the region, and is rung when something has ended.
Rule 2: a task is claimed once at a time; a worker that dies has its task run again by another, at most `claims_max`
times. So a handler may run more than once under a kill: give it work that can stand that, or a key.
Rule 3: every submitted task holds a permit of the region's lifecycle until it has ended; a drain refuses new tasks,
lets those that are in finish, and then closes, which ends the workers.
Rule 4: dead workers are reaped when the kernel says so and replaced. One that died with a task in hand died of that
task, which is given up by itself (rule 2). A pool whose workers die of anything else, and end no task, gives up and
says so; it begins again with the first task after a rest. What was in it then may still be run, as under a kill.
The owner has seat 0 (`pool_owner`), each worker one of the others (`pool_worker`).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.process
import os
from collections import deque
from collections.abc import Mapping
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
from interlock.shm.memory.permits import Permit, Phase
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.memory.words import WAIT_SECONDS_MAX
from interlock.shm.pool.layout import TOO_LARGE, Shape
from interlock.shm.pool.member import RESULT_BYTES_MIN, PoolMember, encode_value
from interlock.shm.pool.owner import Running, fresh, resolve
from interlock.shm.pool.worker import OWNER, Handler, Inherited, checked_handler, main

WORKERS_MAX = 1024
DEATHS_MAX = 16
"""Workers that die in a row, with no task in hand and without one task ending, before the pool gives up."""

REST_SECONDS = 5.0
"""How long a pool that gave up starts nothing: what was missing, memory or a file, is there again or is not."""

LIFE_SECONDS = 10.0
"""A worker that lived this long did not die of its beginning."""

LEAVE_SECONDS_MAX = 5.0
"""How long workers may take to end once the pool is closed; then they are killed."""


class TaskPool:
    """Worker processes for work that would block an event loop.

    `handler` is a function of one value at the top of a module, or its name as `module:function`; values are bytes,
    or plain data (None, numbers, strings, lists, dicts). `tasks_max` tasks may be in the pool at once.

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
        if type(workers) is not int or not 1 <= workers <= WORKERS_MAX:
            raise UsageError(f"workers={workers!r} cannot be", code="pool.workers", hint=f"1 to {WORKERS_MAX}")
        self._region, self._handler, self._name, self._workers = region, checked_handler(handler), name, workers
        self._shape = Shape(
            seats=1 + workers,
            priorities=priorities,
            range=tasks_max,
            payload_max=payload_bytes_max + 1,
            result_max=max(RESULT_BYTES_MIN, result_bytes_max + 1),
            claims_max=claims_max,
        )
        self._offset = region.area(
            f"pool.{name}", self._shape.bytes, prepare=lambda offset: self._shape.prepare(region, offset)
        )
        self._shape.check(region, self._offset)
        self._tasks: dict[int, tuple[asyncio.Future[Any], Permit]] = {}
        self._room: deque[asyncio.Future[None]] = deque()
        self._processes: dict[int, SpawnProcess] = {}
        self._launching: set[SpawnProcess] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._deaths = self._restarts = self._excused = 0
        self._broken: InterlockError | None = None
        self._gave_up = 0.0
        self._running: Running | None = None
        self._pid = os.getpid()
        after_fork(self, TaskPool._inherit)

    def _inherit(self) -> None:
        """In a forked child: the workers are the parent's.

        `multiprocessing` ends all workers that it knows when a process exits, without a look at whose they are.
        """
        for process in (*self._processes.values(), *self._launching):
            getattr(multiprocessing.process, "_children", set()).discard(process)

    @property
    def pids(self) -> Mapping[int, SpawnProcess]:
        """The workers by their process ids."""
        return MappingProxyType(self._processes)

    @property
    def restarts(self) -> int:
        """How many workers were replaced after their death."""
        return self._restarts

    def __len__(self) -> int:
        """How many tasks are in the pool."""
        return len(self._tasks)

    async def start(self) -> None:
        """Take the owner's seat and start the workers; `async with` does it.

        Raises ConflictError while another process owns the pool, RejectedError when the region is draining.
        """
        if self._running is not None:
            raise UsageError("the pool has been started", code="pool.started", hint="once; make another to go on")
        seat = PoolMember.take(self._region, self._offset, self._shape, range(OWNER, OWNER + 1))
        if seat is None:
            raise ConflictError(f"pool `{self._name}` has an owner", code="pool.owner", hint="another name or region")
        try:
            life = Lifecycle(self._region)
        except BaseException:
            seat.leave()
            raise
        life.start()
        if life.phase is not Phase.RUNNING:
            seat.leave()
            life.leave()
            raise RejectedError(
                f"the region is {life.phase.name.lower()}", code="gate.not_running", hint="make a new region"
            )
        self._running = Running(self, self._region, self._offset, self._shape, seat, life)
        self._running.listen()
        for _ in range(self._workers):
            self._start_worker()
        await asyncio.wait(tuple(self._starting))  # not gather: whoever is cancelled here must not lose processes
        if self._broken is not None:
            raise self._broken

    def submit(self, payload: object, *, priority: int = 0) -> asyncio.Future[Any]:
        """Give a task to the pool; await what comes back for its result, or its error.

        Cancelling the future does not stop the handler. Raises UnavailableError when there is no room now (`pool.full`)
        or its workers cannot live (`pool.workers`; later it begins again), RejectedError when the region drains,
        UsageError for a payload or priority that cannot be.
        """
        running = self._opened()
        if type(priority) is not int or not 0 <= priority < self._shape.priorities:
            raise UsageError(
                f"priority={priority!r} cannot be", code="pool.priority", hint=f"0 to {self._shape.priorities - 1}"
            )
        data = encode_value(payload)
        permit = running.life.enter()
        if self._broken is not None:
            self._begin_again()
        full = len(self._tasks) >= self._shape.range
        task = 0 if full else running.seat.slab.submit(data, priority, False)
        if task in {0, TOO_LARGE}:
            running.life.exit(permit)
            raise self._refusal(len(data), full=not task)
        answer = running.loop.create_future()
        self._tasks[task] = answer, permit
        running.seat.slab.ring()
        return answer

    async def run(self, payload: object, *, priority: int = 0) -> Any:
        """Submit a task, waiting for room if the pool is full, and give its result."""
        while True:  # each round begins when a task has ended
            try:
                answer = self.submit(payload, priority=priority)
            except UnavailableError as error:
                if error.code != "pool.full" or not self._tasks:
                    raise
                await self._next_room()
            else:
                return await answer

    async def drain(self, *, timeout: float = 30.0) -> CloseReport:  # noqa: ASYNC109  # too late is told, not raised
        """Refuse new tasks, let the others end, close the region's lifecycle; then the workers end.

        When the time is over the report says `closed=False`; `close` then ends what still runs.
        """
        running = self._opened()
        report = await running.life.drain(timeout=timeout)
        if report.closed:
            await self._end(LEAVE_SECONDS_MAX)
        return report

    async def close(self) -> None:
        """End the workers now. Tasks that have not ended raise UnavailableError (`pool.closed`). Twice is harmless.

        In a forked child it does nothing.
        """
        if self._running is not None and not self._running.closed and self._pid == os.getpid():
            await self._end(0.0)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and self._broken is None and self._running is not None and not self._running.ended:
            await self.drain()
        await self.close()

    # What `pool_owner` calls

    def collect(self) -> None:
        """Give every ended task to whoever awaits it."""
        running = self._running
        assert running is not None
        ended = running.seat.slab.ended()
        for task, state, data in ended:
            running.seat.slab.release(task)
            known = self._tasks.pop(task, None)
            if known is None:
                continue  # of an owner before us, who died
            answer, permit = known
            if not answer.done():
                resolve(answer, state, data, self._shape.claims_max)
            running.life.exit(permit)
        if ended:
            self._deaths = 0
            self._tell_room(len(ended))

    def tend(self) -> None:
        """Reap dead workers, and find what they ended without ringing."""
        running = self._running
        assert running is not None
        listed, given_up = running.seat.reap_dead()
        self._excused += listed + given_up
        if listed:
            running.seat.slab.ring()
        self.collect()

    def worker_ended(self, pid: int) -> None:
        """A worker's process is gone: reap it at once, and put another in its place."""
        running = self._running
        process = self._processes.pop(pid, None)
        if running is None or process is None:
            return
        running.loop.remove_reader(process.sentinel)
        process.join()
        with suppress(ValueError):  # another thread, which starts a worker, may be waiting for the same one
            process.close()
        lived = monotonic() - running.born.pop(pid)
        running.worker_gone.set()
        self.tend()
        if running.ended or (running.life.phase is not Phase.RUNNING and not self._tasks):
            return
        if lived > LIFE_SECONDS:
            self._deaths = 0
        excused = self._excused > 0
        self._excused -= excused
        self._restarts += self._broken is None
        self._replace_worker(excused=excused)

    # Room

    async def _next_room(self) -> None:
        """Wait until there may be room: first come, first served."""
        room = self._opened().loop.create_future()
        self._room.append(room)
        try:
            await room
        except asyncio.CancelledError:
            if room.done() and not room.cancelled():
                self._tell_room(1)  # it was our turn: the next one's now
            raise

    def _tell_room(self, count: int) -> None:
        while count > 0 and self._room:
            room = self._room.popleft()
            if not room.done():
                room.set_result(None)
                count -= 1

    # Workers

    def _replace_worker(self, *, excused: bool = False) -> None:
        if self._running is None or self._running.ended or self._broken is not None:
            return
        self._deaths += not excused
        if self._deaths > DEATHS_MAX:
            self._give_up()
        else:
            self._start_worker()

    def _begin_again(self) -> None:
        """Somebody has a task, and the rest is over: start the workers that are missing."""
        self._broken, self._deaths, self._excused = None, 0, 0
        for _ in range(self._workers - len(self._processes) - len(self._starting)):
            self._start_worker()

    def _start_worker(self) -> None:
        running = self._running
        assert running is not None
        starting = running.loop.create_task(self._started_worker(running))
        self._starting.add(starting)
        starting.add_done_callback(self._worker_started)

    def _worker_started(self, starting: asyncio.Task[None]) -> None:
        self._starting.discard(starting)
        if not starting.cancelled() and starting.exception() is not None:  # no memory, no more processes
            self._replace_worker()

    async def _started_worker(self, running: Running) -> None:
        process = multiprocessing.get_context("spawn").Process(
            target=main,
            args=(Inherited(self._region.fd), Inherited(running.bell.fd), running.place, self._handler),
            name=f"interlock-{self._name}",
            daemon=True,
        )
        self._launching.add(process)
        try:
            await asyncio.shield(in_thread(process.start))  # writes to a pipe; the loop goes on
            pid = process.pid
            assert pid is not None
            self._processes[pid] = process
        finally:
            self._launching.discard(process)
        running.born[pid] = monotonic()
        running.loop.add_reader(process.sentinel, self.worker_ended, pid)
        if running.ended:
            process.kill()

    def _give_up(self) -> None:
        self._broken = UnavailableError(
            f"{DEATHS_MAX} workers of pool `{self._name}` died in a row and ended no task",
            code="pool.workers",
            hint="look at what they wrote when they died; often the handler's module cannot be imported there. "
            f"The pool begins again with the first task after {REST_SECONDS:g} seconds",
        )
        self._gave_up = monotonic()
        self._fail_tasks(self._broken)

    def _fail_tasks(self, error: InterlockError) -> None:
        running = self._running
        assert running is not None
        tasks, self._tasks = self._tasks, {}
        for answer, permit in tasks.values():
            if not answer.done():
                answer.set_exception(fresh(error))
            running.life.exit(permit)
        self._tell_room(len(self._room))

    async def _end(self, grace: float) -> None:
        """End the workers: they see that the lifecycle is closed, or are killed."""
        running = self._running
        assert running is not None
        running.ended = True
        running.wake_all()
        while self._starting:  # ends: nobody starts another once the pool has ended
            await asyncio.wait(tuple(self._starting))
        end = monotonic() + grace
        while self._processes and monotonic() < end:
            await running.next_end(end - monotonic())
        for process in self._processes.values():
            process.kill()
        while self._processes:  # ends: the kernel does not refuse
            await running.next_end(WAIT_SECONDS_MAX)
        self._fail_tasks(UnavailableError("the pool was closed", code="pool.closed", hint="submit it again elsewhere"))
        running.close()

    # Refusing

    def _opened(self) -> Running:
        running = self._running
        if running is None or running.ended:
            raise UsageError(
                f"pool `{self._name}` {'is not started' if running is None else 'has ended'}",
                code="pool.not_running",
                hint="async with TaskPool(...) as pool",
            )
        if self._pid != os.getpid() or asyncio.get_running_loop() is not running.loop:
            raise UsageError(
                "a pool belongs to the event loop that started it",
                code="pool.loop",
                hint="from a thread: asyncio.run_coroutine_threadsafe(pool.run(...), loop)",
            )
        if self._broken is not None and monotonic() - self._gave_up < REST_SECONDS:
            raise fresh(self._broken)
        return running

    def _refusal(self, size: int, *, full: bool) -> InterlockError:
        if full:
            return UnavailableError(
                f"pool `{self._name}` holds {self._shape.range} tasks, its maximum",
                code="pool.full",
                hint="await some of them, or `run`, which waits for room",
            )
        return UsageError(
            f"{size} bytes are too large for pool `{self._name}`",
            code="pool.payload_bytes",
            hint=f"at most {self._shape.payload_max - 1}: raise payload_bytes_max, or send a name",
        )
