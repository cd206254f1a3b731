"""The worker: performs what entries leave to do, with four loops over the store's lanes.

Rule 1: a worker needs no registration and no partner: any number of them, in any processes, share the lanes of a store.
Rule 2: an append of this process wakes the loops that its work concerns; nothing is polled that can be signalled.
Rule 3: stopping takes nothing more up, lets what is in hand finish for a while, and puts the rest back at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from interlock.effects.children import Children
from interlock.effects.handlers import Handler, Handlers, check_functions
from interlock.effects.lane import LaneLoop
from interlock.effects.relay import Publish, Relay
from interlock.effects.timers import Timers
from interlock.errors import UnavailableError
from interlock.model.limits import RUNNING_MAX
from interlock.model.work import CHILD, Left, Work
from interlock.ports.work import WorkStore
from interlock.runtime.cpu import Processes, address_of
from interlock.runtime.deliver import Deliveries
from interlock.runtime.send import Runtime

_LOOPS = {"timer": "timers", "outbox": "outbox"}

DRAIN_MS = 10_000
"""How long work in hand may take to finish when the worker stops."""


class Worker:
    """Performs the work of a runtime's store, from `start` to `stop`."""

    def __init__(
        self,
        runtime: Runtime,
        handlers: Mapping[str, Handler],
        *,
        busy: frozenset[str] = frozenset(),
        publish: Publish | None = None,
        key_prefix: str = "",
        drain_ms: int = DRAIN_MS,
    ) -> None:
        if not isinstance(runtime.store, WorkStore):
            message = f"a {type(runtime.store).__name__} keeps no work"
            raise UnavailableError(message, code="store.work", hint="open the runtime without a worker")
        check_functions(handlers)
        for name in busy:
            address_of(handlers[name])  # the pool's processes must find it
        store, clock = runtime.store, runtime.clock
        driver = Deliveries(runtime)
        owner = clock.token()
        self._runtime = runtime
        self._drain_ms = drain_ms
        self._processes = Processes()
        self._handlers = Handlers(
            handlers, driver, clock, key_prefix=key_prefix, busy=busy, elsewhere=self._processes.run
        )
        self._loops = {
            "handlers": LaneLoop(
                store,
                "effect",
                self._handlers.perform,
                clock,
                owner=owner,
                running_max=RUNNING_MAX,
                door=runtime.door,
                names=self._handlers.names,
            ),
            "children": LaneLoop(
                store,
                "effect",
                Children(driver, clock).perform,
                clock,
                owner=owner,
                running_max=RUNNING_MAX,
                door=runtime.door,
                names=(CHILD,),
            ),
            "timers": LaneLoop(
                store,
                "timer",
                Timers(driver, clock).perform,
                clock,
                owner=owner,
                running_max=RUNNING_MAX,
                door=runtime.door,
            ),
            "outbox": LaneLoop(
                store,
                "outbox",
                Relay(store, driver, clock, publish).perform,
                clock,
                owner=owner,
                running_max=RUNNING_MAX,
                door=runtime.door,
            ),
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._forget: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Begin to take work up."""
        self._forget = self._runtime.on_work(self._wake)
        # Without handlers there is nothing to look for: their work waits for a process that has them.
        idle = set() if self._handlers.names else {"handlers"}
        running = [loop for name, loop in self._loops.items() if name not in idle]
        self._tasks = [asyncio.ensure_future(loop.run()) for loop in running]

    async def stop(self) -> int:
        """Stop; give how many pieces of work were put back unfinished."""
        self._forget()
        back = await asyncio.gather(*(loop.drain(self._drain_ms) for loop in self._loops.values()))
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._handlers.close()
        await self._processes.close()
        return sum(back)

    def _wake(self, left: Left) -> None:
        """Wake the loops that can do something about this work; the others would only look in vain."""
        for name in {self._line(each) for each in left.born}:
            if name is not None:
                self._loops[name].wake()

    def _line(self, work: Work) -> str | None:
        if work.place.lane != "effect":
            return _LOOPS[work.place.lane]
        if work.name == CHILD:
            return "children"
        return "handlers" if work.name in self._handlers.names else None
