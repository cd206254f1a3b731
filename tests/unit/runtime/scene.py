"""A runtime on the memory store with a clock that the test moves, and stores with a concurrent writer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from interlock.assemble.charts import loads
from interlock.kernel.step import Kernel
from interlock.ports.store import (
    Append,
    AppendResult,
    Conflict,
    Store,
)
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore

DOOR = """
interlock: 1
kind: door
revision: 1.0.0
unhandled: reject
context:
  openings: {type: integer, default: 0}
  note: {type: string, default: ""}
initial: closed
states:
  closed:
    tags: [shut]
    on:
      opened: {target: open, actions: [{assign: {openings: "= context.openings + 1"}}]}
      closed: {}
      locked: {target: locked, guard: "= context.openings > 0"}
  open:
    on: {closed: closed}
  locked:
    tags: [shut]
    on: {unlocked: closed}
  broken: {type: final}
on:
  noted: {actions: [{assign: {note: "= event.data.text"}}]}
  smashed: broken
"""

ORDER = """
interlock: 1
kind: order
revision: 1.0.0
context: {paid: {type: integer, default: 0}, owner: {type: string, default: ada}}
events:
  payment.confirmed: {roles: [payments], dedupe: "= event.data.id"}
  order.noted: {roles: [payments, customer], permit: "= principal.id == context.owner"}
  order.faulty: {roles: [customer], permit: "= principal.missing > 1"}
initial: unpaid
states:
  unpaid: {on: {payment.confirmed: paid, order.faulty: paid}}
  paid: {}
on: {order.noted: {actions: [{assign: {paid: "= context.paid + 1"}}]}}
"""


class WithoutDefinitions(MemoryStore):
    """A store that keeps no definitions: each process runs the entities of its own charts only."""

    definitions = None  # type: ignore[assignment]  # the point


_TOKENS = count()


class StillClock:
    """A clock that the test moves; waits are recorded and end immediately."""

    def __init__(self, time_ms: int = 1_000) -> None:
        self.time_ms = time_ms
        self.waits: list[float] = []
        self.chance = 1.0

    def now_ms(self) -> int:
        """Where the test put it."""
        return self.time_ms

    async def sleep_ms(self, ms: float) -> None:
        """Let others continue, without time passing."""
        self.waits.append(ms)
        await asyncio.sleep(0)

    def jitter(self) -> float:
        """What the test said."""
        return self.chance

    def token(self) -> str:
        """A name that no other clock gives."""
        return f"token{next(_TOKENS)}"


class Patient(StillClock):
    """A clock whose waits end only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.tick = asyncio.Event()
        self.waiting = asyncio.Event()

    async def sleep_ms(self, ms: float) -> None:
        """Wait for the test."""
        self.waits.append(ms)
        self.waiting.set()
        await self.tick.wait()


class Interrupted(MemoryStore):
    """A memory store that lets something happen just before an append."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Callable[[], Awaitable[object]]] = []

    async def append(self, append: Append) -> AppendResult:
        """As the memory store, after the next interruption."""
        if self.before:
            await self.before.pop(0)()
        return await super().append(append)


class Watched(MemoryStore):
    """A memory store that yields to others in the middle, and counts lost swaps."""

    def __init__(self) -> None:
        super().__init__()
        self.conflicts = 0

    async def append(self, append: Append) -> AppendResult:
        """As the memory store, slowly."""
        await asyncio.sleep(0)
        answer = await super().append(append)
        self.conflicts += isinstance(answer, Conflict)
        return answer


def kernel(text: str) -> Kernel:
    """The kernel of a definition."""
    return loads(text).kernel


def runtime(*texts: str, store: MemoryStore | Store | None = None, clock: StillClock | None = None) -> Runtime:
    """Return a runtime for these charts; by default the door and the order."""
    kernels = [kernel(each) for each in texts or (DOOR, ORDER)]
    return Runtime(store or MemoryStore(), ChartRegistry(kernels), clock or StillClock())
