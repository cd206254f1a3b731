"""The composition root of runtimes: the only module that knows every store and bus by name.

The runtime is imported when a store is opened; a chart alone needs no event loop.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from interlock.assemble.charts import CONTEXT, BoundChart
from interlock.errors import DefinitionError, UsageError
from interlock.model.document.field import is_text
from interlock.model.limits import LEASE_MS, LEASE_MS_MAX, LEASE_MS_MIN
from interlock.stores.registry import open_store, store_opener, without_migrations, without_password

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from interlock.effects.retry import HandlerDefaults
    from interlock.kernel.step import Kernel
    from interlock.ports.admission import AdmissionGate
    from interlock.ports.bus import Bus, MessageSource
    from interlock.ports.clock import Clock
    from interlock.ports.engine import Engine
    from interlock.ports.tracer import Tracer
    from interlock.ports.trust.authorizer import Authorizer
    from interlock.ports.trust.keyring import Keyring
    from interlock.runtime.blocking import BlockingRuntime
    from interlock.runtime.charts.upgrades import UpgradePolicy
    from interlock.runtime.consumer import Consumer, Route
    from interlock.runtime.reconcile.definition import Reconciler
    from interlock.runtime.runtime import Runtime
    from interlock.stores.registry import Opener

KEY_PREFIX_BYTES_MAX = 64
"""Bytes before every key: services accept keys of 200 bytes or more, and an entity's own has up to that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    """The options of `open`, which describes them. Raises UsageError for an invalid value."""

    clock: Clock | None = None
    work: bool | None = None
    lifecycle: AdmissionGate | None = None
    bus: Callable[[], Bus] | None = None
    bus_address: str | None = None
    source: str | None = None
    lease_ms: int = LEASE_MS
    key_prefix: str = ""
    handler_defaults: HandlerDefaults | None = None
    upgrade: UpgradePolicy = "pinned"
    authorizer: Authorizer | None = None
    keyring: Keyring | str | None = None
    tracer_provider: TracerProvider | None = None

    def __post_init__(self) -> None:
        if type(self.lease_ms) is not int or not LEASE_MS_MIN <= self.lease_ms <= LEASE_MS_MAX:
            hint = "use whole milliseconds; the default is 30,000. Leases are renewed, so longer ones are not needed"
            message = f"lease_ms={self.lease_ms!r:.60} is not between {LEASE_MS_MIN} and {LEASE_MS_MAX:,}"
            raise UsageError(message, code="lease.malformed", hint=hint)
        if self.upgrade not in ("pinned", "safe"):
            message = f"unknown upgrade policy {self.upgrade!r:.40}"
            raise UsageError(message, code="upgrade.policy", hint="use 'pinned' or 'safe'")
        if self.authorizer is not None and not callable(getattr(self.authorizer, "decide", None)):
            message = f"the authorizer must have the method `decide`, got {self.authorizer!r:.60}"
            hint = "write a class with `is_async` and `decide`; see interlock.ports.trust.authorizer"
            raise UsageError(message, code="authorizer.malformed", hint=hint)
        if not _is_prefix(self.key_prefix):
            hint = f"use a string of at most {KEY_PREFIX_BYTES_MAX} bytes, such as eu/"
            raise UsageError(f"key_prefix={self.key_prefix!r:.80} is invalid", code="key.prefix", hint=hint)


