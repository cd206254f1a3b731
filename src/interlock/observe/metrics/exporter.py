"""The exporter of a process: it counts from `start` to `stop`, holds the lease if it can, and renders a scrape.

Rule 1: of all processes of a store one reports the store-wide metrics: the holder of the lease `LEASE`, which it renews
every `RENEW_MS`. Without that, sums over processes would multiply. When it is killed, another one takes over within
`LEASE_MS`. It reports them only while its own clock says that the lease is valid: a process that was suspended asks for
it again first.
Rule 2: nothing of a kind with hidden states is shown, whoever asks. A kind that had one once stays hidden in this
process.
Rule 3: at most `METRIC_SERIES_MAX` series are shown. Further ones are added up as `OTHER`, and a warning says so once.
Rule 4: a scrape within `CACHE_MS` of the last one gets the same text. The text is made in a thread.
Rule 5: a store that does not answer costs a scrape its store-wide metrics, and no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from interlock.errors import InterlockError
from interlock.model.charts.chart import Chart
from interlock.model.limits import METRIC_SERIES_MAX
from interlock.observe.metrics.counters import APPEND_BOUNDS_NS, WAIT_BOUNDS_MS, ProcessCounters
from interlock.observe.metrics.exposition import client_module, render_metrics
from interlock.observe.metrics.families import (
    APPEND_SECONDS,
    EFFECT_SECONDS,
    EXPORTER_LEADER,
    MAILBOX_WAITING,
    OTHER,
    STATE_DURATION,
    TIMER_LATENESS,
    Family,
    Histogram,
    Labels,
    Samples,
)
from interlock.observe.metrics.store_gauges import read_store_gauges, shown_kinds
from interlock.ports.clock import wait_to_poll
from interlock.ports.leases import Lease
from interlock.ports.reading.statistics import DWELL_BOUNDS_MS
from interlock.ports.threads import in_thread
from interlock.runtime.runtime import Runtime

LEASE = "exporter"
LEASE_MS = 30_000
RENEW_MS = 10_000
"""How long the lease is, and how often it is renewed: three tries before another process takes over."""

CACHE_MS = 5_000
"""How long a text is used again: several servers scrape one process, and none asks the store more often."""

BOUNDS: Mapping[Family, tuple[float, ...]] = {
    STATE_DURATION: tuple(each / 1_000 for each in DWELL_BOUNDS_MS),
    EFFECT_SECONDS: tuple(each / 1_000 for each in WAIT_BOUNDS_MS),
    TIMER_LATENESS: tuple(each / 1_000 for each in WAIT_BOUNDS_MS),
    APPEND_SECONDS: tuple(each / 10**9 for each in APPEND_BOUNDS_NS),
}

_log = logging.getLogger("interlock.observe")


class MetricsExporter:
    """The metrics of one runtime. `start` raises MissingExtraError without prometheus-client."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._counters = ProcessCounters(self._charts_of)
        self._owner = runtime.clock.token()
        self._lease: Lease | None = None
        self._tried_ms = 0
        self._task: asyncio.Task[None] | None = None
        self._rendering = asyncio.Lock()
        self._text = b""
        self._rendered_ms: int | None = None
        self._hidden: set[str] = set()
        self.shown: frozenset[str] = frozenset()
        """The kinds that the last text may contain."""
        self._series = SeriesLimit()

    async def start(self) -> None:
        """Start to count, and try to get the lease."""
        client_module()
        self._runtime.entities.process.meter = self._counters
        await self._acquire()
        self._task = asyncio.ensure_future(self._renew_forever())

    async def stop(self) -> None:
        """Stop to count, and release the lease."""
        self._runtime.entities.process.meter = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        lease, self._lease = self._lease, None
        leases = self._runtime.store.leases
        if lease is not None and leases is not None:
            with suppress(InterlockError):  # it ends by itself
                await leases.release_lease(lease)

    @property
    def is_leader(self) -> bool:
        """Whether this process reports the store-wide metrics now."""
        return self._lease is not None and self._runtime.clock.now_ms() < self._lease.until_ms

    async def render(self) -> bytes:
        """Return the metrics as text."""
        async with self._rendering:
            now_ms = self._runtime.clock.now_ms()
            if self._rendered_ms is None or not 0 <= now_ms - self._rendered_ms < CACHE_MS:
                found = self._series.limit(await self._collect())
                self._text = await in_thread(lambda: render_metrics(found, BOUNDS))
                self._rendered_ms = now_ms
            return self._text

    # Collecting

    async def _collect(self) -> dict[Family, Samples]:
        runtime, counted = self._runtime, self._counters.samples()
        found: dict[Family, Samples] = {MAILBOX_WAITING: {(): runtime.entities.process.waiting.total}}
        if not 0 <= runtime.clock.now_ms() - self._tried_ms < RENEW_MS:  # the process was suspended
            await self._acquire()
        is_leader = self.is_leader
        try:
            shown = await shown_kinds(runtime)
            gauges = await read_store_gauges(runtime, shown) if is_leader else {}
            durations = await self._durations(set(shown.charts) - self._hidden)
        except InterlockError as error:
            _log.warning("the store cannot be read for metrics", extra={"code": error.code})
            return {**found, EXPORTER_LEADER: {(): 0}}
        self._hidden |= {each for each in (*self._counters.kinds, *runtime.charts.kinds()) if each not in shown.charts}
        self.shown = frozenset(shown.charts) - self._hidden
        for family, samples in {**counted, **gauges, **durations}.items():
            found[family] = self._visible(family, samples)
        found[EXPORTER_LEADER] = {(): int(is_leader and self.is_leader)}
        return found

    async def _durations(self, kinds: set[str]) -> dict[Family, Samples]:
        statistics = self._runtime.store.statistics
        if statistics is None:
            return {}
        stays = await statistics.process_stays()
        samples: Samples = {
            (each.kind, each.state): Histogram(each.stays, each.total_ms / 1_000)
            for each in stays
            if each.kind in kinds
        }
        return {STATE_DURATION: samples}

    def _visible(self, family: Family, samples: Samples) -> Samples:
        """Return the samples of kinds that may be shown; what no chart names is shown, too."""
        if "kind" not in family.labels:
            return samples
        return {labels: value for labels, value in samples.items() if labels[0] in self.shown or labels[0] == OTHER}

    def _charts_of(self, kind: str) -> tuple[Chart, ...]:
        """Return the charts of a kind that are known here without asking the store."""
        found = [each.chart for each in self._runtime.charts.revisions(kind).values()]
        policy = self._runtime.revisions.policies.get(kind)
        if policy is not None and policy.chart is not None and policy.chart not in found:
            found.append(policy.chart)
        return tuple(found)

    # The lease

    async def _acquire(self) -> None:
        leases = self._runtime.store.leases
        if leases is None:
            return
        now_ms = self._tried_ms = self._runtime.clock.now_ms()
        try:
            lease = await leases.acquire_lease(LEASE, owner=self._owner, now_ms=now_ms, until_ms=now_ms + LEASE_MS)
        except InterlockError as error:
            _log.warning("the lease of the exporter cannot be renewed", extra={"code": error.code})
            return
        if (lease is None) != (self._lease is None):
            self._rendered_ms = None  # a text of the other role must not be used again
        self._lease = lease

    async def _renew_forever(self) -> None:
        """The loop is endless on purpose; `stop` cancels it."""
        while True:
            await wait_to_poll(self._runtime.clock, RENEW_MS)
            await self._acquire()


