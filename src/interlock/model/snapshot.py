"""A snapshot: the complete immutable value of an entity at one version. `step` takes one and returns the next."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from interlock.model.charts.known_charts import state_names, unknown_state
from interlock.model.event import Event

Ended = Literal["done", "cancelled", "failed"]


class Timer(Struct, frozen=True, gc=False, omit_defaults=True):
    """A pending delayed event.

    `name` is unique in the snapshot: the send id, or `<id>~<version>.<ordinal>` while another of that id is pending.
    `to` is the address if it is not the entity itself. `state` is the state of an `after`. `since_ms` is the time from
    which it counts, if downtime has moved it or the driver's clock was behind the entity's time; None: the time of the
    entry that set it.
    """

    name: str
    event: str
    due_ms: int
    version: int
    ordinal: int
    id: str | None = None
    data: Any = None
    to: str | None = None
    type: str | None = None
    restore: str = "deadline"
    state: str | None = None
    since_ms: int | None = None


class Invocation(Struct, frozen=True, gc=False, omit_defaults=True):
    """An active invoke: its id, its state and position there, the key of its effect, whether it is a child entity."""

    id: str
    state: str
    position: int
    key: str
    child: bool = False


class Parent(Struct, frozen=True, gc=False, omit_defaults=True):
    """The entity that invoked this one, the id of the invoke, and the key of its effect."""

    entity: str
    invokeid: str
    key: str = ""


Shown = Literal["whole", "change", "nothing"]
"""What of an entry is shown to readers who may not see hidden states: all of it, that something changed, or nothing."""


class Sight(Struct, frozen=True, gc=False, omit_defaults=True):
    """What readers see who may not see the hidden states of the chart (ADR 0138).

    `unseen` counts the entries that they do not see, `time_ms` is the time of the last one that they do see, `shown` is
    what they see of the entry of this version. `cover` is the snapshot that is shown while the entity is in a hidden
    state; its own `sight` is None. `entered_ms` is since when they see the same states. `since` is the first version
    that was written with all this: of what is older, they see nothing.
    """

    unseen: int = 0
    time_ms: int = 0
    shown: Shown = "whole"
    cover: Snapshot | None = None
    since: int = 1
    entered_ms: int = 0


class Snapshot(Struct, frozen=True, gc=False, omit_defaults=True):
    """An entity at one version.

    `configuration` has the ids of the active atomic states in document order; after the end, those of the final states.
    `history` maps the id of a history state to the recorded states. `entered` is used for late binding only.
    `moved` is the version at which the entity last moved to another revision; 0 if it never did. `sight` exists only if
    the chart covers its hidden states. It is derived from the others, and no digest contains it.
    """

    kind: str
    entity: str
    version: int
    revision: str
    configuration: tuple[str, ...]
    context: dict[str, Any]
    history: dict[str, tuple[str, ...]] | None = None
    timers: tuple[Timer, ...] = ()
    invokes: tuple[Invocation, ...] = ()
    deferred: tuple[Event, ...] = ()
    entered: tuple[str, ...] = ()
    ended: Ended | None = None
    output: Any = None
    parent: Parent | None = None
    moved: int = 0
    sight: Sight | None = None

    def matches(self, state: str) -> bool:
        """Whether a state is active: an atomic one, or one that contains it. After the end, those in which it ended.

        Raises UsageError for a state that the chart does not have, and when no chart of this revision is loaded.
        """
        names = state_names(self.kind, self.revision)
        if state not in names.active:
            raise unknown_state(self.kind, state, names)
        return any(state in names.active.get(each, ()) for each in self.configuration)

    @property
    def tags(self) -> frozenset[str]:
        """The tags of the active states. Raises UsageError when no chart of this revision is loaded."""
        names = state_names(self.kind, self.revision)
        return frozenset(tag for each in self.configuration for tag in names.tags.get(each, ()))