def open(  # noqa: A001 - the name users read: interlock.open
    url: str,
    *,
    charts: Iterable[BoundChart[Any]],
    clock: Clock | None = None,
    work: bool | None = None,
    lifecycle: AdmissionGate | None = None,
    bus: str | Bus | None = None,
    source: str | None = None,
    lease_ms: int = LEASE_MS,
    key_prefix: str = "",
    handler_defaults: HandlerDefaults | None = None,
    upgrade: UpgradePolicy = "pinned",
    authorizer: Authorizer | None = None,
    migrate: bool = True,
    keyring: Keyring | str | None = None,
    tracer_provider: TracerProvider | None = None,
) -> PendingRuntime:
    """Return a runtime for entities of these charts on the store at an address, to be opened by `async with`.

    Where a block would end too early, as in a notebook, `runtime = await interlock.open(...)` opens it, and
    `await runtime.close()` closes it. Code without an event loop uses `connect`; `with interlock.open(...)` also gives
    a `BlockingRuntime`, which by default runs effects.

    `memory:` keeps nothing, `file:orders` is a folder, `sqlite:///orders.db` a file, `postgresql://host/name` a server.
    Of several charts of one kind the last creates new entities; the others run the entities that they created.
    With `upgrade="safe"` entities move to the last one before their next step, if they can be carried there, except
    where a chart says otherwise (`upgrade` in the chart).

    The runtime also runs effects, with the charts' handlers, where the store keeps work: `work=False` leaves that to
    other processes, `work=True` requires it. A store of another package may not run effects; a warning then names the
    parts of a chart that will not run. With a `lifecycle` (a `Lifecycle` or `Gate`), sends and work hold its permits:
    draining it stops every process that shares it, and waits for running work.

    With a `bus`, an address or an object, every entry is published as a message from `source` and the kind, whichever
    process writes it: that the store has a bus is kept there. `lease_ms`
    is how long the work of a dead process waits before another claims it. `key_prefix` is put before every key that
    handlers see, for stores that share an account of some service: also before the author's own keys, and in what a
    compensation `compensates`. It must never change. `handler_defaults` are the retry policy and the time limit of
    handlers whose chart sets none; those of a chart (`chart.handler_defaults`) come first.

    An `authorizer` (`interlock.ports.trust.authorizer`) decides who may send, create and read in place of the roles and
    permits of the charts.

    With `migrate=False` a schema that is older than this release raises UsageError (`schema.older`), which names the
    command, instead of being upgraded; a SQLite file is not created. Memory and files have no schema to upgrade.

    Spans are made where the program has installed an OpenTelemetry provider before, or passes one as `tracer_provider`
    (the extra `otel`). Otherwise traces are passed on and nothing is exported.

    Names of handlers without a registered function are logged as a warning when the runtime runs effects: their work
    waits for a process that has them.

    Raises UsageError for an unknown store or bus, without charts, or for two handlers of one name; when it is opened,
    DefinitionError (`compatible.broken`) for a chart that is not compatible with what it declares.

        async with interlock.open("sqlite:///orders.db", charts=[order]) as orders:
            await orders.create("order/A-1", {"amount": 100})
    """
    if isinstance(charts, BoundChart):
        raise UsageError("`charts` must be a list of charts", code="charts.malformed", hint="write charts=[chart]")
    if isinstance(charts, str | os.PathLike) or not isinstance(charts, Iterable):
        hint = f"write charts=[interlock.load({charts!r:.60})]"
        raise UsageError(f"`charts` must be a list of charts, got {charts!r:.60}", code="charts.malformed", hint=hint)
    if not isinstance(url, str):
        hint = "use a string such as sqlite:///orders.db"
        raise UsageError(f"expected the address of a store, got {url!r:.80}", code="store.unknown", hint=hint)
    bound = tuple(charts)
    if not bound:
        raise UsageError("a runtime needs a chart", code="charts.missing", hint="charts=[interlock.load(...)]")
    for each in bound:
        if not isinstance(each, BoundChart):
            hint = "interlock.load(...) returns a chart"
            raise UsageError(f"expected a chart, got {each!r:.80}", code="charts.malformed", hint=hint)
    options = RuntimeOptions(
        clock=clock,
        work=work,
        lifecycle=lifecycle,
        bus=_bus_opener(bus),
        bus_address=bus if isinstance(bus, str) else None,
        source=source,
        lease_ms=lease_ms,
        key_prefix=key_prefix,
        handler_defaults=handler_defaults,
        upgrade=upgrade,
        authorizer=authorizer,
        keyring=keyring,
        tracer_provider=tracer_provider,
    )
    opener = store_opener(url)
    return PendingRuntime(url if migrate else without_migrations(url), opener, bound, options)


