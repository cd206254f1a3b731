"""An engine: a system of another vendor that runs the entities of a store, instead of our driver.

The store of an engine reads and creates entities like any other. Every other step happens in the engine, which keeps
the six duties of a driver with its own means: it decides on the newest snapshot, writes the entry, and runs the work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import WorkId
from interlock.model.step import Fault

if TYPE_CHECKING:
    from interlock.kernel.step import Kernel


class EngineRequest(Struct, frozen=True, omit_defaults=True):
    """What an engine is asked to do with an event of an entity; the fields mean what they mean for a send.

    `refusal`: the request is to be refused unless its key is known. `finishes` and `fence` are set for results of work.
    `time_ms` is the time of a runtime that was opened with its own clock; otherwise the time of the engine counts.
    `authorized`: the authorizer of the program, which decides in place of the chart, allows it for `expected`.
    """

    event: Event
    key: str
    expected: int | None = None
    trace: str | None = None
    refusal: Fault | None = None
    reason: str | None = None
    finishes: WorkId | None = None
    fence: int | None = None
    sent_ms: int | None = None
    time_ms: int | None = None
    authorized: bool = False


class EngineWorker(Struct, frozen=True):
    """What runs in this process for an engine: its charts, its handlers and their limits."""

    kernels: tuple[Kernel, ...]
    handlers: Mapping[str, Callable[..., Any]]
    cpu_handlers: frozenset[str] = frozenset()
    heartbeats: Mapping[str, int] = {}
    defaults: Mapping[str, Any] = {}
    lease_ms: int = 30_000
    key_prefix: str = ""


class Engine(Protocol):
    """The engine of a store."""

    async def send(self, entity: str, request: EngineRequest) -> Receipt | None:
        """Step an entity by an event; None when nothing was written and a dry run gives the answer.

        Then the entity has ended or never existed, or the key was used before.

        Raises what `EntitySender.send` raises.
        """

    def use_charts(self, kernels: tuple[Kernel, ...]) -> None:
        """Name the charts of this process, before entities are created."""

    async def start_worker(self, worker: EngineWorker) -> Callable[[], Awaitable[None]]:
        """Run entities and effects in this process; return what stops that."""


def check_engine(kernels: Iterable[Kernel], *, bus: bool, moves: bool) -> None:
    """Raise UsageError (`engine.unsupported`) for what an engine cannot do, with the alternative."""
    if bus:
        raise _unsupported("a bus", "add journal=<store> to the address, and publish from the feed of that store")
    if moves:
        raise _unsupported("upgrade='safe'", "entities finish on their revision; create new ones on the new chart")
    for each in kernels:
        if each.personal is not None:
            hint = "use a store such as sqlite: or postgresql: for this chart"
            raise _unsupported(f"personal data, which `{each.chart.kind}` declares", hint)
        if each.chart.upgrade == "safe":
            raise _unsupported(f"`upgrade: safe` of `{each.chart.kind}`", "write `upgrade: pinned` in the chart")


def _unsupported(what: str, hint: str) -> UsageError:
    return UsageError(f"an engine does not support {what}", code="engine.unsupported", hint=hint)
