"""The worker: runs the work that entries create, with one loop per lane of the store, and two for effects;
and sends the events of overdue states.

Rule 1: a worker needs no registration and no partner. Any number of them, in any processes, share the lanes of a store.
Rule 2: an append of this process wakes the loops that its work concerns; nothing is polled that can be signalled.
Rule 3: to stop, it claims no more work, lets running work finish for a while, and requeues unfinished work. What still
runs in a thread keeps its lease until that expires; no second attempt starts before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from interlock.effects.children import Children
from interlock.effects.handlers import Handler, HandlerRunner
from interlock.effects.lanes import LaneWorker, Perform, StopReport
from interlock.effects.outbox import OutboxRelay
from interlock.effects.pauses import HandlerPauses
from interlock.effects.publisher import PUBLISHED_MAX, BusPublisher
from interlock.effects.retry import HandlerDefaults
from interlock.effects.signatures import check_handler
from interlock.effects.timers import Timers
from interlock.effects.unsupported_work import work_unsupported
from interlock.model.journal.message import SOURCE
from interlock.model.journal.work import CHILD_WORK, ERASE_WORK, Lane, Work, WorkDelta
from interlock.model.limits import LEASE_MS, RUNNING_MAX
from interlock.ports.admission import AdmissionGate
from interlock.ports.bus import Bus
from interlock.ports.wakeups import Listening
from interlock.runtime.erasure import ErasureWork
from interlock.runtime.holds.held_work import HeldWork
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.clock_repair import ClockRepair
from interlock.runtime.worker.delivery import EntityDelivery
from interlock.runtime.worker.downtime import DowntimeMonitor
from interlock.runtime.worker.overdue_events import OverdueEvents
from interlock.runtime.worker.process_pool import ProcessPool, address_of

_LOOPS: dict[Lane, str] = {"timer": "timers", "outbox": "outbox", "message": "messages"}
"""The loop of each lane that has only one."""


class _LoopSpec(NamedTuple):
    """What differs between the loops of a worker. `names`: only work of these names."""

    lane: Lane
    perform: Perform
    gate: AdmissionGate | None
    names: tuple[str, ...] | None = None
    running_max: int = RUNNING_MAX
    pauses: HandlerPauses | None = None
    holds: HeldWork | None = None


class Worker:
    """Runs the work of a runtime's store, from `start` to `stop`."""

    def __init__(
        self,
        runtime: Runtime,
        handlers: Mapping[str, Handler],
        *,
        cpu_handlers: frozenset[str] = frozenset(),
        heartbeats: Mapping[str, int] | None = None,
        defaults: Mapping[str, HandlerDefaults] | None = None,
        bus: Bus | None = None,
        source: str = SOURCE,
        key_prefix: str = "",
        drain_ms: int | None = None,
        lease_ms: int = LEASE_MS,
    ) -> None:
        work, leases = runtime.store.work, runtime.store.leases
        if work is None:
            raise work_unsupported()
        for name, function in handlers.items():
            check_handler(name, function, cpu=name in cpu_handlers)
        for name in cpu_handlers:
            address_of(handlers[name])  # the processes of the pool must be able to import it
        clock, gate = runtime.clock, runtime.gate
        self._repair = ClockRepair(runtime.store, work, clock, lease_ms=lease_ms)
        report = self._repair.report
        self._downtime = None if leases is None else DowntimeMonitor(leases, clock, on_ahead=report)
        delivery = EntityDelivery(runtime, self._downtime)
        self._overdue = OverdueEvents(runtime)
        self._runtime = runtime
        if drain_ms is not None:
            runtime.drain_ms = drain_ms
        self._processes = ProcessPool(clock.token())
        pauses = HandlerPauses(clock, runtime.store.facts)
        self._handlers = HandlerRunner(
            handlers,
            delivery,
            clock,
            key_prefix=key_prefix,
            is_compensation=delivery.is_compensation,
            cpu_handlers=cpu_handlers,
            run_in_process=self._processes.run,
            heartbeats=heartbeats or {},
            defaults=defaults,
            work=work,
            pauses=pauses,
            meter=lambda: runtime.entities.process.meter,
            tracer=runtime.entities.process.tracer,
        )
        holds = HeldWork(runtime.entities)
        children = Children(delivery, clock, work=work)
        specs = {
            "handlers": _LoopSpec(
                "effect", self._handlers.perform, gate, names=self._handlers.names, pauses=pauses, holds=holds
            ),
            "children": _LoopSpec("effect", children.perform, gate, names=(CHILD_WORK,), holds=holds),
            "timers": _LoopSpec("timer", Timers(delivery, clock).perform, gate, holds=holds),
            "outbox": _LoopSpec("outbox", OutboxRelay(work, delivery, clock).perform, gate, holds=holds),
        }
        if runtime.vault is not None:
            erasures = ErasureWork(runtime.vault)
            specs["erasures"] = _LoopSpec("effect", erasures.perform, gate, names=(ERASE_WORK,))
        if bus is not None:  # without a bus, messages wait for a process that has one
            publisher = BusPublisher(bus, clock, source=source, gate=gate, opened=delivery.opened)
            specs["messages"] = _LoopSpec("message", publisher.perform, publisher, running_max=PUBLISHED_MAX)
        self._owner = owner = clock.token()
        self._lanes = {name: spec.lane for name, spec in specs.items()}
        self._listening: Listening | None = None
        self._loops = {
            name: LaneWorker(
                work,
                spec.lane,
                spec.perform,
                clock,
                owner=owner,
                lease_ms=lease_ms,
                running_max=spec.running_max,
                names=spec.names,
                gate=spec.gate,
                pauses=spec.pauses,
                holds=spec.holds,
            )
            for name, spec in specs.items()
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_task: asyncio.Task[StopReport] | None = None
        self._unregister: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Start to claim work."""
        if self._downtime is not None:
            await self._downtime.start()  # before any timer is read
        await self._repair.start()
        ringer, wakeups = self._runtime.ringer, self._runtime.store.wakeups
        if ringer is not None and wakeups is not None:
            ringer.runs_here = self._has_room_for
            self._listening = await wakeups.listen(self._owner, self._wake_lanes)
            self._processes.held_file = None if self._listening is None else self._listening.held_file
        entities = self._runtime.entities
        self._unregister = [
            entities.announcements.on_work(self._wake),
            entities.time.on_problem(self._repair.report),
        ]
        self._runtime.on_drain(self.stop_claiming)
        # Without handlers their loop has nothing to look for: the work waits for a process that has them.
        idle = set() if self._handlers.names else {"handlers"}
        self._overdue.start()
        self._tasks = [asyncio.ensure_future(loop.run()) for name, loop in self._loops.items() if name not in idle]

    async def stop(self) -> StopReport:
        """Stop within the runtime's `drain_ms` and return what happened to running work. May be called again.

        A caller that is cancelled while it waits does not stop the stopping: the next caller waits for the same end.
        """
        if self._stop_task is None:
            self._stop_task = asyncio.ensure_future(self._stop())
        return await asyncio.shield(self._stop_task)

    async def _stop(self) -> StopReport:
        for unregister in self._unregister:
            unregister()
        await self._repair.stop()
        await self._overdue.stop()
        await asyncio.gather(*(loop.stop(self._runtime.drain_ms) for loop in self._loops.values()))
        if self._downtime is not None:
            await self._downtime.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._processes.close()  # before their work is requeued: no second attempt may run at the same time
        reports = await asyncio.gather(*(loop.requeue_unfinished() for loop in self._loops.values()))
        if self._runtime.ringer is not None:
            requeued = zip(self._loops, reports, strict=True)
            self._runtime.ringer.ring(frozenset(self._lanes[name] for name, each in requeued if each.requeued))
        if self._listening is not None:
            await self._listening.close()
        return StopReport(
            sum(each.finished for each in reports),
            sum(each.requeued for each in reports),
            sum(each.still_running for each in reports),
        )

    def stop_claiming(self) -> None:
        """Leave work that is not running yet to others, from now on."""
        self._overdue.stop_sending()
        for loop in self._loops.values():
            loop.stop_claiming()

    def _wake_lanes(self, lanes: frozenset[Lane]) -> None:
        """Look for work of other processes in these lanes."""
        for name, loop in self._loops.items():
            if self._lanes[name] in lanes:
                loop.wake()

    def _has_room_for(self, work: Work) -> bool:
        """Whether this process can start a piece of work now."""
        name = self._loop_of(work)
        return name in self._loops and self._loops[name].has_room

    def _wake(self, entity: str, work: WorkDelta) -> None:
        """Wake the loops that can run this work, and notify those that run cancelled work."""
        for work_id in work.cancelled:
            self._loops["handlers"].cancel(entity, work_id)
        for name in {self._loop_of(each) for each in work.created}:
            if name is not None and name in self._loops:
                self._loops[name].wake()

    def _loop_of(self, work: Work) -> str | None:
        if work.id.lane != "effect":
            return _LOOPS[work.id.lane]
        if work.name == CHILD_WORK:
            return "children"
        if work.name == ERASE_WORK:
            return "erasures"
        return "handlers" if self._handlers.has(work.name) else None
