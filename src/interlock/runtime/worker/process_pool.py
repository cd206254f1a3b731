"""Handlers that keep a processor busy, in processes of their own, so that the event loop goes on.

Rule 1: the pool begins with the first such handler that is called, and ends with the worker.
Rule 2: a function is found in the pool's processes by its module and name, so it stands at the top of a module.
Rule 3: what it raises comes back as it would from here; a process that dies has its attempt run again, under its key.
Rule 4: heartbeats are heard from there as from here; only `cancelled` is not known there.
Rule 5: an attempt that is given up (its time is over, its state was left, its worker stops) has its process killed, and
another process takes its place; what it had started itself, such as processes of its own, is its own matter.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from interlock.effects.handlers import Attempt
from interlock.effects.retry import Failure, HandlerFailed, failure_from
from interlock.effects.user_functions import as_exception
from interlock.errors import UsageError
from interlock.model.json_value import payload_refusal
from interlock.model.limits import DETAILS_BYTES_MAX, PAYLOAD_BYTES_MAX, STOP_MS_MAX
from interlock.runtime.worker.process_heartbeats import HeartbeatListener, heartbeat_sender
from interlock.runtime.worker.running_attempts import RunningAttempts, attempt_connection
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.pool.pool import TaskPool

PROCESSES_MAX = 8
"""Processes of one runtime for busy handlers: as many as there are processors, and no more than this."""

TASKS_MAX = 16
"""Attempts in the pool at once: enough to keep every process busy; the others wait for room."""

REGION_BYTES = 67_108_864
"""Room for the largest inputs and results of as many tasks in all processes; touched only where it is used."""

_ENVELOPE_BYTES = 4_096 + DETAILS_BYTES_MAX
"""Room around an input or a result: names, key, an error's message, and what the attempt before told."""


class ProcessPool:
    """Runs functions in worker processes."""

    def __init__(self, token: str = "") -> None:
        self._token = token
        self._beats: HeartbeatListener | None = None
        self._holds: RunningAttempts | None = None
        self._pool: TaskPool | None = None
        self._region: MemoryRegion | None = None
        self._beginning: asyncio.Task[TaskPool] | None = None

    async def run(self, function: Callable[[Attempt], Any], attempt: Attempt) -> Any:
        """What the function returns for an attempt. Raises what it raised, as far as that is known here.

        Whoever cancels it ends the process, and has it ended when this has.
        """
        pool = await self._begun()
        beats, holds = self._beats, self._holds
        assert beats is not None  # both begin with the pool
        assert holds is not None
        with beats.heard(attempt.beat) as number, holds.wanted(number):
            task = {
                "function": address_of(function),
                "attempt": [attempt.entity, attempt.name, attempt.input, attempt.key, attempt.number],
                "timeout_ms": attempt.timeout_ms,
                "details": attempt.details,
                "tells": [beats.address, number],
                "held": [holds.address, number],
            }
            try:
                answer = await pool.run(task)
            except asyncio.CancelledError:
                await self._killed(pool, holds, number)
                raise
        if "failed" in answer:
            raise HandlerFailed(Failure(*answer["failed"]))
        return answer["value"]

    async def _killed(self, pool: TaskPool, holds: RunningAttempts, number: int) -> None:
        """End the process that is at an attempt, if there is one; the pool begins another."""
        hold = holds.give_up(number)
        process = None if hold is None else pool.pids.get(hold.pid)
        if hold is None or process is None:
            return
        with suppress(ValueError):  # it has ended just now
            process.kill()
        with suppress(TimeoutError):  # a process of its own may have the connection, too
            async with asyncio.timeout(STOP_MS_MAX / 1000):
                await hold.gone.wait()

    async def _begun(self) -> TaskPool:
        """The pool; whoever is cancelled while it begins leaves it to the others."""
        if self._beginning is None or (self._beginning.done() and self._pool is None):
            self._beginning = asyncio.ensure_future(self._begin())
        return await asyncio.shield(self._beginning)

    async def _begin(self) -> TaskPool:
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
        self._beats, self._holds = HeartbeatListener(self._token), RunningAttempts(self._token)
        self._region, self._pool = region, pool
        return pool

    async def close(self) -> None:
        """End the processes; what they still have in hand was put back, and another will do it."""
        if self._beginning is not None:
            await asyncio.wait({self._beginning})
        if self._pool is not None:
            await self._pool.close()
            self._pool = None
        if self._beats is not None:
            self._beats.close()
            self._beats = None
        if self._holds is not None:
            self._holds.close()
            self._holds = None
        if self._region is not None:
            self._region.close()
            self._region = None


def address_of(function: Callable[..., Any]) -> str:
    """`module:name` of a function that another process can find. Raises UsageError for any other."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not name or not all(part.isidentifier() for part in name.split(".")):
        hint = "move it to the top of a module that can be imported"
        raise UsageError(f"no other process can find {function!r:.120}", code="handler.cpu", hint=hint)
    return f"{module}:{name}"


def perform(task: dict[str, Any]) -> dict[str, Any]:
    """One attempt, in a process of the pool, unless nobody waits for it any more."""
    with attempt_connection(*task["held"]) as wanted:
        return _performed(task) if wanted else {"failed": ["called_off", "nobody waits for it any more", "no"]}


def _performed(task: dict[str, Any]) -> dict[str, Any]:
    module, _, name = task["function"].partition(":")
    function: Any = import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    entity, handler, given, key, number = task["attempt"]
    try:
        with heartbeat_sender(*task["tells"]) as tell:
            timeout_ms, details = task["timeout_ms"], task["details"]
            value = function(Attempt(entity, handler, given, key, number, timeout_ms, asyncio.Event(), details, tell))
    except BaseException as error:  # noqa: BLE001 - whatever it raises is its answer
        failed = failure_from(as_exception(error))
        return {"failed": [failed.code, failed.message, failed.done]}
    problem = payload_refusal(value)
    if problem is not None:
        return {"failed": ["result.malformed", f"what `{handler}` returned cannot be kept: {problem}", "unknown"]}
    return {"value": value}