def connect(
    url: str,
    *,
    charts: Iterable[BoundChart[Any]],
    clock: Clock | None = None,
    work: bool = False,
    lifecycle: AdmissionGate | None = None,
    bus: str | Bus | None = None,
    source: str | None = None,
    lease_ms: int = LEASE_MS,
    key_prefix: str = "",
    handler_defaults: HandlerDefaults | None = None,
    upgrade: UpgradePolicy = "pinned",
    authorizer: Authorizer | None = None,
    migrate: bool = True,
    keyring: Keyring | str | None = None,
    tracer_provider: TracerProvider | None = None,
) -> BlockingRuntime:
    """Open a runtime for code without an event loop: scripts, Django, Flask, WSGI.

    It is open when this function returns, until `close` or the end of a `with` block. The arguments are those of
    `open`, but it runs no effects unless `work=True`: `interlock run` does. A process that ends without `close` loses
    nothing that has a receipt.

    Raises what `open` raises, and UsageError (`runtime.running_loop`) inside a running event loop, which it would stop.

        with interlock.connect("sqlite:///orders.db", charts=[order]) as orders:
            orders.create("order/A-1", {"amount": 100})
    """
    pending = open(
        url,
        charts=charts,
        clock=clock,
        work=work,
        lifecycle=lifecycle,
        bus=bus,
        source=source,
        lease_ms=lease_ms,
        key_prefix=key_prefix,
        handler_defaults=handler_defaults,
        upgrade=upgrade,
        authorizer=authorizer,
        migrate=migrate,
        keyring=keyring,
        tracer_provider=tracer_provider,
    )
    return pending.blocking()


def _is_prefix(text: object) -> bool:
    return isinstance(text, str) and is_text(text) and len(text.encode()) <= KEY_PREFIX_BYTES_MAX


