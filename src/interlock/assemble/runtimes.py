"""The composition root of runtimes: the only module that knows every store and bus by name, and joins them with charts.

Rule: what drives a store is imported when a store is opened; a chart alone needs no event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from interlock.assemble.charts import BoundChart
from interlock.errors import UsageError
from interlock.model.document.field import is_text
from interlock.model.limits import LEASE_MS, LEASE_MS_MAX, LEASE_MS_MIN
from interlock.stores.registry import open_store, store_opener, without_password

if TYPE_CHECKING:
    from interlock.kernel.step import Kernel
    from interlock.ports.admission import AdmissionGate
    from interlock.ports.bus import Bus, MessageSource
    from interlock.ports.clock import Clock
    from interlock.ports.reconcile import Reconciler
    from interlock.runtime.blocking import BlockingRuntime
    from interlock.runtime.intake import Consumer, Route
    from interlock.runtime.runtime import Runtime
    from interlock.stores.registry import Opener

KEY_PREFIX_BYTES_MAX = 64
"""Bytes before every key: services take keys of 200 or more, and an entity's own has up to that."""


def open(  # noqa: A001 - the name users read: interlock.open
    url: str,
    *,
    charts: Iterable[BoundChart],
    clock: Clock | None = None,
    work: bool | None = None,
    life: AdmissionGate | None = None,
    bus: str | Bus | None = None,
    source: str | None = None,
    lease_ms: int = LEASE_MS,
    key_prefix: str = "",
) -> PendingRuntime:
    """A runtime for entities of these charts on the store at an address, opened by `with` or `async with`.

    `memory:` keeps nothing, `file:orders` is a folder, `sqlite:///orders.db` a file, `postgresql://host/name` a
    server. Of several charts of one kind the last creates new entities; the others go on with those they wrote.
    The runtime performs what entries leave to do, with the charts' handlers, where the store keeps work: `work=False`
    leaves that to others, `work=True` insists on it. A store of another package may keep none: a warning then names
    what the charts ask for. With a `life` (a `Lifecycle` or `Gate`), sends and work hold its permits: draining it stops
    every process that shares it, and waits for what is in hand.
    With a `bus`, its address or an object that is one, every entry leaves a message, which says that it comes from
    `source` and the kind. `lease_ms` is how long work of a process that died waits before another takes it up.
    `key_prefix` stands before every key that handlers see, for stores that share an account of some service: the
    author's own keys, too, and what a compensation is told that it `compensates`. It is the same for ever.
    Raises UsageError for an address of no known store or bus, without charts, or for two handlers of one name.

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
    if type(lease_ms) is not int or not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        hint = "whole milliseconds; unless told otherwise, 30,000. A longer lease is not needed: it is renewed"
        message = f"lease_ms={lease_ms!r:.60} is not between {LEASE_MS_MIN} and {LEASE_MS_MAX:,}"
        raise UsageError(message, code="lease.malformed", hint=hint)
    if not isinstance(cast("object", key_prefix), str) or not _is_prefix(key_prefix):
        hint = f"a text of {KEY_PREFIX_BYTES_MAX} bytes at most, such as eu/"
        raise UsageError(f"key_prefix={key_prefix!r:.80} cannot be", code="key.prefix", hint=hint)
    return PendingRuntime(
        url,
        store_opener(url),
        bound,
        clock,
        work=work,
        life=life,
        bus=_bus_opener(bus),
        source=source,
        lease_ms=lease_ms,
        key_prefix=key_prefix,
    )


def _is_prefix(text: str) -> bool:
    return is_text(text) and len(text.encode()) <= KEY_PREFIX_BYTES_MAX


def _handlers(charts: Iterable[BoundChart]) -> dict[str, Callable[..., Any]]:
    """The handlers of all charts, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for chart in charts:
        for name, function in chart.handlers.items():
            if found.setdefault(name, function) is not function:
                hint = "give one of them another name, or register the same function"
                raise UsageError(f"two functions are registered as `{name}`", code="handler.twice", hint=hint)
    return found


def _reconcilers(charts: Iterable[BoundChart]) -> tuple[Reconciler, ...]:
    """The reconcilers of all charts. Those of one name run one at a time, so two would starve each other."""
    found: dict[str, Reconciler] = {}
    for chart in charts:
        for name, reconciler in chart.reconcilers.items():
            if found.setdefault(name, reconciler) is not reconciler:
                hint = "give one of them another name; of several editions of a chart, register it on the last one"
                raise UsageError(f"two reconcilers are called `{name}`", code="reconciler.twice", hint=hint)
    return tuple(found.values())


def _moves_timers(kernels: Iterable[Kernel]) -> bool:
    """Whether a chart says of a timer that downtime moves it."""
    return any(
        each.restore != "deadline" for kernel in kernels for state in kernel.chart.states for each in state.after
    )


def consume(
    source: str | MessageSource,
    runtime: Runtime,
    route: Route,
    *,
    principal: Mapping[str, Any] | None = None,
    ordered: bool = False,
    dead: str | Bus | None = None,
) -> Consumer:
    """Messages of a bus as events of entities: an intake that works inside `async with`, or while its `run` runs.

    `route` says what a message becomes: a `Delivery`, or None. `ordered` drops a message that is not newer than the
    last of its source entity. `dead` is the bus for what can never be taken. `principal` is who sends, for policies.
    Raises UsageError for an address from which no messages come, MissingExtraError without the client of its bus.
    """
    from interlock.buses.registry import open_bus_url, open_source_url
    from interlock.runtime.intake import Consumer
    from interlock.runtime.runtime import Runtime

    if not (isinstance(cast("object", runtime), Runtime) and callable(cast("object", route))):
        hint = "intake(address, runtime, route), with what `async with interlock.open(...)` gives"
        raise UsageError("an intake needs a runtime and a route", code="intake.malformed", hint=hint)
    opened = open_source_url(source) if isinstance(source, str) else source
    letters = open_bus_url(dead) if isinstance(dead, str) else dead
    return Consumer(opened, runtime, route, principal=principal, ordered=ordered, dead=letters)


