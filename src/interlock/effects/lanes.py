"""One lane of work: claim what is due, run it, renew its leases, settle it.

Rule 1: nothing is polled that can be signalled. An append wakes the lanes of its own process, and those of other
processes where the store has signals (`ports.wakeups`). A poll finds what was not signalled.
Rule 2: running work is renewed at a third of its lease. When another worker has claimed it, its attempt is stopped,
unless it is already delivering its result: that append counts once, and a row that no longer exists is usually the
effect of it. When the work is cancelled, its attempt is informed: immediately by an entry of this process, at the next
renewal by one of another. The details of its heartbeats are stored with it. A
process that was suspended for longer than a lease continues its work if no other worker has claimed it: no second
attempt starts.
Rule 3: a store that cannot answer makes the lane wait and try again. It never ends the lane.
Rule 4: while the admission gate drains, no work is claimed. Running work holds a permit until it ends.
Rule 5: at the end, work that does not finish in time is requeued immediately, under the same key, without a failure. An
attempt that still runs and cannot be stopped is not requeued: its lease expires, and no second attempt starts before.
Rule 6: work that fails unexpectedly, or in a way that waiting cannot fix, is tried again like any other. After
`ATTEMPTS_MAX` attempts it is a dead letter with the reason, so that one bad row blocks nothing.
Rule 7: work of an entity that an operator holds is put back, without an attempt. While nothing is held, nothing is read
for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from enum import Enum
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.effects.pauses import HandlerPauses
from interlock.effects.retry import failure_from
from interlock.effects.waiting import first_of, log_failure, wait_until_empty
from interlock.errors import ConflictError, UnavailableError
from interlock.model.journal.attempts import PastAttempt, append_failed_attempt, failed_attempts
from interlock.model.journal.cause import cause_of
from interlock.model.journal.work import Lane, WorkId
from interlock.model.limits import ATTEMPTS_MAX, HELD_TARGET_MS, LEASE_MS, POLL_MS_MAX, STOP_MS_MAX
from interlock.ports.admission import AdmissionGate, AdmissionPermit
from interlock.ports.clock import Clock, wait_to_poll
from interlock.ports.delivery import is_held
from interlock.ports.work import Claim, Settlement, WorkQueue

_log = logging.getLogger("interlock.effects")

SKIPPED_WAIT_MS = 10
"""The wait before the next claim when due work was not given out: another process is claiming it just now."""


class StopReport(Struct, frozen=True):
    """The state of running work when a worker stopped: finished, requeued, or still running under its lease."""

    finished: int = 0
    requeued: int = 0
    still_running: int = 0


class RunningWork:
    """A piece of work that this process runs. It changes only by its own methods.

    `claim` is the claim as last renewed; `cancel_requested` is set once the work is cancelled. `heartbeats` counts the
    signs of life of the attempt, and `details` is what the newest of them said, encoded. `delivering_result`: only the
    append that ends the work remains, so the attempt is no longer stopped. `releasing`: the claim is being
    settled, so it is no longer renewed. `cause` is that of the result: the cause of the work, or the span of the
    attempt.
    """

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.cause = cause_of(claim.work.body)
        self.cancel_requested = asyncio.Event()
        self.heartbeats = 0
        self.details: bytes | None = None
        self.delivering_result = False
        self.releasing = False
        self._attempt: asyncio.Future[Any] | None = None
        self._last_failure: dict[str, Any] = {}
        self._saved_details: bytes | None = None
        self.update(claim)

    def update(self, claim: Claim) -> None:
        """Replace the claim: its lease was renewed, or it was claimed once more."""
        self.claim = claim
        if claim.cancelled:
            self.cancel_requested.set()

    def start_attempt(self, attempt: asyncio.Future[Any]) -> None:
        """Record the future that is done when nothing of the attempt runs any more."""
        self._attempt = attempt

    @property
    def attempt(self) -> asyncio.Future[Any] | None:
        """The future that is done when the attempt has ended; None before it starts."""
        return self._attempt

    @property
    def is_running(self) -> bool:
        """Whether something of the attempt still runs."""
        return self._attempt is not None and not self._attempt.done()

    def deliver_result(self) -> None:
        """From now on only the append that ends the work is left to do."""
        self.delivering_result = True

    def release(self) -> None:
        """From now on the claim is being settled; a new claim of this work starts a new attempt."""
        self.releasing = True

    def restore(self, stored: dict[str, Any]) -> None:
        """Record what the store has with the work: why it last failed, and its failed attempts."""
        self._last_failure = stored

    def fail_attempt(self, failed: PastAttempt) -> None:
        """Record that an attempt failed; it is stored with the work when its claim is settled."""
        self._last_failure = append_failed_attempt(self._last_failure, failed)

    @property
    def failed_attempts(self) -> tuple[PastAttempt, ...]:
        """The failed attempts, oldest first."""
        return failed_attempts(self._last_failure)

    def beat(self, details: bytes | None) -> None:
        """Record a heartbeat, with its encoded details if it has any. May be called from any thread."""
        self.heartbeats += 1
        if details is not None:
            self.details = details

    @property
    def has_unsaved_details(self) -> bool:
        """Whether the newest details are not stored yet."""
        return self.details != self._saved_details

    def mark_saved(self, details: bytes | None) -> None:
        """Record that these details are stored."""
        self._saved_details = details

    def facts(self, **failure: Any) -> dict[str, Any] | None:
        """Return what is stored with the work: the newest failure and the newest details."""
        found = {**self._last_failure, **failure}
        if self.details is not None:
            found["details"] = msgspec.json.decode(self.details)
        return found or None


Perform = Callable[[RunningWork], Awaitable[Settlement | None]]
"""Runs a piece of work. Returns how its claim is settled, or None when an append has ended the work."""


class WorkHolds(Protocol):
    """The holds of a store: which claimed work is put back."""

    async def refresh(self) -> None:
        """Learn of new holds, at most once in a while."""

    def may_wait(self, entity: str) -> bool:
        """Whether the work of an entity may have to wait. It reads nothing."""

    async def put_back(self, claim: Claim) -> Settlement | None:
        """Return how claimed work is put back; None if its entity is not held."""

    async def release_if_resumed(self, claim: Claim) -> None:
        """Make work due that was just put back, if the hold of its entity has ended meanwhile."""


class _Claimed(Enum):
    """The result of a look for work: there was some, there was none, or none could be claimed, however much is due."""

    SOME = "some"
    NOTHING = "nothing"
    NOT_NOW = "not_now"


class LaneWorker:
    """Claims and runs the work of one lane, several pieces at a time."""

    def __init__(
        self,
        queue: WorkQueue,
        lane: Lane,
        perform: Perform,
        clock: Clock,
        *,
        owner: str,
        running_max: int,
        names: tuple[str, ...] | None = None,
        lease_ms: int = LEASE_MS,
        gate: AdmissionGate | None = None,
        pauses: HandlerPauses | None = None,
        holds: WorkHolds | None = None,
    ) -> None:
        self._pauses = pauses
        self._holds = holds
        self._queue = queue
        self._lane = lane
        self._perform = perform
        self._clock = clock
        self._owner = owner
        self._running_max = running_max
        self._names = names
        self._lease_ms = lease_ms
        self._gate = gate
        self._running: dict[asyncio.Task[None], RunningWork] = {}
        self._running_by_id: dict[tuple[str, WorkId], list[RunningWork]] = {}
        self._signal = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._stopping = False
        self._renewer: asyncio.Task[None] | None = None
        self._finished = 0
        self._cancelled: dict[asyncio.Task[None], RunningWork] = {}
        self._unsettled: list[Settlement] = []
        self._settler: asyncio.Task[None] | None = None
        self._settling: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Look for work now."""
        self._signal.set()

    def cancel(self, entity: str, work_id: WorkId) -> None:
        """Notify a piece of work that is running here that an entry has cancelled it."""
        for work in self._running.values():
            if work.claim.entity == entity and work.claim.work.id == work_id and not work.delivering_result:
                work.update(replace(work.claim, cancelled=True))

    @property
    def running(self) -> int:
        """How many pieces of work are running."""
        return len(self._running)

    @property
    def has_room(self) -> bool:
        """Whether it can start another piece of work now."""
        return not self._stopping and len(self._running) < self._running_max

    async def run(self) -> None:
        """Claim and run work until `stop`. The loop is endless on purpose."""
        self._renewer = asyncio.ensure_future(self._renew_forever())
        try:
            async with self._claiming:
                while not self._stopping:
                    self._signal.clear()
                    claimed = await self._claim_some()
                    if claimed is _Claimed.NOTHING:
                        await self._wait(due_ms=await self._until_due_ms())
                    elif claimed is _Claimed.NOT_NOW:
                        await self._wait(due_ms=None)
        except BaseException:
            self._renewer.cancel()
            raise

    def stop_claiming(self) -> None:
        """Leave work that is not running yet to others; `stop` follows."""
        self._stopping = True
        self.wake()

    async def stop(self, timeout_ms: float) -> None:
        """Claim no more work, let running work finish in time, with its leases renewed, and cancel what remains."""
        self.stop_claiming()
        async with self._claiming:  # a claim under way ends first: what it claimed is running too
            pass
        await wait_until_empty(self._clock, timeout_ms, lambda: self._running)
        self._cancelled = dict(self._running)
        for task in self._cancelled:
            task.cancel()
        await wait_until_empty(self._clock, STOP_MS_MAX, self._unfinished)

    async def requeue_unfinished(self) -> StopReport:
        """Requeue what did not finish, except attempts that still run; return the counts."""
        if self._renewer is not None:
            self._renewer.cancel()
        await asyncio.gather(*self._settling)
        requeued = [work for task, work in self._cancelled.items() if task.cancelled() and not work.is_running]
        unfinished = [task for task, work in self._cancelled.items() if not task.done() or work.is_running]
        now_ms = self._clock.now_ms()
        await self._settle(
            tuple(
                Settlement(work.claim, "again", now_ms, error=work.facts(), without_failure=True) for work in requeued
            )
        )
        return StopReport(self._finished, len(requeued), len(unfinished))

    def _unfinished(self) -> list[asyncio.Future[Any]]:
        """Return what was cancelled and has not ended. A thread cannot be cancelled, so it is not waited for."""
        attempts = (work.attempt for work in self._cancelled.values())
        running = (each for each in attempts if isinstance(each, asyncio.Task) and not each.done())
        return [*(task for task in self._cancelled if not task.done()), *running]

    # Claiming

    def _may_claim(self) -> bool:
        """Whether there is room, and the gate is open."""
        if len(self._running) >= self._running_max:
            return False
        permit = self._enter()
        if permit is None:
            return False
        with permit:
            return True

    def _enter(self) -> AdmissionPermit | None:
        return nullcontext() if self._gate is None else self._gate.try_enter()

    async def _claim_some(self) -> _Claimed:
        """Claim work and start it."""
        if not self._may_claim():
            return _Claimed.NOT_NOW
        room, now_ms = self._running_max - len(self._running), self._clock.now_ms()
        try:
            names = await self._running_names()
            if names == ():
                return _Claimed.NOTHING
            if self._holds is not None:
                await self._holds.refresh()
            claims = await self._queue.claim(
                self._lane, names, owner=self._owner, now_ms=now_ms, until_ms=now_ms + self._lease_ms, limit=room
            )
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the lane continues
            self._log_failure("work cannot be claimed", error)
            return _Claimed.NOT_NOW
        for claim in claims:
            if self._is_ours_again(claim):
                continue
            permit = self._enter()
            if permit is None:  # the drain started meanwhile
                await self._settle((Settlement(claim, "again", now_ms, without_failure=True, started=False),))
                continue
            work = RunningWork(claim)
            task = asyncio.ensure_future(self._run(work, permit))
            self._running[task] = work
            self._running_by_id.setdefault((claim.entity, claim.work.id), []).append(work)
            task.add_done_callback(self._on_done)
        return _Claimed.SOME if claims else _Claimed.NOTHING

    async def _running_names(self) -> tuple[str, ...] | None:
        """Return the names whose work may be claimed now: without those of paused handlers."""
        if self._pauses is None or self._names is None:
            return self._names
        return await self._pauses.running_names(self._names)

    def _is_ours_again(self, claim: Claim) -> bool:
        """Whether this process runs the work already: its lease expired while the process was suspended."""
        for work in self._running_by_id.get((claim.entity, claim.work.id), ()):
            if work.claim.failures == claim.failures:
                if work.releasing:
                    return False
                work.update(claim)
                return True
        return False

    def _on_done(self, task: asyncio.Task[None]) -> None:
        work = self._running.pop(task)
        identity = work.claim.entity, work.claim.work.id
        same = self._running_by_id[identity]
        same.remove(work)
        if not same:
            del self._running_by_id[identity]
        self._finished += self._stopping and not task.cancelled()
        self.wake()

    async def _wait(self, due_ms: float | None) -> None:
        """Wait for a signal, until work is due, or until the next poll for work of other processes."""
        await first_of(self._signal.wait(), wait_to_poll(self._clock, POLL_MS_MAX, due_ms=due_ms))

    async def _until_due_ms(self) -> float | None:
        try:
            names = await self._running_names()
            next_ms = None if names == () else await self._queue.next_due_ms(self._lane, names)
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the lane continues
            self._log_failure("the next due work cannot be read", error)
            return None
        pause_ms = None if self._pauses is None else self._pauses.next_end_ms()
        if pause_ms is not None:
            next_ms = pause_ms if next_ms is None else min(next_ms, pause_ms)
        if next_ms is None:
            return None
        wait_ms = next_ms - self._clock.now_ms()
        return wait_ms if wait_ms > 0 else SKIPPED_WAIT_MS

    # Running

    async def _run(self, work: RunningWork, permit: AdmissionPermit) -> None:
        holds = self._holds if self._holds is not None and self._holds.may_wait(work.claim.entity) else None
        with permit:
            put_back = None
            try:
                put_back = None if holds is None else await holds.put_back(work.claim)
                settlement = await self._perform(work) if put_back is None else put_back
            except Exception as error:  # noqa: BLE001 - the store or the entity could not answer: not a failed attempt
                if not is_held(error):
                    self._log_failure("work is postponed", error, key=work.claim.key)
                settlement = self._postpone(work, error)
            if settlement is not None:
                if settlement.verdict == "dead":
                    facts = {"lane": self._lane, "entity_id": work.claim.entity, "key": work.claim.key}
                    _log.error("a dead letter needs attention", extra={**facts, "error": settlement.error})
                work.release()
                await self._settle_together(replace(settlement, claim=work.claim))
            if holds is not None and put_back is not None:
                await self._release_if_resumed(holds, work.claim)

    async def _release_if_resumed(self, holds: WorkHolds, claim: Claim) -> None:
        try:
            await holds.release_if_resumed(claim)
        except Exception as error:  # noqa: BLE001 - the work comes back by itself, later
            self._log_failure("work that was held is late", error, key=claim.key)

    def _postpone(self, work: RunningWork, error: Exception) -> Settlement:
        if work.claim.attempt >= ATTEMPTS_MAX and not isinstance(error, ConflictError | UnavailableError):
            failure = failure_from(error)
            return Settlement(work.claim, "dead", error={"code": failure.code, "message": failure.message})
        wait_ms = HELD_TARGET_MS if is_held(error) else POLL_MS_MAX
        next_ms = self._clock.now_ms() + round(wait_ms * self._clock.jitter())
        return Settlement(work.claim, "again", next_ms, error=work.facts(), without_failure=True)

    async def _settle_together(self, settlement: Settlement) -> None:
        """Settle a claim, in one call with all that are settled in the same round of the event loop."""
        self._unsettled.append(settlement)
        if len(self._unsettled) == 1:
            self._settler = asyncio.ensure_future(self._settle_unsettled())
            self._settling.add(self._settler)  # the loop holds tasks weakly
            self._settler.add_done_callback(self._settling.discard)
        assert self._settler is not None
        await asyncio.shield(self._settler)  # it settles claims of others, too

    async def _settle_unsettled(self) -> None:
        settlements, self._unsettled = tuple(self._unsettled), []
        await self._settle(settlements)

    async def _settle(self, settlements: tuple[Settlement, ...]) -> None:
        if not settlements:
            return
        try:
            await self._queue.settle(settlements, now_ms=self._clock.now_ms())
        except Exception as error:  # noqa: BLE001 - the lease expires, and the work runs again under its key
            if len(settlements) == 1 or isinstance(error, UnavailableError):
                self._log_failure("work cannot be settled", error)
                return
            for each in settlements:  # one of them cannot be stored, and must not hold up the others
                await self._settle((each,))

    def _log_failure(self, message: str, error: Exception, **fields: object) -> None:
        log_failure(_log, message, error, lane=self._lane, **fields)

    # Renewing

    async def _renew_forever(self) -> None:
        """Renew the leases of running work. The loop is endless on purpose; `requeue_unfinished` cancels it."""
        third_ms = self._lease_ms / 3
        while True:
            await wait_to_poll(self._clock, third_ms, at_most_ms=third_ms if self._running else None)
            held = {task: work for task, work in self._running.items() if not work.releasing}
            if held:
                await self._renew(held)

    async def _renew(self, running: dict[asyncio.Task[None], RunningWork]) -> None:
        claims = tuple(work.claim for work in running.values())
        try:
            renewed = await self._queue.renew(claims, until_ms=self._clock.now_ms() + self._lease_ms)
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the lane continues
            self._log_failure("leases cannot be renewed", error)
            return
        for (task, work), claim in zip(running.items(), renewed, strict=True):
            if claim is not None:
                work.update(claim)
                await self._save_details(work)
            elif not (work.delivering_result or work.releasing):
                task.cancel()  # another worker has claimed it, or it is finished

    async def _save_details(self, work: RunningWork) -> None:
        """Store the details of heartbeats since the last renewal."""
        details = work.details
        if not work.has_unsaved_details:
            return
        try:
            await self._queue.save_details(work.claim, work.facts())
        except Exception as error:  # noqa: BLE001 - they are stored with the next renewal
            self._log_failure("heartbeat details cannot be stored", error)
        else:
            work.mark_saved(details)
