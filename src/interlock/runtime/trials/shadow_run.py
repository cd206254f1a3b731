"""Shadow run: the steps of this process next to what a new chart would do with the same events, while they happen.

Rule 1: a send only puts its durable step into a queue of `SHADOW_QUEUE_MAX` steps. It never waits for the comparison,
        and an error of it never reaches the send. While the queue is full, steps are dropped and counted.
Rule 2: one thread steps the new chart. It waits after each comparison, so that it uses no more than its share of a
        core: the threads of one interpreter share it.
Rule 3: effects are compared by value. The new kernel has no store and no handlers, so none is performed.
Rule 4: an exception of the new chart's Python is a difference. A call that does not return stops the comparison, and
        nothing else; the report says so.
Rule 5: memory is bounded: the queue, the groups (`ShadowTally`), and the last snapshots of some entities.
Rule 6: the report is saved every few seconds in the store (`runtime.reports`), where other processes find it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic
from typing import Protocol

from interlock.effects.waiting import first_of
from interlock.errors import InterlockError, UnavailableError, UsageError
from interlock.evolve.shadow import Gap, ShadowReport, ShadowTally
from interlock.evolve.step_comparison import ERROR, Comparison, Difference, StepComparer
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.journal.entry import CREATE, MOVED
from interlock.model.limits import (
    SHADOW_ENTITIES_MAX,
    SHADOW_QUEUE_MAX,
    SHADOW_SAVE_MS,
    SHADOW_SOURCES_MAX,
    SHADOW_STUCK_MS,
    STOP_MS_MAX,
)
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from interlock.ports.store import Append, EntityQuery
from interlock.ports.threads import in_thread, start_thread
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.sender import EntitySender
from interlock.runtime.history.recorded_steps import carrier_of
from interlock.runtime.trials.reports import StoredReport, plain_report, report_id, save_report

SHARE = 0.25
"""The part of a core that a shadow run uses at most, without being asked for another."""

_SOURCE_SECONDS_MAX = 30.0
"""How long the thread waits for the definition of a recorded revision."""

_log = logging.getLogger("interlock.runtime")


class ShadowedChart(Protocol):
    """A chart with its guard and assign functions, such as `interlock.load` returns."""

    @property
    def kernel(self) -> Kernel:
        """The kernel of the chart."""


class ShadowRun:
    """One new chart next to the live steps of its kind in this process. `Runtime.shadow` starts it."""

    def __init__(self, entities: Entities, sender: EntitySender, new: Kernel, *, share: float, who: str) -> None:
        if not 0 < share <= 1:
            hint = "the part of a core that it may use, such as 0.25"
            raise UsageError(f"share={share!r:.40} is not between 0 and 1", code="shadow.share", hint=hint)
        actions = new.actions
        self._new = Kernel(new.chart, guards=actions.guards, assigns=actions.assigns, language=actions.language)
        self._kind = new.chart.kind
        self._entities = entities
        self._sender = sender
        self._share = share
        self._who = who
        self._id = report_id("shadow.run", self._kind, new.chart.revision, process=entities.clock.token())
        self._began_ms = entities.clock.now_ms()
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Append] = deque()
        self._wake, self._stopping = Flag(), Flag()
        self._stopped = asyncio.Event()
        self._lock = Lock()
        self._tally = ShadowTally(new.chart)
        self._comparers: dict[str, StepComparer | InterlockError] = {}
        self._next: OrderedDict[str, Snapshot] = OrderedDict()
        self._created_ms: OrderedDict[str, int] = OrderedDict()
        self._ended: deque[tuple[str, int]] = deque(maxlen=SHADOW_QUEUE_MAX)
        self._dropped = 0
        self._dropped_entity = ""
        self._busy_since: float | None = None
        self._offered = self._compared = 0
        self._thread = Thread(target=self._work, name=f"interlock-shadow-{self._kind}", daemon=True)
        self._saver: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start to compare. Raises UnavailableError if the system refuses the thread."""
        start_thread(self._thread)
        self._saver = self._loop.create_task(self._save_while_running())

    def listen(self) -> None:
        """Compare the steps of this process from now on."""
        self._stop_listening = self._entities.announcements.on_append(self._offer)

    async def put(self, append: Append) -> None:
        """Queue a durable step of any process; wait while the queue is full."""
        while len(self._queue) >= SHADOW_QUEUE_MAX and not self._stopping.is_set():
            await self._entities.clock.sleep_ms(5)
        self._offer(append)

    # The send path

    def _offer(self, append: Append) -> None:
        """Queue a durable step, or count it as dropped. Called by the send path: it neither waits nor raises."""
        if append.kind != self._kind:
            return
        if len(self._queue) >= SHADOW_QUEUE_MAX:
            self._dropped += 1
            self._dropped_entity = append.entity
            return
        self._queue.append(append)
        self._offered += 1
        if not self._wake.is_set():
            self._wake.set()

    # The thread

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            while self._queue and not self._stopping.is_set():
                append = self._queue.popleft()
                started = self._busy_since = monotonic()
                try:
                    self._compare(append)
                except Exception as error:  # noqa: BLE001 - whatever happens here must not end the comparison
                    self.add_gap("shadow.error", f"the comparison failed: {type(error).__name__}", append.entity)
                self._busy_since = None
                self._compared += 1
                self._stopping.wait((monotonic() - started) * (1 / self._share - 1))

    def _compare(self, append: Append) -> None:
        entry, entity, before = append.entry, append.entity, append.before
        self._note_life(append)
        if entry.event.name == MOVED:
            self._next.pop(entity, None)
            return
        comparer = self._comparer(entry.revision)
        if isinstance(comparer, InterlockError):
            self.add_gap(comparer.code, comparer.message, entity, about=entry.revision)
            return
        known = self._next.pop(entity, None)
        new = known if known is not None and before is not None and known.version == before.version else None
        recorded = Step(append.snapshot, entry.effects, entry.outcome, entry.reason)
        try:
            found = comparer.compare(new, before, entry.event, recorded)
        except BaseException as error:  # noqa: BLE001 - the new chart's Python may raise anything, even SystemExit
            text = f"{type(error).__name__} in the new chart"
            found = Comparison(recorded=recorded, differences=(Difference(ERROR, recorded.outcome, text),))
        with self._lock:
            self._tally.add(comparer, entity, entry, found)
        if found.next is not None:
            self._next[entity] = found.next
            if len(self._next) > SHADOW_ENTITIES_MAX:
                self._next.popitem(last=False)

    def _comparer(self, revision: str) -> StepComparer | InterlockError:
        """Return what compares the steps of a recorded revision, or why they cannot be compared."""
        found = self._comparers.get(revision)
        if found is not None:
            return found
        try:
            kernel = self._new
            if not kernel.chart.is_revision(revision):
                reading = self._entities.revisions.for_reading(self._kind, revision)
                kernel = asyncio.run_coroutine_threadsafe(reading, self._loop).result(_SOURCE_SECONDS_MAX)
            found = StepComparer(carrier_of(kernel, revision, self._new))
        except InterlockError as error:
            found = error
        if len(self._comparers) >= SHADOW_SOURCES_MAX:
            self._comparers.clear()
        self._comparers[revision] = found
        return found

    def _note_life(self, append: Append) -> None:
        """Count an entity when it is first seen, and the life of one that ended."""
        entity, time_ms = append.entity, append.entry.event.time_ms
        ended = append.snapshot.ended is not None and (append.before is None or append.before.ended is None)
        is_new = entity not in self._created_ms
        if is_new:
            self._created_ms[entity] = time_ms if append.entry.event.name == CREATE else -1
            if len(self._created_ms) > SHADOW_ENTITIES_MAX:
                self._created_ms.popitem(last=False)
        created_ms = self._created_ms.get(entity, -1)
        with self._lock:
            if is_new:
                self._tally.entities += 1
            if ended:
                self._tally.ended += 1
                if created_ms >= 0:
                    self._tally.add_life(time_ms - created_ms, is_ended=True)
        if ended and created_ms < 0:
            self._ended.append((entity, time_ms))

    def add_gap(self, code: str, text: str, entity: str, *, about: str = "") -> None:
        """Count something that cannot be compared, as `ShadowTally.add_gap` does."""
        with self._lock:
            self._tally.add_gap(code, text, entity, about=about)

    # The report

    @property
    def dropped(self) -> int:
        """Steps that were not compared because the queue was full."""
        return self._dropped

    @property
    def waiting(self) -> int:
        """Steps that wait to be compared."""
        return len(self._queue)

    def report(self) -> ShadowReport:
        """Return the result so far."""
        gaps = []
        if self._dropped:
            text = f"the queue of {SHADOW_QUEUE_MAX:,} steps was full: the new chart is slower than the traffic"
            gaps.append(Gap("queue.full", text, self._dropped, self._dropped_entity))
        since = self._busy_since
        if since is not None and (monotonic() - since) * 1_000 > SHADOW_STUCK_MS:
            gaps.append(Gap("shadow.stuck", "a step of the new chart does not return", 1, ""))
        with self._lock:
            return self._tally.report(tuple(gaps))

    async def settled(self) -> ShadowReport:
        """Wait until every step so far is compared, and return the result. For tests and before a decision."""
        while self._compared < self._offered and not self._stopping.is_set():
            await self._entities.clock.sleep_ms(5)
        await self._find_lives()
        return self.report()

    async def _find_lives(self) -> None:
        """Ask the store when entities that have ended were created, if that was before this run started."""
        while self._ended:
            entity, ended_ms = self._ended.popleft()
            kind, _, name = entity.partition("/")
            page = await self._entities.store.find(EntityQuery(kind=kind, prefix=name, limit=1))
            if page.rows and page.rows[0].entity == entity:
                with self._lock:
                    self._tally.add_life(ended_ms - page.rows[0].created_ms, is_ended=True)

    # Saving and stopping

    async def _save_while_running(self) -> None:
        saved = -1
        while not self._stopping.is_set():
            await first_of(self._stopped.wait(), self._entities.clock.sleep_ms(SHADOW_SAVE_MS))
            if self._compared + self._dropped != saved and not self._stopping.is_set():
                saved = self._compared + self._dropped
                await self.save(is_running=True)

    async def save(self, *, is_running: bool) -> None:
        """Save the report in the store. A store that cannot is logged: the run continues."""
        try:
            await self._find_lives()
            chart = self._new.chart
            stored = StoredReport(
                id=self._id,
                what="shadow.run",
                kind=self._kind,
                revision=chart.revision,
                label=chart.label,
                who=self._who,
                began_ms=self._began_ms,
                saved_ms=self._entities.clock.now_ms(),
                running=is_running,
                report=plain_report(self.report(), chart, *self._recorded_charts()),
            )
            await save_report(self._entities, self._sender, stored)
        except UnavailableError as error:
            _log.warning("the report of a shadow run was not saved", extra={"kind": self._kind, "code": error.code})

    def _recorded_charts(self) -> list[Chart]:
        return [each.carrier.old for each in [*self._comparers.values()] if isinstance(each, StepComparer)]

    async def stop(self) -> ShadowReport:
        """Compare no further step, save the report and return it. May be called again."""
        if not self._stopping.is_set():
            self._stop_listening()
            self._stopping.set()
            self._wake.set()
            self._stopped.set()
            await in_thread(lambda: self._thread.join(STOP_MS_MAX / 1_000))
            if self._saver is not None:
                await self._saver
            await self.save(is_running=False)
        return self.report()
