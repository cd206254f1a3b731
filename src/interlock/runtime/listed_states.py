"""By which names lists find an entity: its active states and their tags, and those that others see."""

from __future__ import annotations

from interlock.kernel.step import Kernel
from interlock.model.journal.entry import Entry
from interlock.model.limits import SNAPSHOTS_CACHED_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.reading.visible_names import visible_names
from interlock.ports.store import ENDED_STATES, listed_states


class ListedStates:
    """What lists need of a chart: active states with their tags, computed once."""

    def __init__(self) -> None:
        self._active: dict[tuple[str, tuple[str, ...]], tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def active(self, kernel: Kernel, snapshot: Snapshot) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the active states of a snapshot, compounds too, and their tags."""
        name = (snapshot.revision, snapshot.configuration)
        found = self._active.get(name)
        if found is None:
            states = kernel.active(snapshot)
            found = tuple(each.id for each in states), tuple(sorted({tag for each in states for tag in each.tags}))
            if len(self._active) >= SNAPSHOTS_CACHED_MAX:  # regions multiply: computing them again is cheaper
                self._active.clear()
            self._active[name] = found
        return found

    def others(self, kernel: Kernel, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the names under which readers find the entity who may not see hidden states (`Append.others`)."""
        hidden = kernel.chart.hidden
        if hidden is None or not hidden.is_covered:
            return ()
        shown: Snapshot | None = snapshot
        if not hidden.states.isdisjoint(snapshot.configuration):
            shown = None if snapshot.sight is None else snapshot.sight.cover
        if shown is None or not hidden.states.isdisjoint(shown.configuration):
            return ()
        states, tags = self.active(kernel, shown)
        return visible_names(listed_states(shown.ended, states), () if shown.ended in ENDED_STATES else tags)

    @staticmethod
    def is_hidden(kernel: Kernel, entry: Entry) -> bool:
        """Whether an entry is not published: of a hidden state, or next to one without a cover."""
        hidden = kernel.chart.hidden
        if hidden is None:
            return False
        return entry.shown == "nothing" or (
            not hidden.is_covered and not hidden.states.isdisjoint((*entry.before, *entry.after))
        )
