"""What all requests of one server share: the runtime, sessions, jobs, caches and limits.

Rule: everything here except sessions, dry runs and streams is also in the store; those end with the process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from interlock.errors import DeniedError, NotFoundError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.limits import SIMULATIONS_PER_USER_MAX, SIMULATIONS_RUNNING_MAX, SIMULATIONS_WAITING_MAX
from interlock.model.visible import ChartMask
from interlock.observe.history import HistoryCache
from interlock.observe.metrics.exporter import MetricsExporter
from interlock.observe.population import ChangeMarks
from interlock.operate.jobs.runner import JobRunner
from interlock.ports.clock import Clock
from interlock.ports.reading.visible_names import VISIBLE
from interlock.ports.store import Store
from interlock.ports.threads import in_thread
from interlock.ports.trust.authorizer import Allow, AuthorizationRequest
from interlock.render.drawing import Options, draw_diff_svg, draw_svg, draw_visible_svg
from interlock.runtime.charts.registry import BUILTIN_KINDS, unknown_kind
from interlock.runtime.runtime import Runtime
from interlock.trust.authorization import ChartPolicy
from interlock.trust.users import User
from interlock.web.auth import Authentication
from interlock.web.http.cursors import CursorCipher
from interlock.web.http.errors import HttpProblem
from interlock.web.http.request_rates import RequestRates

DRAWINGS_MAX = 256
"""Drawings in the cache: some tens of kilobytes each."""

DEFINITIONS_AGE_MS_MAX = 5_000
"""How long a console uses the list of stored definitions before it reads the list again."""

DRAWING_OPTIONS = Options(theme="bare", role="group")
"""Drawings contain no colours: the pages colour them by class."""


class Console:
    """The state of one server. `exporter`: the one of the process, if it has one already."""

    def __init__(
        self,
        runtime: Runtime,
        access: Authentication,
        *,
        origins: frozenset[str] = frozenset(),
        read_only: bool = False,
        exporter: MetricsExporter | None = None,
    ) -> None:
        self.runtime = runtime
        self.access = access
        self.origins = origins
        self.read_only = read_only
        self.jobs = JobRunner(runtime, durable=not read_only)
        self.change_marks = ChangeMarks(runtime)
        self.history = HistoryCache(runtime)
        self.streams: Counter[str] = Counter()
        self.simulations = SimulationQueue()
        self.cursors = CursorCipher(runtime.clock.token().encode())
        self.closing = asyncio.Event()
        self._rates = RequestRates(runtime.clock, access.rates)
        self._given_rates = access.rates
        self._drawings: dict[tuple[str, ...], str] = {}
        self._visible: dict[str, bool] = {}
        self._stored: dict[str, dict[str, Kernel]] = {}
        self._learned_ms: int | None = None
        self._exporter = exporter
        self._owns_exporter = False
        self._exporting = asyncio.Lock()

    @property
    def store(self) -> Store:
        """The store of the runtime."""
        return self.runtime.store

    @property
    def clock(self) -> Clock:
        """The clock of the runtime."""
        return self.runtime.clock

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the server only by https, so that its cookie can require it."""
        return bool(self.origins) and all(each.startswith("https:") for each in self.origins)

    @property
    def cookie(self) -> str:
        """The name of the session cookie.

        With https, the prefix `__Host-` makes browsers reject a cookie that another host has set. Without, the name
        contains the port: cookies ignore ports, and two servers of one host would overwrite each other's session.
        """
        if self.is_secure:
            return "__Host-interlock"
        ports = {urlsplit(each).port for each in self.origins}
        port = ports.pop() if len(ports) == 1 else None
        return "interlock" if port is None else f"interlock-{port}"

    async def close(self) -> None:
        """Stop streams and jobs."""
        self.closing.set()
        await self.jobs.close()
        if self._exporter is not None and self._owns_exporter:
            await self._exporter.stop()
        await self.access.close()

    async def exporter(self) -> MetricsExporter:
        """Return the exporter of metrics, started with the first call. Raises MissingExtraError."""
        async with self._exporting:
            if self._exporter is None:
                exporter = MetricsExporter(self.runtime)
                await exporter.start()
                self._exporter, self._owns_exporter = exporter, True
            return self._exporter

    @property
    def rates(self) -> RequestRates:
        """The limits of requests, by the rates of the key file as last read."""
        if self.access.rates is not self._given_rates:
            self._given_rates = self.access.rates
            self._rates.use(self._given_rates)
        return self._rates

    # Charts

    async def learn_definitions(self) -> None:
        """Read the definitions that the store has: at the first request, and then every `DEFINITIONS_AGE_MS_MAX`.

        One that cannot be read is left out. While the store does not respond, what is known stays.
        """
        now_ms, definitions = self.clock.now_ms(), self.store.definitions
        if definitions is None or (
            self._learned_ms is not None and 0 <= now_ms - self._learned_ms < DEFINITIONS_AGE_MS_MAX
        ):
            return
        self._learned_ms = now_ms
        with suppress(UnavailableError):
            for kind in self.runtime.charts.every_kind():
                await self.runtime.revisions.newest_policy(kind)
            for each in await definitions.list_definitions():
                known = self._stored.setdefault(each.kind, {})
                if not any(kernel.chart.is_revision(each.revision) for kernel in known.values()):
                    with suppress(UnavailableError):
                        kernel = await self.runtime.revisions.for_reading(each.kind, each.revision)
                        known[kernel.chart.revision] = kernel
                        self._visible.clear()
            for kind in self._stored:
                await self.runtime.revisions.newest_policy(kind)

    def revisions(self, kind: str) -> dict[str, Kernel]:
        """The charts of a kind that this process has or that the store has, by revision; own charts are the last."""
        own = self.runtime.charts.revisions(kind)
        stored = self._stored.get(kind, {})
        return {**{name: each for name, each in stored.items() if name not in own}, **own}

    def kinds(self) -> tuple[str, ...]:
        """The kinds with a chart in this process or a definition in the store, sorted."""
        stored = {kind for kind, kernels in self._stored.items() if kernels and kind not in BUILTIN_KINDS}
        return tuple(sorted({*self.runtime.charts.kinds(), *stored}))

    def kernel(self, kind: str, revision: str | None = None) -> Kernel:
        """Return the chart of a kind. Raises NotFoundError or HttpProblem if it is unknown."""
        loaded = self.revisions(kind)
        if revision is None:
            current = self.runtime.charts.current(kind)
            if current is None and loaded:
                return list(loaded.values())[-1]
            return self.runtime.charts.for_new_entity(kind)
        named = (each for each in loaded.values() if each.chart.is_revision(revision))
        found = loaded.get(revision) or next(named, None)
        if found is None:
            message = f"unknown revision {revision[:80]} of `{kind}`"
            hint = f"known revisions: {', '.join(loaded) or 'none'}"
            raise HttpProblem(404, "Not found", message, code="revision.unknown", hint=hint)
        return found

    def chart_for(self, user: User, kind: str, revision: str | None = None) -> Chart:
        """Return the chart of a kind that a user may see. Raises HttpProblem."""
        self.check_kind(user, kind)
        return self.kernel(kind, revision).chart

    def may_see(self, user: User, kind: str) -> bool:
        """Whether a user may see all entities of a kind, so that counts, work and charts disclose nothing."""
        return self._shows(user, kind) and self._reads_all(user, kind)

    def _reads_all(self, user: User, kind: str) -> bool:
        """Whether the `read` of a kind lets a user read every entity of it."""
        authorizer, known = self.runtime.permissions.authorizer, self.runtime.revisions.policies.get(kind)
        policy = None if known is None else known.newest
        if policy is None and (loaded := self.revisions(kind)):
            policy = ChartPolicy(list(loaded.values())[-1].chart)
        asked = AuthorizationRequest(action="read", kind=kind, entity=None, principal=user.principal, rules=policy)
        decision = asked.by_chart() if authorizer is None else authorizer.decide(asked)
        return isinstance(decision, Allow) and not decision.where

    async def may_read(self, user: User, entity: str) -> bool:
        """Whether a user may read an entity."""
        try:
            await self.runtime.permissions.check_reader(entity, reader_of(user))
        except (DeniedError, NotFoundError):
            return False
        return True

    def _shows(self, user: User, kind: str) -> bool:
        """Whether nothing of a kind is hidden from a user.

        A kind with hidden states needs the right `read:sensitive`, because every list and count would disclose them.
        A kind without a known chart needs it, too, because its hidden states are unknown. A key may name the only kinds
        that its user sees.
        """
        if user.kinds is not None and kind not in user.kinds:
            return False
        if user.sees_sensitive:
            return True
        visible = self._visible.get(kind)
        if visible is None:
            charts = [each.chart for each in self.revisions(kind).values()]
            states = (each for chart in charts for each in chart.states)
            visible = bool(charts) and not any(each.sensitive is not None and each.sensitive.hidden for each in states)
            if charts:  # unknown kinds are not cached: callers could fill the memory with them
                self._visible[kind] = visible
        return visible

    def sees_covers(self, user: User, kind: str) -> bool:
        """Whether a user sees the entities of a kind through the covers of hidden states, one by one (ADR 0138).

        Raises HttpProblem for a kind that they may not see at all. Work and jobs of such a kind stay unknown to them:
        `check_kind`.
        """
        if self._shows(user, kind):
            return False
        charts = [each.chart for each in self.revisions(kind).values()]
        if not charts or any(each.hidden is not None and not each.hidden.is_covered for each in charts):
            raise self._unknown_kind(user, kind)
        return True

    def may_count_covers(self, user: User, kind: str) -> bool:
        """Whether a user may see the counts and the drawing of a kind as those see it who do not see hidden states."""
        if self.may_see(user, kind) or not self._reads_all(user, kind):
            return False
        try:
            return self.sees_covers(user, kind)
        except HttpProblem:
            return False

    def masked_fields(self, user: User, kind: str) -> frozenset[str]:
        """Return the context fields of a kind that are masked for a user, in any of its known revisions."""
        if user.sees_sensitive:
            return frozenset()
        charts = (each.chart for each in self.revisions(kind).values())
        return frozenset(name for chart in charts for name in ChartMask(chart).fields)

    def visible_kinds(self, user: User) -> tuple[str, ...]:
        """The kinds with a known chart that a user may see, sorted."""
        known = sorted({*self.runtime.charts.every_kind(), *self.kinds()})
        return tuple(each for each in known if self.may_see(user, each))

    def check_kind(self, user: User, kind: str) -> None:
        """Raise HttpProblem for a kind that a user may not see: the same as for an unknown kind.

        Endpoints call this before anything else that depends on the kind, so that no response distinguishes the two.
        """
        if not self.may_see(user, kind):
            raise self._unknown_kind(user, kind)

    def check_shown(self, user: User, kind: str) -> None:
        """Raise as `check_kind` does, but not for a kind of which a user may read some entities or none.

        For endpoints that pass the user as the reader, or send.
        """
        if not self._shows(user, kind):
            raise self._unknown_kind(user, kind)

    def _unknown_kind(self, user: User, kind: str) -> HttpProblem:
        visible = [each for each in self.kinds() if self.may_see(user, each)]
        error = unknown_kind(kind, visible)
        return HttpProblem(404, "Not found", error.message, code=error.code, hint=error.hint)

    def check_chart(self, user: User, chart: Chart) -> None:
        """Raise HttpProblem, as for an unknown kind, for an entity whose own revision has states that a user may not
        see: another process may have registered it a moment ago.
        """
        if not user.sees_sensitive and any(each.sensitive and each.sensitive.hidden for each in chart.states):
            raise self._unknown_kind(user, chart.kind)

    def check_writable(self, user: User, kind: str) -> None:
        """Raise as `check_shown` does, and DeniedError for a kind that only the console itself writes."""
        self.check_shown(user, kind)
        self.check_sendable(kind)

    def check_sendable(self, kind: str) -> None:
        """Raise DeniedError for a kind that only the console itself writes."""
        if kind in BUILTIN_KINDS:
            raise DeniedError(f"`{kind}` is written by the console only", code="kind.own")

    def may_write_covered(self, user: User, kind: str) -> bool:
        """Return and raise as `sees_covers` does, and raise as `check_writable` does."""
        if self.sees_covers(user, kind):
            return True
        self.check_writable(user, kind)
        return False

    async def drawing(self, chart: Chart, other: Chart | None = None) -> str:
        """Return the SVG drawing of a chart, or of two revisions in one; drawn once, in a thread."""
        key = (chart.kind, chart.revision, "" if other is None else other.revision)
        return await self._drawn(key, lambda: _draw(chart, other))

    async def visible_drawing(self, chart: Chart) -> str:
        """Return the SVG drawing of a chart without its hidden states."""
        key = (chart.kind, chart.revision, VISIBLE)
        return await self._drawn(key, lambda: draw_visible_svg(chart, DRAWING_OPTIONS).svg)

    async def _drawn(self, key: tuple[str, str, str], draw: Callable[[], str]) -> str:
        found = self._drawings.get(key)
        if found is None:
            found = await in_thread(draw)
            if len(self._drawings) >= DRAWINGS_MAX:
                self._drawings.clear()
            self._drawings[key] = found
        return found