def _bus_opener(bus: str | Bus | None) -> Callable[[], Bus] | None:
    """What gives the bus when the runtime opens. An address is looked at now: a wrong one shows where it is written."""
    if bus is None:
        return None
    if isinstance(bus, str):
        from interlock.buses.registry import open_bus_url

        first = [open_bus_url(bus)]  # not connected yet; a second opening makes another
        return lambda: first.pop() if first else open_bus_url(bus)
    from interlock.ports.bus import Bus

    if not isinstance(bus, Bus):
        hint = "an address such as nats://127.0.0.1:4222?stream=orders, or an object with `publish` and `close`"
        raise UsageError(f"{bus!r:.80} is no bus", code="bus.malformed", hint=hint)
    return lambda: bus


class PendingRuntime:
    """A runtime about to be opened: `with` gives one whose methods wait, `async with` one whose methods are awaited."""

    def __init__(
        self,
        url: str,
        opener: Opener,
        charts: tuple[BoundChart, ...],
        clock: Clock | None,
        *,
        work: bool | None,
        life: AdmissionGate | None,
        bus: Callable[[], Bus] | None = None,
        source: str | None = None,
        lease_ms: int = LEASE_MS,
        key_prefix: str = "",
    ) -> None:
        self.url = url
        self._opener = opener
        self._kernels = tuple(each.kernel for each in charts)
        self._handlers = _handlers(charts)
        self._busy = frozenset(name for each in charts for name in each.busy)
        self._reconcilers = _reconcilers(charts)
        self._heartbeats = {name: ms for each in charts for name, ms in each.heartbeats.items()}
        self._clock = clock
        self._work = work
        self._life = life
        self._bus = bus
        self._source = source
        self._lease_ms = lease_ms
        self._key_prefix = key_prefix
        self._opened: list[Runtime] = []
        self._waiting: list[BlockingRuntime] = []

    if not TYPE_CHECKING:  # a checker already says that an opening has no `send`

        def __getattr__(self, name: str) -> Any:
            """What a runtime has, this has not: it must be opened first."""
            from interlock.runtime.runtime import Runtime

            if name.startswith("_") or not hasattr(Runtime, name):
                raise AttributeError(f"`{type(self).__name__}` has no attribute `{name}`")
            hint = f"write `with interlock.open(...) as runtime:` and then `runtime.{name}(...)`"
            raise UsageError("this runtime is not open yet", code="runtime.not_open", hint=hint)

    async def _runtime(self) -> Runtime:
        from interlock.ports.clock import SystemClock
        from interlock.runtime.chart_registry import ChartRegistry
        from interlock.runtime.runtime import Runtime

        store = await open_store(self.url, self._opener)
        clock = self._clock or SystemClock()
        runtime = Runtime(store, ChartRegistry(self._kernels), clock, self._life, messages=self._bus is not None)
        try:
            await self._begin_work(runtime)
            await self._begin_reconciling(runtime)
        except BaseException:
            await runtime.close()
            raise
        return runtime

    async def _begin_work(self, runtime: Runtime) -> None:
        from interlock.model.journal.message import SOURCE
        from interlock.ports.work import WorkStore
        from interlock.runtime.worker.worker import Worker

        keeps_work = isinstance(runtime.store, WorkStore)
        if self._bus is not None and not keeps_work:
            hint = "use a store that keeps work, such as sqlite:, or open the runtime without a bus"
            raise UsageError("this store keeps no messages until the bus has them", code="store.work", hint=hint)
        if not (keeps_work or self._work):
            self._warn_of_work()
        elif self._work is not False:
            bus = None if self._bus is None else self._bus()
            if bus is not None:
                runtime.before_close(bus.close)
            worker = Worker(
                runtime,
                self._handlers,
                busy=self._busy,
                heartbeats=self._heartbeats,
                bus=bus,
                source=self._source or SOURCE,
                lease_ms=self._lease_ms,
                key_prefix=self._key_prefix,
            )
            await worker.start()
            runtime.before_close(worker.stop)

    def _warn_of_work(self) -> None:
        """Tell, once for each kind, what nobody will do: not this process, and no other one."""
        from interlock.effects.unsupported_work import work_used_by

        log = import_module("logging").getLogger("interlock")
        for kind, deeds in work_used_by(each.chart for each in self._kernels).items():
            log.warning(
                "this store keeps no work: nobody performs the %s of `%s`",
                ", ".join(deeds),
                kind,
                extra={"store": without_password(self.url)},
            )

    async def _begin_reconciling(self, runtime: Runtime) -> None:
        """Look after what nobody looks after. Without leases nobody is alone, and without them no downtime is known."""
        from interlock.ports.leases import LeaseStore
        from interlock.runtime.reconcile.runner import ReconcilerGroup

        if self._work is False:
            return
        if isinstance(runtime.store, LeaseStore):
            if self._reconcilers:
                reconciling = ReconcilerGroup(runtime, self._reconcilers, lease_ms=self._lease_ms)
                await reconciling.start()
                runtime.before_close(reconciling.stop)
        elif self._reconcilers or _moves_timers(self._kernels):
            import_module("logging").getLogger("interlock").warning(
                "this store keeps no leases: reconcilers do not run, and timers go by their deadline after downtime",
                extra={"store": without_password(self.url)},
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
