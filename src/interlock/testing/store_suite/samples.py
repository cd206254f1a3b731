"""Sample entities, as the appends that a driver sends to a store.

Rule 1: every append is a real step of a real chart, so a journal can be replayed and compared with its snapshot.
Rule 2: times are inputs: the same calls make the same bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from interlock.assemble.charts import loads
from interlock.kernel.step import Kernel
from interlock.model.encoding.codec import encode, snapshot_digest
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, Entry
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from interlock.ports.store import Append
from interlock.runtime.charts.registry import ChartRegistry

PARCEL = """
interlock: 1
kind: {kind}
revision: {revision}
context:
  notes: {{type: integer, default: 0}}
  text: {{type: string, default: ""}}
initial: packed
states:
  packed: {{tags: [inside], on: {{shipped: moving}}}}
  moving:
    initial: road
    on: {{delivered: delivered}}
    states:
      road: {{tags: [outside], on: {{boarded: sea}}}}
      sea: {{tags: [outside, wet], on: {{landed: road}}}}
  delivered: {{type: final}}
on:
  noted:
    actions: [{{assign: {{notes: "= context.notes + 1"}}}}]
  marked: {{actions: [{{assign: {{text: "{revision}"}}}}]}}
  written:
    actions: [{{assign: {{text: "= event.data.text"}}}}]
"""


@cache
def kernel(kind: str = "parcel", revision: str = "1.0.0") -> Kernel:
    """Return the sample chart with any kind and revision: the label is part of its behaviour."""
    return loads(PARCEL.format(kind=kind, revision=revision)).kernel


def charts(*kinds: str) -> ChartRegistry:
    """Return the charts that replay sample journals of these kinds."""
    return ChartRegistry(kernel(kind) for kind in kinds or ("parcel",))


class SampleEntity:
    """One entity as its driver sees it: its snapshot, and its next append."""

    def __init__(self, entity: str, *, revision: str = "1.0.0", time_ms: int = 1_000) -> None:
        self.entity = entity
        self.kernel = kernel(entity.partition("/")[0], revision)
        self.time_ms = time_ms
        self.snapshot: Snapshot | None = None
        self._entered: dict[str, int] = {}

    def entered_ms(self, state: str | None = None) -> int:
        """Return since when the entity has been in a state, or in its configuration."""
        if state is not None:
            return self._entered[state]
        return max(self._entered[each] for each in self.snapshot.configuration) if self.snapshot else self.time_ms

    def create(self, key: str = "born", context: dict[str, Any] | None = None) -> Append:
        """Return the append of entry 1."""
        event = Event(CREATE, {"context": context or {}}, key=key, time_ms=self.time_ms, type="platform")
        step = self.kernel.start(context, entity=self.entity, time_ms=self.time_ms)
        return self._append(None, event, step, key)

    def step(self, event: str = "noted", data: Any = None, *, key: str, after_ms: int = 10) -> Append:
        """Return the append of one event on the snapshot of the append before."""
        if self.snapshot is None:
            raise LookupError(f"{self.entity} was not created")
        self.time_ms += after_ms
        given = Event(event, data, key, key, None, self.time_ms)
        return self._append(self.snapshot, given, self.kernel.step(self.snapshot, given), key)

    def cancel(self, *, key: str, after_ms: int = 10) -> Append:
        """Return the append of a cancellation by the parent: the entity ends in a state that is not final."""
        if self.snapshot is None:
            raise LookupError(f"{self.entity} was not created")
        self.time_ms += after_ms
        given = Event("_cancel", None, key, key, None, self.time_ms, type="platform")
        return self._append(self.snapshot, given, self.kernel.step(self.snapshot, given), key)

    def _append(self, before: Snapshot | None, event: Event, step: Step, key: str) -> Append:
        after = self.snapshot = step.snapshot
        left = () if before is None else before.configuration
        entry = Entry(
            after.version,
            event,
            step.outcome,
            left,
            after.configuration,
            after.revision,
            key,
            effects=step.effects,
            digest=snapshot_digest(encode(after)),
        )
        active = self.kernel.active(after)
        tags = tuple(sorted({tag for each in active for tag in each.tags}))
        states = tuple(each.id for each in active)
        self._entered = {each: self._entered.get(each, self.time_ms) for each in states}
        return Append(after.kind, self.entity, after.version - 1, entry, after, states, tags, before=before)