def _handlers(charts: Iterable[BoundChart[Any]]) -> dict[str, Callable[..., Any]]:
    """Return the handlers of all charts, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for chart in charts:
        for name, function in chart.handlers.items():
            if found.setdefault(name, function) is not function:
                hint = "give one of them another name, or register the same function"
                raise UsageError(f"two functions are registered as `{name}`", code="handler.twice", hint=hint)
    return found


def _defaults(charts: Iterable[BoundChart], other: HandlerDefaults | None) -> dict[str, HandlerDefaults]:
    """Return the defaults of handlers by kind; of several charts of one kind the last that has some counts."""
    found: dict[str, HandlerDefaults] = {}
    for each in charts:
        mine = each.handler_defaults
        if mine is not None:
            found[each.chart.kind] = mine.over(other)
        elif other is not None:
            found.setdefault(each.chart.kind, other)
    return found


def _models(charts: Iterable[BoundChart[Any]]) -> dict[str, dict[type, tuple[str, ...]]]:
    """Return the models of events by kind, each with the names of its events; those of later charts count."""
    named: dict[str, dict[str, type]] = {}
    for chart in charts:
        events = {name: cls for name, cls in chart.models.items() if name != CONTEXT}
        named.setdefault(chart.chart.kind, {}).update(events)
    found: dict[str, dict[type, tuple[str, ...]]] = {}
    for kind, events in named.items():
        by_model = found.setdefault(kind, {})
        for name, cls in events.items():
            by_model[cls] = (*by_model.get(cls, ()), name)
    return found


def _reconcilers(charts: Iterable[BoundChart[Any]]) -> tuple[Reconciler, ...]:
    """Return the reconcilers of all charts. Two of one name would share a lease, so only one would run."""
    found: dict[str, Reconciler] = {}
    for chart in charts:
        for name, reconciler in chart.reconcilers.items():
            if found.setdefault(name, reconciler) is not reconciler:
                hint = "rename one of them; with several revisions of a chart, register it on the last one"
                raise UsageError(f"two reconcilers are called `{name}`", code="reconciler.twice", hint=hint)
    return tuple(found.values())


def _moves_timers(kernels: Iterable[Kernel]) -> bool:
    """Whether a chart has a timer that downtime shifts."""
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
    dead_letters: str | Bus | None = None,
) -> Consumer:
    """Return a consumer that turns messages of a bus into events, inside `async with` or while its `run` runs.

    `route` returns what a message becomes: a `Delivery`, or None. `ordered` drops a message that is not newer than the
    last of its source entity. `dead_letters` is the bus for messages that can never be applied. `principal` is the
    sender of the events, for policies. Raises UsageError for a bus that cannot be read, MissingExtraError when the
    client of the bus is not installed.
    """
    from interlock.buses.registry import open_bus_url, open_source_url
    from interlock.runtime.consumer import Consumer
    from interlock.runtime.runtime import Runtime

    if not (isinstance(cast("object", runtime), Runtime) and callable(cast("object", route))):
        hint = "consume(address, runtime, route), with the runtime of `async with interlock.open(...)`"
        raise UsageError("a consumer needs a runtime and a route", code="intake.malformed", hint=hint)
    opened = open_source_url(source) if isinstance(source, str) else source
    letters = open_bus_url(dead_letters) if isinstance(dead_letters, str) else dead_letters
    return Consumer(opened, runtime, route, principal=principal, ordered=ordered, dead_letters=letters)


def _bus_opener(bus: str | Bus | None) -> Callable[[], Bus] | None:
    """Return a function that opens the bus with the runtime. An invalid address raises immediately."""
    if bus is None:
        return None
    if isinstance(bus, str):
        from interlock.buses.registry import open_bus_url

        first = [open_bus_url(bus)]  # not connected yet; a second runtime opens another
        return lambda: first.pop() if first else open_bus_url(bus)
    from interlock.ports.bus import Bus

    if not isinstance(bus, Bus):
        hint = "an address such as nats://127.0.0.1:4222?stream=orders, or an object with `publish` and `close`"
        raise UsageError(f"expected a bus, got {bus!r:.80}", code="bus.malformed", hint=hint)
    return lambda: bus


class PendingRuntime:
    """A runtime that is not open yet: `async with` or `await` gives a `Runtime`, `with` a `BlockingRuntime`."""

    def __init__(self, url: str, opener: Opener, charts: tuple[BoundChart[Any], ...], options: RuntimeOptions) -> None:
        self.url = url
        self._opener = opener
        self._options = options
        self._kernels = tuple(each.kernel for each in charts)
        self._models = _models(charts)
        self._handlers = _handlers(charts)
        self._cpu_handlers = frozenset(name for each in charts for name in each.busy)
        self._reconcilers = _reconcilers(charts)
        self._heartbeats = {name: ms for each in charts for name, ms in each.heartbeats.items()}
        self._defaults = _defaults(charts, options.handler_defaults)
        self._opened: list[Runtime] = []
        self._blocking: list[BlockingRuntime] = []

    if not TYPE_CHECKING:  # a type checker reports a missing `send`

        def __getattr__(self, name: str) -> Any:
            """Raise UsageError for the methods of a runtime: it must be opened first."""
            from interlock.runtime.runtime import Runtime

            if name.startswith("_") or not hasattr(Runtime, name):
                raise AttributeError(f"`{type(self).__name__}` has no attribute `{name}`")
            hint = (
                f"write `async with interlock.open(...) as runtime:` and then `runtime.{name}(...)`; or use `connect`"
            )
            raise UsageError("this runtime is not open yet", code="runtime.not_open", hint=hint)

    async def _runtime(self) -> Runtime:
        from interlock.assemble.vaults import open_vault
        from interlock.ports.clock import SystemClock
        from interlock.runtime.charts.registry import ChartRegistry
        from interlock.runtime.runtime import Runtime

        store = await open_store(self.url, self._opener)
        options = self._options
        clock = options.clock or SystemClock()
        messages = options.bus is not None
        if messages and store.work is not None:
            from interlock.runtime.message_setting import turn_on

            try:
                await turn_on(store, options.bus_address)
            except BaseException:
                await store.close()
                raise
        try:
            vault = await open_vault(
                store, self._kernels, options.keyring, clock, is_lasting=not self.url.startswith("memory:")
            )
        except BaseException:
            await store.close()
            raise
        charts, gate = ChartRegistry(self._kernels), options.lifecycle
        runtime = Runtime(
            store,
            charts,
            clock,
            gate,
            messages=messages,
            models=self._models,
            upgrade=options.upgrade,
            authorizer=options.authorizer,
            vault=vault,
            tracer=self._tracer(),
        )
        try:
            await runtime.declare_indexes()
            await self._check_promises(runtime)
            await runtime.revisions.warn_outdated()
            await self._start_worker(runtime)
            await self._start_reconcilers(runtime)
            self._start_retention(runtime)
        except BaseException:
            await runtime.close()
            raise
        return runtime

    def _tracer(self) -> Tracer | None:
        """Return what makes spans, where the program exports traces."""
        provider = self._options.tracer_provider
        if provider is None and "opentelemetry.trace" not in sys.modules:
            return None
        from interlock.observe.open_telemetry import installed_tracer, tracer_of

        return installed_tracer() if provider is None else tracer_of(provider)

    async def _check_promises(self, runtime: Runtime) -> None:
        """Raise DefinitionError for a chart that breaks what it declares itself compatible with."""
        if any(each.chart.compatible is not None for each in self._kernels):
            from interlock.observe.compatibility import broken_promises

            broken = await broken_promises(runtime)
            if broken:
                raise DefinitionError(broken)

    async def _start_worker(self, runtime: Runtime) -> None:
        from interlock.model.journal.message import SOURCE
        from interlock.runtime.worker.worker import Worker

        options, keeps_work = self._options, runtime.store.work is not None
        if runtime.store.engine is not None:
            await self._start_engine(runtime, runtime.store.engine)
            return
        if options.bus is not None and not keeps_work:
            hint = "use another store, such as sqlite:, or open the runtime without a bus"
            raise UsageError("this store cannot keep messages for a bus", code="store.work", hint=hint)
        if not (keeps_work or options.work):
            self._warn_of_unsupported_work()
            self._warn_of_unsent_events(runtime)
        elif options.work is not False:
            bus = None if options.bus is None else options.bus()
            if bus is not None:
                runtime.on_close(bus.close)
            worker = Worker(
                runtime,
                self._handlers,
                cpu_handlers=self._cpu_handlers,
                heartbeats=self._heartbeats,
                defaults=self._defaults,
                bus=bus,
                source=options.source or SOURCE,
                lease_ms=options.lease_ms,
                key_prefix=options.key_prefix,
            )
            self._warn_of_missing_handlers()
            await worker.start()
            runtime.on_close(worker.stop)

    async def _start_engine(self, runtime: Runtime, engine: Engine) -> None:
        """Run entities and effects in this process, for an engine. Raises UsageError for what no engine can do."""
        from interlock.ports.engine import EngineWorker, check_engine

        options = self._options
        check_engine(self._kernels, bus=options.bus is not None, moves=options.upgrade != "pinned")
        if options.work is False:
            return
        self._warn_of_missing_handlers()
        self._warn_of_unsent_events(runtime)
        worker = EngineWorker(
            self._kernels,
            self._handlers,
            self._cpu_handlers,
            self._heartbeats,
            self._defaults,
            options.lease_ms,
            options.key_prefix,
        )
        runtime.on_close(await engine.start_worker(worker))

    def _warn_of_missing_handlers(self) -> None:
        """Log, once for each kind, the names that no function is registered for: this process leaves their work."""
        log, reported = import_module("logging").getLogger("interlock"), set()
        for kernel in self._kernels:
            chart = kernel.chart
            missing = tuple(name for name in chart.handlers if name not in self._handlers)
            if missing and (chart.kind, missing) not in reported:
                reported.add((chart.kind, missing))
                log.warning(
                    "no handler for %s of `%s` in this process; the effects wait for a worker that has it",
                    ", ".join(f"`{each}`" for each in missing),
                    chart.kind,
                    extra={"hint": "import the module that registers it, or open with work=False"},
                )

    def _warn_of_unsupported_work(self) -> None:
        """Log, once for each kind, what will not run: not in this process, and in no other one."""
        from interlock.effects.unsupported_work import work_used_by

        log = import_module("logging").getLogger("interlock")
        for kind, names in work_used_by(each.chart for each in self._kernels).items():
            log.warning(
                "this store does not run effects: the %s of `%s` will not run",
                ", ".join(names),
                kind,
                extra={"store": without_password(self.url)},
            )

    def _warn_of_unsent_events(self, runtime: Runtime) -> None:
        """Log, once for each kind, which events of overdue states no worker sends."""
        from interlock.runtime.worker.overdue_events import expected_events

        for kind, events in expected_events(runtime.charts).items():
            import_module("logging").getLogger("interlock").warning(
                "entities of this store get no events of `expect`: %s of `%s` will not be sent",
                ", ".join(dict.fromkeys(each.event for each in events)),
                kind,
                extra={"store": without_password(self.url)},
            )

    async def _start_reconcilers(self, runtime: Runtime) -> None:
        """Start the reconcilers. They need leases, and so does the detection of downtime."""
        from interlock.runtime.reconcile.runner import ReconcilerGroup

        if self._options.work is False:
            return
        if runtime.store.leases is not None:
            if self._reconcilers:
                group = ReconcilerGroup(runtime, self._reconcilers, lease_ms=self._options.lease_ms)
                await group.start()
                runtime.on_close(group.stop)
        elif self._reconcilers or _moves_timers(self._kernels):
            import_module("logging").getLogger("interlock").warning(
                "this store has no leases: reconcilers do not run, and timers keep their deadline after downtime",
                extra={"store": without_password(self.url)},
            )

    def _start_retention(self, runtime: Runtime) -> None:
        """Start what removes entities and entries by the charts' retention, in processes that run effects."""
        if self._options.work is False or all(each.chart.retention is None for each in self._kernels):
            return
        if runtime.store.retention is None:
            import_module("logging").getLogger("interlock").warning(
                "this store removes nothing: the retention of the charts has no effect",
                extra={"store": without_password(self.url)},
            )
            return
        from interlock.assemble.archives import Archives
        from interlock.operate.retention.worker import RetentionWorker
        from interlock.stores.registry import tenant_of

        archives = Archives(tenant_of(self.url))
        worker = RetentionWorker(runtime, open_archive=archives.open)
        worker.start()
        runtime.on_close(archives.close)
        runtime.on_close(worker.stop)

    def blocking(self) -> BlockingRuntime:
        """Open it for code without an event loop."""
        from interlock.runtime.blocking import BlockingRuntime

        return BlockingRuntime(self._runtime)

    def __await__(self) -> Generator[Any, None, Runtime]:
        return self._runtime().__await__()

    async def __aenter__(self) -> Runtime:
        runtime = await self._runtime()
        self._opened.append(runtime)
        return runtime

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.pop().close()

    if not TYPE_CHECKING:  # `connect` opens a blocking runtime; `with` keeps working, and type checkers report it

        def __enter__(self) -> BlockingRuntime:
            runtime = self.blocking()
            self._blocking.append(runtime)
            return runtime

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            self._blocking.pop().close()
