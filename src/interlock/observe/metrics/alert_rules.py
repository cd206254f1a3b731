"""Alert rules of Prometheus, made from charts: `interlock export prometheus-rules`.

Rule 1: a threshold is that of the chart, its `expect`. A state without one, with `within: forever`, or that ends the
entity has no rule.
Rule 2: `InterlockNotMoving` compares how many entities leave a state with how many are in it. By Little's law, a tenth
of what `within` asks for means that the state hardly moves. It needs a population that was above `POPULATION_MIN` for
the whole window, so that one slow entity, or a burst that has just arrived, raises no alarm.
Rule 3: a store-wide metric has one reporter. While a lease passes to another process two may be scraped, so rules take
the maximum, and never a sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from interlock.model.charts.chart import Chart, State
from interlock.model.duration import format_duration, parse_duration
from interlock.observe.metrics.families import (
    DEAD_LETTERS,
    ENTITIES,
    EXPORTER_LEADER,
    STATE_DURATION,
    STATE_OLDEST,
    WORK_OLDEST,
)

POPULATION_MIN = 20
"""Entities above which a state is expected to move steadily."""

MOVING_SHARE_MIN = 0.1
"""The part of the expected rate below which a state counts as not moving."""

LAG_SECONDS_MAX = 60
"""Overdue time of messages after which their outbox lags: a worker polls every second, and a bus is retried for 30."""

_STATE = "{{ $labels.state }}"
"""The state, as templates of annotations name it: an id may contain what means something in a template."""

_MINUTE_MS = 60_000
_WINDOW_MS_MIN = 5 * _MINUTE_MS
"""The shortest window of a rate: several scrapes, which are a minute apart at most in common setups."""


def expected_states(chart: Chart) -> tuple[tuple[State, int], ...]:
    """Return the states that say how long an entity may stay, each with the milliseconds."""
    found = []
    for state in chart.states:
        within = None if state.expect is None else parse_duration(state.expect.within)
        if within and state.type != "final":
            found.append((state, within))
    return tuple(found)


def alert_rules(charts: Iterable[Chart]) -> str:
    """Return the rules of some charts as a rule file of Prometheus. Charts with hidden states have no metrics."""
    shown = [each for each in charts if each.hidden is None]
    groups = [{"name": f"interlock_{each.kind}", "rules": _chart_rules(each)} for each in shown]
    groups = [each for each in groups if each["rules"]]
    groups.append({"name": "interlock", "rules": _store_rules()})
    text: str = yaml.safe_dump({"groups": groups}, sort_keys=False, width=10_000, allow_unicode=True)
    return text


def _chart_rules(chart: Chart) -> list[dict[str, Any]]:
    return [
        rule
        for state, within in expected_states(chart)
        for rule in (_stuck_rule(chart.kind, state.id, within), _moving_rule(chart.kind, state.id, within))
    ]


def _stuck_rule(kind: str, state: str, within_ms: int) -> dict[str, Any]:
    place = f"{{{place_of(kind, state)}}}"
    return {
        "alert": "InterlockStuck",
        "expr": f"max by (kind, state) ({STATE_OLDEST.name}{place}) > {_seconds(within_ms)}",
        "for": _for(within_ms),
        "labels": _labels(kind, state),
        "annotations": {
            "summary": f"{kind}: an entity is stuck in {_STATE}",
            "description": f"The oldest entity has been in {_STATE} for {{{{ $value | humanizeDuration }}}}; "
            f"the chart expects {format_duration(within_ms)}. Next: interlock stuck {kind}",
        },
    }


def _moving_rule(kind: str, state: str, within_ms: int) -> dict[str, Any]:
    place = f"{{{place_of(kind, state)}}}"
    window_ms = max(within_ms, _WINDOW_MS_MIN)
    window = format_duration(window_ms)
    population = f"max by (kind, state) (min_over_time({ENTITIES.name}{place}[{window}]))"
    left = f"sum by (kind, state) (rate({STATE_DURATION.name}_count{place}[{window}]))"
    return {
        "alert": "InterlockNotMoving",
        "expr": f"({left} or {population} * 0) * {_seconds(window_ms)} < {MOVING_SHARE_MIN} * {population} "
        f"and {population} > {POPULATION_MIN}",
        "for": _for(within_ms),
        "labels": _labels(kind, state),
        "annotations": {
            "summary": f"{kind}: hardly any entity leaves {_STATE}",
            "description": f"{{{{ $value | humanize }}}} entities left {_STATE} in {window}, "
            f"less than a tenth of those in it. Next: interlock top {kind}",
        },
    }


def _store_rules() -> list[dict[str, Any]]:
    return [
        {
            "alert": "InterlockDeadLetters",
            "expr": f"max by (lane) ({DEAD_LETTERS.name}) > 0",
            "for": "5m",
            "labels": {"severity": "warning"},
            "annotations": {
                "summary": "work has failed for good",
                "description": "{{ $value }} dead letters in the lane {{ $labels.lane }}. "
                "Next: interlock effects ls --dead",
            },
        },
        {
            "alert": "InterlockOutboxLag",
            "expr": f'max by (lane) ({WORK_OLDEST.name}{{lane=~"outbox|message"}}) > {LAG_SECONDS_MAX}',
            "for": "5m",
            "labels": {"severity": "warning"},
            "annotations": {
                "summary": "messages wait too long",
                "description": "The first message of the lane {{ $labels.lane }} is overdue for "
                "{{ $value | humanizeDuration }}. Next: interlock stuck",
            },
        },
        {
            "alert": "InterlockNoExporter",
            "expr": f"absent({EXPORTER_LEADER.name} == 1)",
            "for": "5m",
            "labels": {"severity": "warning"},
            "annotations": {
                "summary": "no process reports the state of the store",
                "description": "The rules for stuck entities, dead letters and messages see nothing. Next: start a "
                "worker with interlock run --probe, and check that Prometheus scrapes it",
            },
        },
    ]


def place_of(kind: str, state: str | None = None) -> str:
    """Return the labels of a kind, and of a state, as a selector without its braces."""
    found = f'kind="{_escape(kind)}"'
    return found if state is None else f'{found},state="{_escape(state)}"'


def _escape(text: str) -> str:
    """Return a text for a string of PromQL."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _labels(kind: str, state: str) -> dict[str, str]:
    """Return the labels of an alert. Values are templates, and rules with the same labels would look like copies."""
    return {"severity": "warning", "kind": kind, "state": state.replace("{{", '{{ "{{" }}')}


def _seconds(ms: int) -> str:
    return str(ms // 1_000) if ms % 1_000 == 0 else repr(ms / 1_000)


def _for(within_ms: int) -> str:
    """A tenth of what is expected, and a minute at least."""
    return format_duration(max(_MINUTE_MS, within_ms // 10 // 1_000 * 1_000))