class SeriesLimit:
    """Bounds the series of a process. A series that was shown once is always shown."""

    def __init__(self) -> None:
        self._admitted: dict[Family, set[Labels]] = {}
        self._used = 0
        self._has_warned = False

    def limit(self, found: Mapping[Family, Samples]) -> dict[Family, Samples]:
        """Return samples within the limit: further ones are added up under `OTHER`."""
        return {family: self._limit(family, samples) for family, samples in found.items()}

    def _limit(self, family: Family, samples: Samples) -> Samples:
        admitted = self._admitted.setdefault(family, set())
        cost = len(BOUNDS[family]) + 3 if family.type == "histogram" else 1
        result: Samples = {}
        for labels, value in sorted(samples.items()):
            if labels not in admitted and self._used + cost <= METRIC_SERIES_MAX:
                admitted.add(labels)
                self._used += cost
            if labels in admitted or not labels:
                result[labels] = value
                continue
            self._warn()
            rest = (OTHER,) * len(labels)
            result[rest] = _sum(family, result[rest], value) if rest in result else value
        return result

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("too many series of metrics; further ones are added up", extra={"series": METRIC_SERIES_MAX})


def _sum(family: Family, one: float | Histogram, other: float | Histogram) -> float | Histogram:
    """Return two values as one: ages are not added, the older one counts."""
    if isinstance(one, Histogram) and isinstance(other, Histogram):
        counts = (mine + yours for mine, yours in zip(one.counts, other.counts, strict=True))
        return Histogram(tuple(counts), one.seconds + other.seconds)
    assert isinstance(one, int | float)
    assert isinstance(other, int | float)
    return max(one, other) if family.name.endswith("_seconds") else one + other
