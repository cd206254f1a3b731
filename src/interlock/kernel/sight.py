"""The cover of hidden states: what readers see who may not see them (ADR 0138).

Rule 1: while an entity is in a hidden state, its cover is the last visible snapshot, unchanged.
Rule 2: a step that starts or ends in a hidden state, or passes through one, is unseen; but if a reader of the cover
        would see a difference after a step that ends outside, its entry is seen.
Rule 3: the visible version is the version without the unseen entries. It never goes back.
Rule 4: all this is computed from the snapshot before and the step, so that replay computes it again.
"""

from __future__ import annotations

from msgspec.structs import replace

from interlock.model.charts.chart import Chart, HiddenStates
from interlock.model.snapshot import Shown, Sight, Snapshot
from interlock.model.step import Step
from interlock.model.visible import ChartMask, VisibleSnapshot, project


class CoverKeeper:
    """Keeps the `sight` of the snapshots of a chart that covers its hidden states."""

    def __init__(self, chart: Chart, hidden: HiddenStates) -> None:
        self._chart = chart
        self._states = hidden.states
        self._entering = hidden.entering
        self._mask = ChartMask(chart)

    def after(self, before: Snapshot | None, step: Step, time_ms: int) -> Step:
        """Return a step whose snapshot has its `sight`."""
        after = step.snapshot
        if before is not None and after.version == before.version:
            return step if after.sight == before.sight else replace(step, snapshot=replace(after, sight=before.sight))
        touched = not self._entering.isdisjoint(step.transitions)
        return replace(step, snapshot=self._next(before, after, time_ms, touched=touched))

    def after_move(self, before: Snapshot, after: Snapshot, cover: Snapshot | None, time_ms: int) -> Snapshot:
        """Return a snapshot that was moved to this chart, with its `sight`.

        `cover` is the cover before, moved too; None if there was none. Its entry is always shown as a change, because
        the patch of the move contains the truth.
        """
        sight = _sight(before, after)
        if self._is_hidden(after) and cover is None:
            return self._next(before, after, time_ms, touched=True)
        shown = after if cover is None or not self._is_hidden(after) else cover
        was_shown = before if sight.cover is None else sight.cover
        entered_ms = sight.entered_ms if was_shown.configuration == shown.configuration else time_ms
        kept = None if shown is after else replace(shown, sight=None)
        return replace(after, sight=Sight(sight.unseen, time_ms, "change", kept, sight.since, entered_ms))

    def _next(self, before: Snapshot | None, after: Snapshot, time_ms: int, *, touched: bool) -> Snapshot:
        sight = _sight(before, after)
        was_hidden = before is not None and self._is_hidden(before)
        cover = sight.cover if was_hidden else before
        is_hidden = self._is_hidden(after)
        is_same = (was_hidden or touched) and cover is not None and self._shows(cover) == self._shows(after)
        if is_hidden or is_same:
            kept = replace(cover, sight=None) if is_hidden and cover is not None else None
            unseen = Sight(sight.unseen + 1, sight.time_ms, "nothing", kept, sight.since, sight.entered_ms)
            return replace(after, sight=unseen)
        is_in_place = cover is not None and cover.configuration == after.configuration
        entered_ms = sight.entered_ms if is_in_place else time_ms
        shown: Shown = "change" if was_hidden or touched else "whole"
        return replace(after, sight=Sight(sight.unseen, time_ms, shown, None, sight.since, entered_ms))

    def _is_hidden(self, snapshot: Snapshot) -> bool:
        return not self._states.isdisjoint(snapshot.configuration)

    def _shows(self, snapshot: Snapshot) -> VisibleSnapshot:
        return replace(project(self._chart, self._mask, snapshot), version=0, revision="")


def _sight(before: Snapshot | None, after: Snapshot) -> Sight:
    if before is None:
        return Sight()
    return Sight(since=after.version) if before.sight is None else before.sight
