"""The composition root of runtimes: the only module that knows every store by name, and joins it with charts.

Rule: what drives a store is imported when a store is opened; a chart alone needs no event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, cast

from interlock.assemble import BoundChart
from interlock.errors import UsageError
from interlock.kernel.kernel import Kernel
from interlock.model.findings import suggestion

if TYPE_CHECKING:
    from interlock.ports.clock import Clock
    from interlock.ports.store import Store
    from interlock.runtime.blocking import BlockingRuntime
    from interlock.runtime.send import Runtime

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


def open(url: str, *, charts: Iterable[BoundChart], clock: Clock | None = None) -> Opening:  # noqa: A001 - the name users read: interlock.open
    """A runtime for entities of these charts on the store at an address, opened by `with` or `async with`.

    `memory:` keeps nothing, `file:orders` is a folder, `sqlite:///orders.db` a file, `postgresql://host/name` a
    server. Of several charts of one kind the
    last creates new entities; the others go on with those they wrote.
    Raises UsageError for an address of no known store, or without charts.

        with interlock.open("sqlite:///orders.db", charts=[order]) as orders:
            orders.create("order/A-1", {"amount": 100})
    """
    if isinstance(charts, BoundChart):
        raise UsageError("`charts` is a list of charts", code="charts.malformed", hint="write charts=[chart]")
    bound = tuple(charts)
    if not bound:
        raise UsageError("a runtime needs a chart", code="charts.missing", hint="charts=[interlock.load(...)]")
    return Opening(url, _store_opener(url), tuple(each.kernel for each in bound), clock)


async def opened_store(url: str) -> Store:
    """The store at an address, without charts: to verify, to archive, to list. Whoever opens it closes it."""
    return await _opened(_store_opener(url), url)


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
    raise UsageError(f"`{url}` is the address of no store", code="store.unknown", hint=hint)


def _other_stores() -> dict[str, Callable[[], Opener]]:
    found = import_module("importlib.metadata").entry_points(group=STORE_GROUP)
    return {each.name: each.load for each in found if each.name not in STORES}


class Opening:
    """A runtime about to be opened: `with` gives one whose methods wait, `async with` one whose methods are awaited."""

    def __init__(self, url: str, opener: Opener, kernels: tuple[Kernel, ...], clock: Clock | None) -> None:
        self.url = url
        self._opener = opener
        self._kernels = kernels
        self._clock = clock
        self._opened: list[Runtime] = []
        self._waiting: list[BlockingRuntime] = []

    async def _runtime(self) -> Runtime:
        from interlock.ports.clock import SystemClock
        from interlock.runtime.charts import Charts
        from interlock.runtime.send import Runtime

        store = await _opened(self._opener, self.url)
        return Runtime(store, Charts(self._kernels), self._clock or SystemClock())

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
