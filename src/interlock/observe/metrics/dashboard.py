"""A dashboard of Grafana, made from a chart: `interlock export grafana`.

Rule 1: it uses plain panels of Grafana 10 and newer, and the metrics of `families`. The data source is a variable, so
the file can be imported anywhere.
Rule 2: thresholds are those of the chart, its `expect`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.model.charts.chart import Chart
from interlock.observe.metrics.alert_rules import LAG_SECONDS_MAX, expected_states, place_of
from interlock.observe.metrics.families import (
    CONFLICTS,
    DEAD_LETTERS,
    EFFECT_ATTEMPTS,
    EFFECT_SECONDS,
    ENTITIES,
    REFUSALS,
    STATE_DURATION,
    STATE_OLDEST,
    STUCK_ENTITIES,
    TIMER_LATENESS,
    TRANSITIONS,
    WORK_OLDEST,
    WORK_ROWS,
)

SCHEMA_VERSION = 39
"""The dashboard schema of Grafana 10.4; newer versions of Grafana read it."""

_UID_LENGTH_MAX = 40
"""Characters of the id of a dashboard, by Grafana's rule."""

_WIDTH = 24
_HEIGHT = 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999))


def dashboard(chart: Chart) -> str:
    """Return the dashboard of a chart as JSON, to be imported into Grafana."""
    kind = chart.kind
    place = place_of(kind)
    panels = [
        _panel("Entities by state", [_target(f"max by (state) ({ENTITIES.name}{{{place}}})", "{{state}}")]),
        _panel(
            "Events by outcome",
            [_target(f"sum by (outcome) (rate({TRANSITIONS.name}{{{place}}}[$__rate_interval]))", "{{outcome}}")],
            unit="ops",
        ),
        _panel(
            "Time in state: $state",
            [
                _target(
                    f"histogram_quantile({part}, sum by (le) (rate("
                    f'{STATE_DURATION.name}_bucket{{{place},state="$state"}}[$__rate_interval])))',
                    name,
                )
                for name, part in _QUANTILES
            ],
            unit="s",
        ),
        *_age_panels(chart),
        _panel("Stuck entities", [_target(f"max by (state) ({STUCK_ENTITIES.name}{{{place}}})", "{{state}}")]),
        _panel(
            "Effects by result",
            [
                _target(
                    f"sum by (handler, result) (rate({EFFECT_ATTEMPTS.name}{{{place}}}[$__rate_interval]))",
                    "{{handler}} {{result}}",
                )
            ],
            unit="ops",
        ),
        _panel(
            "Effects: p95 of an attempt",
            [
                _target(
                    "histogram_quantile(0.95, sum by (le, handler) (rate("
                    f"{EFFECT_SECONDS.name}_bucket{{{place}}}[$__rate_interval])))",
                    "{{handler}}",
                )
            ],
            unit="s",
        ),
        _panel(
            "Timers: p95 of lateness",
            [
                _target(
                    "histogram_quantile(0.95, sum by (le) (rate("
                    f"{TIMER_LATENESS.name}_bucket{{{place}}}[$__rate_interval])))",
                    "p95",
                )
            ],
            unit="s",
        ),
        _panel(
            "Conflicts and refusals",
            [
                _target(f"sum(rate({CONFLICTS.name}{{{place}}}[$__rate_interval]))", "conflicts"),
                _target(f"sum by (reason) (rate({REFUSALS.name}{{{place}}}[$__rate_interval]))", "refused: {{reason}}"),
            ],
            unit="ops",
        ),
        _panel("Work by lane", [_target(f"max by (lane) ({WORK_ROWS.name})", "{{lane}}")]),
        _panel(
            "Overdue work",
            [_target(f"max by (lane) ({WORK_OLDEST.name})", "{{lane}}")],
            unit="s",
            threshold=LAG_SECONDS_MAX,
        ),
        _panel("Dead letters", [_target(f"max by (lane) ({DEAD_LETTERS.name})", "{{lane}}")], threshold=1),
    ]
    document = {
        "uid": f"interlock-{kind}"[:_UID_LENGTH_MAX],
        "title": f"Interlock: {kind}",
        "description": f"Made from the chart {kind} {chart.revision_text} by interlock export grafana.",
        "tags": ["interlock"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_SOURCE_VARIABLE, _state_variable(kind)]},
        "panels": _placed(panels),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


_SOURCE_VARIABLE = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _state_variable(kind: str) -> dict[str, Any]:
    return {
        "name": "state",
        "label": "State",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({STATE_DURATION.name}_count{{{place_of(kind)}}}, state)", "refId": "states"},
        "refresh": 2,
        "sort": 1,
    }


def _age_panels(chart: Chart) -> list[dict[str, Any]]:
    """Return a panel for each state with an `expect`, with its threshold, and one for all states together."""
    found = [
        _panel(
            "Oldest entity by state",
            [_target(f"max by (state) ({STATE_OLDEST.name}{{{place_of(chart.kind)}}})", "{{state}}")],
            unit="s",
        )
    ]
    for state, within in expected_states(chart):
        target = _target(f"max({STATE_OLDEST.name}{{{place_of(chart.kind, state.id)}}})", state.id)
        found.append(_panel(f"Oldest entity in {state.id}", [target], unit="s", threshold=within / 1_000))
    return found


def _target(expression: str, legend: str) -> dict[str, Any]:
    return {"datasource": _SOURCE, "expr": expression, "legendFormat": legend}


def _panel(
    title: str, targets: list[dict[str, Any]], *, unit: str = "short", threshold: float | None = None
) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 10}
    if threshold is not None:
        steps.append({"color": "red", "value": threshold})
        custom["thresholdsStyle"] = {"mode": "line"}
    defaults = {"unit": unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}, "custom": custom}
    return {
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "targets": [{"refId": chr(ord("A") + number), **each} for number, each in enumerate(targets)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}},
    }


def _placed(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return panels with their ids and places, two in a row."""
    width = _WIDTH // 2
    return [
        {
            "id": number + 1,
            **each,
            "gridPos": {"h": _HEIGHT, "w": width, "x": number % 2 * width, "y": number // 2 * _HEIGHT},
        }
        for number, each in enumerate(panels)
    ]
