"""The composition root of runtimes: the only module that knows every store by name, and joins it with charts.

Rule: what drives a store is imported when a store is opened; a chart alone needs no event loop.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from interlock.assemble import BoundChart
from interlock.errors import UsageError
from interlock.model.findings import suggestion

if TYPE_CHECKING:
    from interlock.ports.clock import Clock
    from interlock.ports.door import Door
    from interlock.ports.store import Store
    from interlock.runtime.blocking import BlockingRuntime
    from interlock.runtime.send import Runtime
    from interlock.stores.schema import Schema

    Opener = Callable[[str], Store] | Callable[[str], Awaitable[Store]]

STORES = {
    "memory": "interlock.stores.memory",
    "file": "interlock.stores.files",
    "postgres": "interlock.stores.postgres",
    "postgresql": "interlock.stores.postgres",
    "sqlite": "interlock.stores.sqlite",
}
"""The stores that come with the package, by the scheme of their address; each module has an `open_store(url)`."""

STORE_GROUP = "interlock.stores"
"""The entry points by which other packages bring stores: a scheme, and a function of the address that opens one."""


def open(  # noqa: A001 - the name users read: interlock.open
    url: str,
    *,
    charts: Iterable[BoundChart],
    clock: Clock | None = None,
    work: bool | None = None,
    life: Door | None = None,
) -> Opening:
    """A runtime for entities of these charts on the store at an address, opened by `with` or `async with`.

    `memory:` keeps nothing, `file:orders` is a folder, `sqlite:///orders.db` a file, `postgresql://host/name` a
    server. Of several charts of one kind the last creates new entities; the others go on with those they wrote.
    The runtime performs what entries leave to do, with the charts' handlers, where the store keeps work: `work=False`
    leaves that to others, `work=True` insists on it. With a `life` (a `Lifecycle` or `Gate`), sends and work hold its
    permits: draining it stops every process that shares it, and waits for what is in hand.
    Raises UsageError for an address of no known store, without charts, or for two handlers of one name.

        with interlock.open("sqlite:///orders.db", charts=[order]) as orders:
            orders.create("order/A-1", {"amount": 100})
    """
    if isinstance(charts, BoundChart):
        raise UsageError("`charts` is a list of charts", code="charts.malformed", hint="write charts=[chart]")
    if not isinstance(url, str):
        hint = "a text such as sqlite:///orders.db"
        raise UsageError(f"an address is a text, not {url!r:.80}", code="store.unknown", hint=hint)
    bound = tuple(charts)
    if not bound:
        raise UsageError("a runtime needs a chart", code="charts.missing", hint="charts=[interlock.load(...)]")
    for each in bound:
        if not isinstance(each, BoundChart):
            raise UsageError(f"{each!r:.80} is no chart", code="charts.malformed", hint="interlock.load(...) gives one")
    return Opening(url, _store_opener(url), bound, clock, work=work, life=life)


def _handlers(charts: Iterable[BoundChart]) -> dict[str, Callable[..., Any]]:
    """The handlers of all charts, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for chart in charts:
        for name, function in chart.handlers.items():
            if found.setdefault(name, function) is not function:
                hint = "give one of them another name, or register the same function"
                raise UsageError(f"two functions are registered as `{name}`", code="handler.twice", hint=hint)
    return found


async def opened_store(url: str) -> Store:
    """The store at an address, without charts: to verify, to archive, to list. Whoever opens it closes it."""
    return await _opened(_store_opener(url), url)


async def schema_of(url: str) -> Schema | None:
    """What the place at an address has, and what this release knows; None for a store that keeps no schema."""
    from interlock.stores.schema import schema_of

    _store_opener(url)  # an address of no store says so
    return await schema_of(url)


async def _opened(opener: Opener, url: str) -> Store:
    """Open a store. One that waits for the disk does so in a thread; one that has a server awaits it here."""
    from asyncio import to_thread

    if iscoroutinefunction(opener):
        return await cast("Callable[[str], Awaitable[Store]]", opener)(url)
    return await to_thread(cast("Callable[[str], Store]", opener), url)


def _store_opener(url: str) -> Opener:
    """The function that opens stores of this address's scheme."""
    scheme, colon, _ = url.partition(":")
    module = STORES.get(scheme) if colon else None
    if module is not None:
        found: Opener = import_module(module).open_store
        return found
    others = _other_stores()
    if colon and scheme in others:
        return others[scheme]()
    known = sorted({*STORES, *others})
    hint = (colon and suggestion(scheme, known)) or f"addresses begin with {', '.join(f'{each}:' for each in known)}"
    raise UsageError(f"`{without_password(url)}` is the address of no store", code="store.unknown", hint=hint)


def without_password(url: str) -> str:
    """The address as it may be shown: who logs in is left out, with the password."""
    return re.sub(r"//[^/?#]*@", "//", url)


def _other_stores() -> dict[str, Callable[[], Opener]]:
    found = import_module("importlib.metadata").entry_points(group=STORE_GROUP)
    return {each.name: each.load for each in found if each.name not in STORES}


class Opening:
    """A runtime about to be opened: `with` gives one whose methods wait, `async with` one whose methods are awaited."""

    def __init__(
        self,
        url: str,
        opener: Opener,
        charts: tuple[BoundChart, ...],
        clock: Clock | None,
        *,
        work: bool | None,
        life: Door | None,
    ) -> None:
        self.url = url
        self._opener = opener
        self._kernels = tuple(each.kernel for each in charts)
        self._handlers = _handlers(charts)
        self._busy = frozenset(name for each in charts for name in each.busy)
        self._clock = clock
        self._work = work
        self._life = life
        self._opened: list[Runtime] = []
        self._waiting: list[BlockingRuntime] = []

    async def _runtime(self) -> Runtime:
        from interlock.ports.clock import SystemClock
        from interlock.runtime.charts import Charts
        from interlock.runtime.send import Runtime

        store = await _opened(self._opener, self.url)
        runtime = Runtime(store, Charts(self._kernels), self._clock or SystemClock(), self._life)
        try:
            await self._begin_work(runtime)
        except BaseException:
            await runtime.close()
            raise
        return runtime

    async def _begin_work(self, runtime: Runtime) -> None:
        from interlock.ports.work import WorkStore
        from interlock.runtime.worker import Worker

        if self._work is False:
            return
        if isinstance(runtime.store, WorkStore) or self._work:
            worker = Worker(runtime, self._handlers, busy=self._busy)
            await worker.start()
            runtime.before_close(worker.stop)
        elif self._handlers or any(each.after for kernel in self._kernels for each in kernel.chart.states):
            import_module("logging").getLogger("interlock").warning(
                "this store keeps no work: handlers are not called and timers do not fire",
                extra={"store": type(runtime.store).__name__},
            )

    async def __aenter__(self) -> Runtime:
        runtime = await self._runtime()
        self._opened.append(runtime)
        return runtime

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.pop().close()

    def __enter__(self) -> BlockingRuntime:
        from interlock.runtime.blocking import BlockingRuntime

        runtime = BlockingRuntime(self._runtime)
        self._waiting.append(runtime)
        return runtime

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.pop().close()
