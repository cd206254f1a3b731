"""One lane of work taken up, held and let go: claim what is due, perform it, renew the lease, settle.

Rule 1: nothing is polled that can be signalled: an append of this process wakes its loops; what others leave is found
when it is due or at the next look, whichever is sooner.
Rule 2: work in hand is renewed at a third of its lease. What was lost to another is stopped; what was called off is
told so.
Rule 3: a store that cannot answer makes the loop wait and try again; it never ends the loop.
Rule 4: behind a door that drains nothing is taken up any more; what is in hand holds a permit until it ends.
Rule 5: at the end, work that does not finish in time is put back at once, under the same key, without a failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

from interlock.errors import InterlockError
from interlock.model.limits import LEASE_MS, LOOK_MS_MAX
from interlock.model.work import Lane
from interlock.ports.clock import Clock
from interlock.ports.door import Door, Pass
from interlock.ports.work import Claim, Settled, WorkStore

_log = logging.getLogger("interlock.effects")


class Held:
    """Work in hand: the claim as it last stood, and a signal that it was called off."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.called_off = asyncio.Event()
        if claim.cancelled:
            self.called_off.set()


Perform = Callable[[Held], Awaitable[Settled | None]]
"""Does the work: how the claim is settled, or None when an append has ended it."""


class LaneLoop:
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
        door: Door | None = None,
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
        self._running: dict[asyncio.Task[None], Held] = {}
        self._signal = asyncio.Event()
        self._looking = asyncio.Lock()
        self._stopping = False

    def wake(self) -> None:
        """There may be work now."""
        self._signal.set()

    @property
    def in_hand(self) -> int:
        """How many pieces of work are being performed."""
        return len(self._running)

    async def run(self) -> None:
        """Take up work until `drain`. An endless loop by intent."""
        renewing = asyncio.ensure_future(self._renewing())
        try:
            async with self._looking:
                while not self._stopping:
                    self._signal.clear()
                    took = await self._took_some()
                    if not took:
                        await self._until_woken(look_ms=LOOK_MS_MAX if took is None else None)
        finally:
            renewing.cancel()

    async def drain(self, timeout_ms: float) -> int:
        """Take up nothing more, let what is in hand finish in time, put the rest back; give how many were put back."""
        self._stopping = True
        self.wake()
        async with self._looking:  # a claim under way ends first: what it took up is in hand, too
            pass
        waiting = asyncio.ensure_future(self._clock.sleep_ms(timeout_ms))
        while self._running and not waiting.done():
            await asyncio.wait({waiting, *self._running}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        rest = dict(self._running)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        now = self._clock.now_ms()
        await self._settled(tuple(Settled(held.claim, "again", now, lapsed=True) for held in rest.values()))
        return len(rest)

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
            permit: Pass | None = nullcontext() if self._door is None else self._door.try_enter()
            if permit is None:  # it began to drain meanwhile
                await self._settled((Settled(claim, "again", now, lapsed=True, begun=False),))
                continue
            held = Held(claim)
            task = asyncio.ensure_future(self._performed(held, permit))
            self._running[task] = held
            task.add_done_callback(self._let_go)
        return bool(claims)

    def _is_open(self) -> bool:
        """Whether anything may be taken up: not while the process is to stop."""
        permit: Pass | None = nullcontext() if self._door is None else self._door.try_enter()
        if permit is None:
            return False
        with permit:
            return True

    def _let_go(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self.wake()

    async def _until_woken(self, look_ms: int | None) -> None:
        """Wait for a signal, or `look_ms`; without that, for the next due time or a look at what others left."""
        wait = min(LOOK_MS_MAX, await self._until_due_ms()) if look_ms is None else look_ms
        waits = {
            asyncio.ensure_future(self._signal.wait()),
            asyncio.ensure_future(self._clock.sleep_ms(wait)),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _until_due_ms(self) -> float:
        try:
            soonest = await self._store.soonest(self._lane, self._names)
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the lane goes on
            self._say("work cannot be looked up", error)
            return LOOK_MS_MAX
        return LOOK_MS_MAX if soonest is None else max(0, soonest - self._clock.now_ms())

    # In hand

    async def _performed(self, held: Held, permit: Pass) -> None:
        with permit:
            try:
                settled = await self._perform(held)
            except Exception as error:  # noqa: BLE001 - the store or the entity could not answer: no failure of the work
                self._say("work is put off", error)
                wait = LOOK_MS_MAX * self._clock.jitter()
                settled = Settled(held.claim, "again", self._clock.now_ms() + round(wait), lapsed=True)
            if settled is not None:
                if settled.verdict == "dead":
                    facts = {"lane": self._lane, "entity_id": held.claim.entity, "key": held.claim.key}
                    _log.error("a dead letter waits for a person", extra={**facts, "error": settled.error})
                await self._settled((settled,))

    async def _settled(self, settled: tuple[Settled, ...]) -> None:
        if not settled:
            return
        try:
            await self._store.settle(settled, now_ms=self._clock.now_ms())
        except Exception as error:  # noqa: BLE001 - the lease lapses, and the work is done again under its key
            self._say("work cannot be settled", error)

    def _say(self, message: str, error: Exception) -> None:
        """Tell what went wrong; with its traceback when nobody expected it."""
        expected = isinstance(error, InterlockError)
        code = error.code if isinstance(error, InterlockError) else type(error).__name__
        _log.warning(message, exc_info=None if expected else error, extra={"lane": self._lane, "code": code})

    async def _renewing(self) -> None:
        """Hold on to what is in hand. An endless loop by intent; it ends with `run`."""
        while True:
            await self._clock.sleep_ms(self._lease_ms / 3)
            held = dict(self._running)
            if held:
                await self._renewed(held)

    async def _renewed(self, running: dict[asyncio.Task[None], Held]) -> None:
        claims = tuple(held.claim for held in running.values())
        try:
            renewed = await self._store.renew(claims, until_ms=self._clock.now_ms() + self._lease_ms)
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the lane goes on
            self._say("leases cannot be renewed", error)
            return
        for (task, held), claim in zip(running.items(), renewed, strict=True):
            if claim is None:
                task.cancel()  # another has it, or it is answered
            else:
                held.claim = claim
                if claim.cancelled:
                    held.called_off.set()
