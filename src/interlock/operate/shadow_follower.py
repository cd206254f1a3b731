"""A shadow run in a separate process: it follows the entries of a store, whichever process writes them.

Rule 1: recorded steps are repeated by the definition that wrote them, as in a shadow replay, and must give what their
        entries record; otherwise the report has a gap.
Rule 2: nothing is dropped: the follower waits for the comparison. It never delays the processes that it follows.
Rule 3: the only thing it writes is its report.
"""

from __future__ import annotations

from collections import OrderedDict

from interlock.errors import InterlockError
from interlock.kernel.step import Kernel
from interlock.model.limits import SHADOW_ENTITIES_MAX
from interlock.model.snapshot import Snapshot
from interlock.observe.feed import feed
from interlock.ports.reading.journal_feed import FeedEntry
from interlock.ports.store import Append
from interlock.runtime.history.recorded_steps import RecordedSteps, Unrepeated
from interlock.runtime.history.replay import as_recorded
from interlock.runtime.runtime import Runtime
from interlock.runtime.trials.shadow_run import ShadowRun


class ShadowFollower:
    """Compares what is written to a store from now on with a new chart. Raises UsageError for an invalid share."""

    def __init__(self, runtime: Runtime, new: Kernel, *, share: float, who: str) -> None:
        self.run = ShadowRun(runtime.entities, runtime.sender, new, share=share, who=who)
        self._runtime = runtime
        self._kind = new.chart.kind
        self._recorded = RecordedSteps(new, runtime.revisions)
        self._last: OrderedDict[str, Snapshot] = OrderedDict()
        self._since_ms = runtime.clock.now_ms()

    async def follow(self) -> None:
        """Compare entries as they are written, without end. Raises UnavailableError when the store does not respond."""
        self.run.start()
        entries = feed(self._runtime.store, self._runtime.clock, kind=self._kind, since_ms=self._since_ms, follow=True)
        async for each in entries:
            await self._add(each)

    async def _add(self, found: FeedEntry) -> None:
        entity, entry = found.entity, found.entry
        before = self._last.pop(entity, None)
        try:
            if entry.version > 1 and (before is None or before.version != entry.version - 1):
                before = await self._runtime.state(entity, at=entry.version - 1)
        except InterlockError as error:
            self.run.add_gap(error.code, error.message, entity)
            return
        source = await self._recorded.source(entry.revision)
        if isinstance(source, InterlockError):
            self.run.add_gap(source.code, source.message, entity, about=entry.revision)
            return
        step = self._recorded.repeat(source, entity, before, entry)
        if isinstance(step, Unrepeated):
            self.run.add_gap(step.code, step.text, entity, about=step.about)
            return
        after = as_recorded(step.snapshot, entry)
        self._last[entity] = after
        if len(self._last) > SHADOW_ENTITIES_MAX:
            self._last.popitem(last=False)
        await self.run.put(Append(self._kind, entity, entry.version - 1, entry, after, before=before))