def _draw(chart: Chart, other: Chart | None) -> str:
    if other is None:
        return draw_svg(chart, DRAWING_OPTIONS).svg
    return draw_diff_svg(chart, other, DRAWING_OPTIONS).svg


class SimulationQueue:
    """Limits running and waiting simulations, in total and per user."""

    def __init__(self) -> None:
        self._running = asyncio.Semaphore(SIMULATIONS_RUNNING_MAX)
        self._held: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[None]:
        """Wait for a turn. Raises HttpProblem at the user's limit, UnavailableError at the limit of the server."""
        if self._held[who] >= SIMULATIONS_PER_USER_MAX:
            detail = f"`{who}` has {self._held[who]} running or waiting simulations"
            raise HttpProblem(429, "Too many simulations", detail, code="lab.full", hint="wait until one ends")
        if self._held.total() >= SIMULATIONS_RUNNING_MAX + SIMULATIONS_WAITING_MAX:
            raise UnavailableError("too many simulations are waiting", code="lab.full", hint="try again later")
        self._held[who] += 1
        try:
            async with self._running:
                yield
        finally:
            self._held[who] -= 1
            if not self._held[who]:
                del self._held[who]


def reader_of(user: User) -> Mapping[str, object]:
    """The reader that a user is: their principal and their rights."""
    return {**user.principal, "rights": sorted(user.rights)}


def principal_of(user: User, reason: str | None) -> Mapping[str, object]:
    """The principal of a user, with the reason that they gave; an entry stores both."""
    return dict(user.principal) if not reason else {**user.principal, "reason": reason}
