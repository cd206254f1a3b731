"""One lane of work taken up, held and let go: claim what is due, perform it, renew the lease, settle.

Rule 1: nothing is polled that can be signalled: an append of this process wakes its loops; what others leave is found
when it is due or at the next look, whichever is sooner.
Rule 2: work in hand is renewed at a third of its lease, until nobody here has it in hand any more. What was lost to
another is stopped, unless its end is being brought: that append counts once, whoever else brings it, and a row that is
gone is most often its doing. What was called off is told so; what it tells of itself is kept beside it. A process that
stood still for longer than a lease, and lost nothing to others by that, goes on with what it has: nothing begins beside
it.
Rule 3: a store that cannot answer makes the loop wait and try again; it never ends the loop.
Rule 4: behind a door that drains nothing is taken up any more; what is in hand holds a permit until it ends.
Rule 5: at the end, work that does not finish in time is put back at once, under the same key, without a failure; but
not what still runs and cannot be stopped: its lease lapses, and nothing begins beside it before that.
Rule 6: what fails in a way that nobody foresaw, or that no waiting mends, is tried again like anything else, and after
`ATTEMPTS_MAX` attempts is a dead letter with the reason: one bad row holds nothing up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import nullcontext
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.effects.retry import failure_from
from interlock.errors import ConflictError, InterlockError, UnavailableError
from interlock.model.journal.work import Lane
from interlock.model.limits import ATTEMPTS_MAX, LEASE_MS, LOOK_MS_MAX, STOP_MS_MAX
from interlock.ports.admission import AdmissionGate, AdmissionPermit
from interlock.ports.clock import Clock, wait_to_poll
from interlock.ports.work import Claim, Settlement, WorkNotes, WorkStore

_log = logging.getLogger("interlock.effects")

PASSED_OVER_WAIT_MS = 10
"""Before the next look at work that is due and was not given out: another has its hand on it just now."""


class StopReport(Struct, frozen=True):
    """What became of the work in hand when a worker stopped: finished, put back, or left running with its lease."""

    finished: int = 0
    put_back: int = 0
    left: int = 0


class RunningWork:
    """Work in hand: the claim as it last stood, a signal that it was called off, and what is known of its attempt.

    `ended` is done when nothing of the attempt runs any more. `known` stands beside the work in the store: why it last
    failed. `beats` counts signs of life, `told` is the newest of what they said, encoded; both are set from any thread.
    `bringing`: all that is left to do is an append that ends it; it is held on to, and not stopped any more.
    `settling`: it is being let go: it is not held any longer, and whoever takes the work up now begins anew.
    """

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.called_off = asyncio.Event()
        self.ended: asyncio.Future[Any] | None = None
        self.known: dict[str, Any] = {}
        self.beats = 0
        self.told: bytes | None = None
        self.noted: bytes | None = None
        self.bringing = False
        self.settling = False
        self.stands(claim)

    def stands(self, claim: Claim) -> None:
        """Take note of the claim as it stands now: held longer, or taken up once more."""
        self.claim = claim
        if claim.cancelled:
            self.called_off.set()

    @property
    def runs(self) -> bool:
        """Whether something of the attempt still runs."""
        return self.ended is not None and not self.ended.done()

    def facts(self, **failure: Any) -> dict[str, Any] | None:
        """What is to stand beside the work: why it failed, now or before, and the details it told."""
        found = {**self.known, **failure}
        if self.told is not None:
            found["details"] = msgspec.json.decode(self.told)
        return found or None


Perform = Callable[[RunningWork], Awaitable[Settlement | None]]
"""Does the work: how the claim is settled, or None when an append has ended it."""


class LaneWorker:
    """Takes up the work of one lane, some pieces side by side."""

    def __init__(
        self,
        store: WorkStore,
        lane: Lane,
        perform: Perform,
        clock: Clock,
        *,
        owner: str,
        running_max: int,
        names: tuple[str, ...] | None = None,
        lease_ms: int = LEASE_MS,
        door: AdmissionGate | None = None,
    ) -> None:
        self._store = store
        self._lane = lane
        self._perform = perform
        self._clock = clock
        self._owner = owner
        self._running_max = running_max
        self._names = names
        self._lease_ms = lease_ms
        self._door = door
        self._running: dict[asyncio.Task[None], RunningWork] = {}
        self._signal = asyncio.Event()
        self._looking = asyncio.Lock()
        self._stopping = False
        self._renewer: asyncio.Task[None] | None = None
        self._finished = 0
        self._rest: dict[asyncio.Task[None], RunningWork] = {}

    def wake(self) -> None:
        """There may be work now."""
        self._signal.set()

    @property
    def in_hand(self) -> int:
        """How many pieces of work are being performed."""
        return len(self._running)

    async def run(self) -> None:
        """Take up work until `stop`. An endless loop by intent."""
        self._renewer = asyncio.ensure_future(self._renewing())
        try:
            async with self._looking:
                while not self._stopping:
                    self._signal.clear()
                    took = await self._took_some()
                    if not took:
                        await self._until_woken(due_ms=None if took is None else await self._until_due_ms())
        except BaseException:
            self._renewer.cancel()
            raise

    def take_no_more(self) -> None:
        """Leave what is not in hand yet to others; `stop` follows."""
        self._stopping = True
        self.wake()

    async def stop(self, timeout_ms: float) -> None:
        """Take up nothing more, and let what is in hand finish in time, held as long as it takes; cancel the rest."""
        self.take_no_more()
        async with self._looking:  # a claim under way ends first: what it took up is in hand, too
            pass
        await self._within(timeout_ms, lambda: self._running)
        self._rest = dict(self._running)
        for task in self._rest:
            task.cancel()
        await self._within(STOP_MS_MAX, self._unfinished)

    async def put_back(self) -> StopReport:
        """Let go of what did not finish, for others; not of what still runs. Tell how it ended."""
        if self._renewer is not None:
            self._renewer.cancel()
        back = [held for task, held in self._rest.items() if task.cancelled() and not held.runs]
        left = [task for task, held in self._rest.items() if not task.done() or held.runs]
        now = self._clock.now_ms()
        await self._settled(
            tuple(Settlement(held.claim, "again", now, error=held.facts(), lapsed=True) for held in back)
        )
        return StopReport(self._finished, len(back), len(left))

    async def _within(self, timeout_ms: float, pending: Callable[[], Collection[asyncio.Future[Any]]]) -> None:
        """Wait until nothing is pending, for so long at most."""
        waiting = asyncio.ensure_future(self._clock.sleep_ms(timeout_ms))
        try:
            while (those := set(pending())) and not waiting.done():
                await asyncio.wait({waiting, *those}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    def _unfinished(self) -> list[asyncio.Future[Any]]:
        """What was cancelled and has not ended. A thread heard nothing of that: it is not waited for."""
        ends = (held.ended for held in self._rest.values())
        runs = (each for each in ends if isinstance(each, asyncio.Task) and not each.done())
        return [*(task for task in self._rest if not task.done()), *runs]

    # Taking up

    async def _took_some(self) -> bool | None:
        """Whether anything was taken up; None when nothing could be, however much is due."""
        room = self._running_max - len(self._running)
        if room <= 0 or not self._is_open():
            return None
        now = self._clock.now_ms()
        try:
            claims = await self._store.claim(
                self._lane, self._names, owner=self._owner, now_ms=now, until_ms=now + self._lease_ms, limit=room
            )
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the lane goes on
            self._say("work cannot be claimed", error)
            return None
        for claim in claims:
            if self._goes_on(claim):
                continue
            permit: AdmissionPermit | None = nullcontext() if self._door is None else self._door.try_enter()
            if permit is None:  # it began to drain meanwhile
                await self._settled((Settlement(claim, "again", now, lapsed=True, begun=False),))
                continue
            held = RunningWork(claim)
            task = asyncio.ensure_future(self._performed(held, permit))
            self._running[task] = held
            task.add_done_callback(self._let_go)
        return bool(claims)

    def _goes_on(self, claim: Claim) -> bool:
        """Whether it is in hand here already: its lease lapsed while the process stood still, and nobody came."""
        for held in self._running.values():
            mine = held.claim
            if (mine.entity, mine.work.place, mine.failures) == (claim.entity, claim.work.place, claim.failures):
                if held.settling:
                    return False
                held.stands(claim)
                return True
        return False

    def _is_open(self) -> bool:
        """Whether anything may be taken up: not while the process is to stop."""
        permit: AdmissionPermit | None = nullcontext() if self._door is None else self._door.try_enter()
        if permit is None:
            return False
        with permit:
            return True

    def _let_go(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._finished += self._stopping and not task.cancelled()
        self.wake()

    async def _until_woken(self, due_ms: float | None) -> None:
        """Wait for a signal, until work is due, or until it is time to look for work that other processes added."""
        waits: set[asyncio.Future[Any]] = {
            asyncio.ensure_future(self._signal.wait()),
            asyncio.ensure_future(wait_to_poll(self._clock, LOOK_MS_MAX, due_ms=due_ms)),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _until_due_ms(self) -> float | None:
        try:
            soonest = await self._store.soonest(self._lane, self._names)
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the lane goes on
            self._say("work cannot be looked up", error)
            return None
        if soonest is None:
            return None
        wait = soonest - self._clock.now_ms()
        return wait if wait > 0 else PASSED_OVER_WAIT_MS

    # In hand

    async def _performed(self, held: RunningWork, permit: AdmissionPermit) -> None:
        with permit:
            try:
                settled = await self._perform(held)
            except Exception as error:  # noqa: BLE001 - the store or the entity could not answer: no failure of the work
                self._say("work is put off", error, key=held.claim.key)
                settled = self._put_off(held, error)
            if settled is not None:
                if settled.verdict == "dead":
                    facts = {"lane": self._lane, "entity_id": held.claim.entity, "key": held.claim.key}
                    _log.error("a dead letter waits for a person", extra={**facts, "error": settled.error})
                held.settling = True
                await self._settled((replace(settled, claim=held.claim),))

    def _put_off(self, held: RunningWork, error: Exception) -> Settlement:
        if held.claim.attempt >= ATTEMPTS_MAX and not isinstance(error, ConflictError | UnavailableError):
            failed = failure_from(error)
            return Settlement(held.claim, "dead", error={"code": failed.code, "message": failed.message})
        wait = LOOK_MS_MAX * self._clock.jitter()
        return Settlement(held.claim, "again", self._clock.now_ms() + round(wait), error=held.facts(), lapsed=True)

    async def _settled(self, settled: tuple[Settlement, ...]) -> None:
        if not settled:
            return
        try:
            await self._store.settle(settled, now_ms=self._clock.now_ms())
        except Exception as error:  # noqa: BLE001 - the lease lapses, and the work is done again under its key
            self._say("work cannot be settled", error)

    def _say(self, message: str, error: Exception, **facts: object) -> None:
        """Tell what went wrong; with its traceback when nobody expected it."""
        expected = isinstance(error, InterlockError)
        code = error.code if isinstance(error, InterlockError) else type(error).__name__
        facts = {"lane": self._lane, "code": code, **facts}
        _log.warning(message, exc_info=None if expected else error, extra=facts)

    async def _renewing(self) -> None:
        """Hold on to what is in hand. An endless loop by intent; it ends when the rest is put back."""
        while True:
            await wait_to_poll(
                self._clock, self._lease_ms / 3, at_most_ms=self._lease_ms / 3 if self._running else None
            )
            held = {task: each for task, each in self._running.items() if not each.settling}
            if held:
                await self._renewed(held)

    async def _renewed(self, running: dict[asyncio.Task[None], RunningWork]) -> None:
        claims = tuple(held.claim for held in running.values())
        try:
            renewed = await self._store.renew(claims, until_ms=self._clock.now_ms() + self._lease_ms)
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the lane goes on
            self._say("leases cannot be renewed", error)
            return
        for (task, held), claim in zip(running.items(), renewed, strict=True):
            if claim is not None:
                held.stands(claim)
                await self._noted(held)
            elif not (held.bringing or held.settling):
                task.cancel()  # another has it, or it is answered

    async def _noted(self, held: RunningWork) -> None:
        """Keep what an attempt told since the last time."""
        told = held.told
        if told == held.noted or not isinstance(self._store, WorkNotes):
            return
        try:
            await self._store.note(held.claim, held.facts())
        except Exception as error:  # noqa: BLE001 - it is told again with the next renewal
            self._say("details cannot be kept", error)
        else:
            held.noted = told
