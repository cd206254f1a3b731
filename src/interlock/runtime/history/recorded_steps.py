"""Recorded steps, repeated by the definition that wrote them, next to what compares them with a new definition.

Rule: a repeated step must give what its entry records. Otherwise it is `Unrepeated`, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass

from interlock.errors import InterlockError, UnavailableError
from interlock.evolve.carry import Carrier
from interlock.evolve.step_comparison import StepComparer
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.replay import repeat_step
from interlock.runtime.history.verify import difference

UNREPEATABLE = "entry.unrepeatable"
"""The code for an entry that its own definition does not give again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSource:
    """A recorded revision: the kernel that repeats its entries, and the comparer of its steps.

    `is_new`: it is the new definition itself, perhaps with other functions than those that wrote the entries.
    """

    kernel: Kernel
    comparer: StepComparer
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrepeated:
    """An entry that cannot be repeated: a code, the reason, and the subject. `step` is the other step that resulted."""

    code: str
    text: str
    about: str
    step: Step | None = None


class RecordedSteps:
    """Repeats recorded steps of one kind. `revisions` finds the definitions that wrote them."""

    def __init__(self, new: Kernel, revisions: Revisions) -> None:
        self.new = new
        self._revisions = revisions
        self._sources: dict[str, RecordedSource | InterlockError] = {}

    def charts(self) -> list[Chart]:
        """Return the charts of the revisions that were met, and the new one."""
        found = [each.kernel.chart for each in self._sources.values() if isinstance(each, RecordedSource)]
        return [self.new.chart, *found]

    async def source(self, revision: str) -> RecordedSource | InterlockError:
        """Return what repeats and compares the entries of a revision, or why they cannot be compared."""
        known = self._sources.get(revision)
        if known is not None:
            return known
        new = self.new
        found: RecordedSource | InterlockError
        try:
            is_new = new.chart.is_revision(revision)
            kernel = new if is_new else await self._revisions.for_reading(new.chart.kind, revision)
            comparer = StepComparer(carrier_of(kernel, revision, new))
            found = RecordedSource(kernel=kernel, comparer=comparer, is_new=is_new)
        except InterlockError as error:
            found = error
        self._sources[revision] = found
        return found

    def repeat(self, source: RecordedSource, entity: str, before: Snapshot | None, entry: Entry) -> Step | Unrepeated:
        """Repeat the step of an entry on the recorded snapshot before it."""
        try:
            step = repeat_step(source.kernel, entity, before, entry)
        except InterlockError as error:
            text = f"the step fails: {error.message}"
            return Unrepeated(code=UNREPEATABLE, text=text, about=entry.revision)
        missing = None if source.is_new else self._revisions.missing_call(source.kernel)
        if missing is not None:
            text = f"revision {entry.revision} calls `{missing}`, which is not registered here"
            return Unrepeated(code="function.missing", text=text, about=missing)
        if not _is_repeated(entry, step) and difference(entry, before, step) is not None:
            text = f"revision {entry.revision} does not give what the journal records"
            return Unrepeated(code=UNREPEATABLE, text=text, about=entry.revision, step=step)
        return step


def carrier_of(old: Kernel, revision: str, new: Kernel) -> Carrier:
    """Return what carries entities of a revision to a new chart. Raises UnavailableError for a chart without its text,
    or one that is only compatible with the revision.
    """
    before, after = old.chart.document, new.chart.document
    if before is None or after is None or not old.chart.is_revision(revision):
        message = f"the definition of revision {revision} of `{new.chart.kind}` is not known here"
        raise UnavailableError(message, code="revision.unknown")
    return Carrier(before, after, new)


def _is_repeated(entry: Entry, step: Step) -> bool:
    """Whether a repeated step gives what its entry records; where this says no, `difference` decides exactly."""
    after = step.snapshot
    return (
        entry.version == after.version
        and entry.after == after.configuration
        and entry.outcome == step.outcome
        and entry.reason == step.reason
        and entry.effects == step.effects
    )
