"""The worker: performs what entries leave to do, with a loop over each of the store's lanes, and two over effects.

Rule 1: a worker needs no registration and no partner: any number of them, in any processes, share the lanes of a store.
Rule 2: an append of this process wakes the loops that its work concerns; nothing is polled that can be signalled.
Rule 3: stopping takes nothing more up, lets what is in hand finish for a while, and puts the rest back at once; what
runs on in a thread keeps its lease, which lapses: nothing begins beside it before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from interlock.effects.children import Children
from interlock.effects.handlers import Handler, HandlerRunner, check_functions
from interlock.effects.lanes import LaneWorker, StopReport
from interlock.effects.outbox import OutboxRelay
from interlock.effects.publisher import PUBLISHED_MAX, BusPublisher
from interlock.effects.timers import Timers
from interlock.effects.unsupported_work import work_unsupported
from interlock.model.journal.message import SOURCE
from interlock.model.journal.work import CHILD_WORK, Work, WorkDelta
from interlock.model.limits import LEASE_MS, RUNNING_MAX
from interlock.ports.bus import Bus
from interlock.ports.leases import LeaseStore
from interlock.ports.work import WorkStore
from interlock.runtime.clocks import ClockRepair
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.delivery import EntityDelivery
from interlock.runtime.worker.downtime import DowntimeMonitor
from interlock.runtime.worker.process_pool import ProcessPool, address_of

_LOOPS = {"timer": "timers", "outbox": "outbox", "message": "messages"}


class Worker:
    """Performs the work of a runtime's store, from `start` to `stop`."""

    def __init__(
        self,
        runtime: Runtime,
        handlers: Mapping[str, Handler],
        *,
        busy: frozenset[str] = frozenset(),
        heartbeats: Mapping[str, int] | None = None,
        bus: Bus | None = None,
        source: str = SOURCE,
        key_prefix: str = "",
        drain_ms: int | None = None,
        lease_ms: int = LEASE_MS,
    ) -> None:
        if not isinstance(runtime.store, WorkStore):
            raise work_unsupported()
        check_functions(handlers)
        for name in busy:
            address_of(handlers[name])  # the pool's processes must find it
        store, clock = runtime.store, runtime.clock
        self._repair = ClockRepair(runtime.store, store, clock, lease_ms=lease_ms)
        notice = self._repair.notice
        self._alive = DowntimeMonitor(store, clock, on_ahead=notice) if isinstance(store, LeaseStore) else None
        driver = EntityDelivery(runtime, self._alive)
        owner = clock.token()
        self._runtime = runtime
        if drain_ms is not None:
            runtime.drain_ms = drain_ms
        self._processes = ProcessPool(clock.token())
        self._handlers = HandlerRunner(
            handlers,
            driver,
            clock,
            key_prefix=key_prefix,
            compensates=driver.is_compensation,
            busy=busy,
            elsewhere=self._processes.run,
            heartbeats=heartbeats or {},
            store=store,
        )
        self._loops = {
            "handlers": LaneWorker(
                store,
                "effect",
                self._handlers.perform,
                clock,
                owner=owner,
                lease_ms=lease_ms,
                running_max=RUNNING_MAX,
                door=runtime.door,
                names=self._handlers.names,
            ),
            "children": LaneWorker(
                store,
                "effect",
                Children(driver, clock, store=store).perform,
                clock,
                owner=owner,
                lease_ms=lease_ms,
                running_max=RUNNING_MAX,
                door=runtime.door,
                names=(CHILD_WORK,),
            ),
            "timers": LaneWorker(
                store,
                "timer",
                Timers(driver, clock).perform,
                clock,
                owner=owner,
                lease_ms=lease_ms,
                running_max=RUNNING_MAX,
                door=runtime.door,
            ),
            "outbox": LaneWorker(
                store,
                "outbox",
                OutboxRelay(store, driver, clock).perform,
                clock,
                owner=owner,
                lease_ms=lease_ms,
                running_max=RUNNING_MAX,
                door=runtime.door,
            ),
        }
        if bus is not None:
            # Without a bus nobody here looks at messages: they wait for a process that has it.
            messages = BusPublisher(bus, clock, source=source, door=runtime.door)
            self._loops["messages"] = LaneWorker(
                store,
                "message",
                messages.perform,
                clock,
                owner=owner,
                lease_ms=lease_ms,
                running_max=PUBLISHED_MAX,
                door=messages,
            )
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped: asyncio.Task[StopReport] | None = None
        self._forget: Callable[[], None] = lambda: None
        self._forget_clock: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Begin to take work up."""
        if self._alive is not None:
            await self._alive.begin()  # before a timer is looked at
        await self._repair.begin()
        self._forget = self._runtime.on_work(self._wake)
        self._forget_clock = self._runtime.on_clock(self._repair.notice)
        self._runtime.on_drain(self.take_no_more)
        # Without handlers there is nothing to look for: their work waits for a process that has them.
        idle = set() if self._handlers.names else {"handlers"}
        running = [loop for name, loop in self._loops.items() if name not in idle]
        self._tasks = [asyncio.ensure_future(loop.run()) for loop in running]

    async def stop(self) -> StopReport:
        """Stop within the runtime's `drain_ms`; tell what became of the work in hand. Asked again, it tells the same.

        Whoever is cancelled while it waits stops nothing by that: the next one who asks waits for the same end.
        """
        if self._stopped is None:
            self._stopped = asyncio.ensure_future(self._stop())
        return await asyncio.shield(self._stopped)

    async def _stop(self) -> StopReport:
        self._forget()
        self._forget_clock()
        await self._repair.end()
        await asyncio.gather(*(loop.stop(self._runtime.drain_ms) for loop in self._loops.values()))
        if self._alive is not None:
            await self._alive.end()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._processes.close()  # before their work is put back: nothing may run beside it
        ends = await asyncio.gather(*(loop.put_back() for loop in self._loops.values()))
        return StopReport(
            sum(each.finished for each in ends), sum(each.put_back for each in ends), sum(each.left for each in ends)
        )

    def take_no_more(self) -> None:
        """Leave what is not in hand yet to others, from now on."""
        for loop in self._loops.values():
            loop.take_no_more()

    def _wake(self, left: WorkDelta) -> None:
        """Wake the loops that can do something about this work; the others would only look in vain."""
        for name in {self._line(each) for each in left.born}:
            if name is not None and name in self._loops:
                self._loops[name].wake()

    def _line(self, work: Work) -> str | None:
        if work.place.lane != "effect":
            return _LOOPS[work.place.lane]
        if work.name == CHILD_WORK:
            return "children"
        return "handlers" if work.name in self._handlers.names else None
