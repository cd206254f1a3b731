"""Every metric: its name, type, labels and help. Counters, gauges, alert rules and dashboards use these names.

Rule 1: labels are kinds, states, events and handlers that a chart names, lanes, and words of small fixed sets.
Rule 2: names and labels are an interface: dashboards of users depend on them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

OTHER = "_other"
"""The label of everything that no chart names, or that is beyond `METRIC_SERIES_MAX`."""


class Family(Struct, frozen=True):
    """A metric with its labels. `is_store_wide`: only the process that has the lease of the exporter reports it."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    is_store_wide: bool = False


class Histogram(Struct, frozen=True):
    """Observations by bucket, the last of which has no bound, and their sum in seconds."""

    counts: tuple[int, ...]
    seconds: float


Labels = tuple[str, ...]
Samples = dict[Labels, float | Histogram]
"""The values of a family, by its labels."""

TRANSITIONS = Family(
    "interlock_transitions_total",
    "counter",
    ("kind", "event", "outcome"),
    "Events that entities received in this process, by outcome.",
)
STATE_DURATION = Family(
    "interlock_state_duration_seconds",
    "histogram",
    ("kind", "state"),
    "How long entities stayed in a state that they left by a step of this process.",
)
EFFECT_ATTEMPTS = Family(
    "interlock_effect_attempts_total",
    "counter",
    ("kind", "handler", "result"),
    "Attempts to run an effect in this process: ok, retry, failed or paused.",
)
EFFECT_SECONDS = Family(
    "interlock_effect_seconds", "histogram", ("kind", "handler"), "How long attempts to run an effect took."
)
TIMER_LATENESS = Family(
    "interlock_timer_lateness_seconds",
    "histogram",
    ("kind",),
    "How long after they were due timers were fired by this process.",
)
CONFLICTS = Family(
    "interlock_conflicts_total", "counter", ("kind",), "Steps of this process that lost their swap and were repeated."
)
DUPLICATES = Family(
    "interlock_duplicates_total", "counter", ("kind",), "Events that this process recognised as repeated by their key."
)
REFUSALS = Family(
    "interlock_refusals_total",
    "counter",
    ("kind", "reason"),
    "Events that this process refused: by the chart, the policy, a full queue, or as invalid.",
)
APPEND_SECONDS = Family(
    "interlock_append_seconds", "histogram", (), "How long the store took to make a step of this process durable."
)
MAILBOX_WAITING = Family("interlock_mailbox_waiting", "gauge", (), "Callers of this process that wait for their turn.")
EXPORTER_LEADER = Family(
    "interlock_exporter_leader", "gauge", (), "1 in the process that reports the store-wide metrics, 0 in all others."
)
ENTITIES = Family(
    "interlock_entities", "gauge", ("kind", "state"), "Entities in a state, compounds included.", is_store_wide=True
)
STATE_OLDEST = Family(
    "interlock_state_oldest_seconds",
    "gauge",
    ("kind", "state"),
    "How long the oldest entity of a state that is not held has been in it; 0 for none.",
    is_store_wide=True,
)
STUCK_ENTITIES = Family(
    "interlock_stuck_entities",
    "gauge",
    ("kind", "state"),
    "Entities that have been in a state for longer than its chart expects and are not held; counting stops at 10001.",
    is_store_wide=True,
)
HELD_ENTITIES = Family(
    "interlock_held_entities",
    "gauge",
    ("kind",),
    "Entities that an operator holds one by one; counting stops at 1001.",
    is_store_wide=True,
)
HELD_KINDS = Family(
    "interlock_held_kinds",
    "gauge",
    ("kind",),
    "1 while an operator holds all entities of the kind.",
    is_store_wide=True,
)
WORK_ROWS = Family(
    "interlock_work_rows",
    "gauge",
    ("lane",),
    "Work that waits for its time or a worker, by lane; counting stops at 10001.",
    is_store_wide=True,
)
WORK_OLDEST = Family(
    "interlock_work_oldest_seconds",
    "gauge",
    ("lane",),
    "How long the first work of a lane is overdue. For the lanes outbox and message this is the lag of the outbox.",
    is_store_wide=True,
)
DEAD_LETTERS = Family(
    "interlock_dead_letters",
    "gauge",
    ("lane",),
    "Work whose attempts have all failed; counting stops at 10000.",
    is_store_wide=True,
)

FAMILIES = (
    TRANSITIONS,
    STATE_DURATION,
    EFFECT_ATTEMPTS,
    EFFECT_SECONDS,
    TIMER_LATENESS,
    CONFLICTS,
    DUPLICATES,
    REFUSALS,
    APPEND_SECONDS,
    MAILBOX_WAITING,
    EXPORTER_LEADER,
    ENTITIES,
    STATE_OLDEST,
    STUCK_ENTITIES,
    HELD_ENTITIES,
    HELD_KINDS,
    WORK_ROWS,
    WORK_OLDEST,
    DEAD_LETTERS,
)
