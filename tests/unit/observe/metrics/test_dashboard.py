"""The dashboard of a chart: Grafana's JSON, by a schema of the parts that are used, and queries of known metrics."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest

import interlock
from interlock.observe.metrics.dashboard import dashboard
from interlock.observe.metrics.families import FAMILIES

ORDER = """
interlock: 1
kind: order
initial: pending
states:
  pending: {expect: {within: 90s}, on: {pay: packing}}
  packing: {expect: {within: forever}, on: {pack: sent}}
  sent: {type: final}
"""

SOURCE = {
    "type": "object",
    "required": ["type", "uid"],
    "properties": {"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}},
    "additionalProperties": False,
}
NUMBER = {"type": "integer", "minimum": 0}
TARGET = {
    "type": "object",
    "required": ["refId", "datasource", "expr", "legendFormat"],
    "properties": {
        "refId": {"pattern": "^[A-Z]$"},
        "datasource": SOURCE,
        "expr": {"type": "string", "minLength": 1},
        "legendFormat": {"type": "string", "minLength": 1},
    },
    "additionalProperties": False,
}
STEP = {
    "type": "object",
    "required": ["color", "value"],
    "properties": {"color": {"type": "string"}, "value": {"type": ["number", "null"]}},
    "additionalProperties": False,
}
PANEL = {
    "type": "object",
    "required": ["id", "type", "title", "datasource", "gridPos", "targets", "fieldConfig", "options"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"const": "timeseries"},
        "title": {"type": "string", "minLength": 1},
        "datasource": SOURCE,
        "gridPos": {
            "type": "object",
            "required": ["h", "w", "x", "y"],
            "properties": {"h": NUMBER, "w": {"maximum": 24, **NUMBER}, "x": {"maximum": 23, **NUMBER}, "y": NUMBER},
            "additionalProperties": False,
        },
        "targets": {"type": "array", "minItems": 1, "items": TARGET},
        "fieldConfig": {
            "type": "object",
            "required": ["defaults", "overrides"],
            "properties": {
                "defaults": {
                    "type": "object",
                    "required": ["unit", "thresholds", "custom"],
                    "properties": {
                        "unit": {"enum": ["short", "s", "ops"]},
                        "min": {"const": 0},
                        "thresholds": {
                            "type": "object",
                            "properties": {
                                "mode": {"const": "absolute"},
                                "steps": {"type": "array", "minItems": 1, "items": STEP},
                            },
                            "required": ["mode", "steps"],
                            "additionalProperties": False,
                        },
                        "custom": {"type": "object"},
                    },
                    "additionalProperties": False,
                },
                "overrides": {"const": []},
            },
            "additionalProperties": False,
        },
        "options": {"type": "object"},
    },
    "additionalProperties": False,
}
VARIABLE = {
    "type": "object",
    "required": ["name", "type", "query"],
    "properties": {
        "name": {"enum": ["datasource", "state"]},
        "label": {"type": "string"},
        "type": {"enum": ["datasource", "query"]},
        "datasource": SOURCE,
        "query": {"type": ["string", "object"]},
        "refresh": {"enum": [0, 1, 2]},
        "sort": NUMBER,
    },
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "required": ["uid", "title", "schemaVersion", "panels", "templating", "time"],
    "properties": {
        "uid": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,40}$"},
        "title": {"type": "string", "minLength": 1},
        "description": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "editable": {"type": "boolean"},
        "time": {
            "type": "object",
            "required": ["from", "to"],
            "properties": {"from": {"type": "string"}, "to": {"const": "now"}},
            "additionalProperties": False,
        },
        "refresh": {"type": "string"},
        "templating": {
            "type": "object",
            "required": ["list"],
            "properties": {"list": {"type": "array", "items": VARIABLE}},
            "additionalProperties": False,
        },
        "panels": {"type": "array", "minItems": 1, "items": PANEL},
    },
    "additionalProperties": False,
}


@pytest.fixture
def found() -> dict[str, Any]:
    """The dashboard of a chart with one threshold."""
    result: dict[str, Any] = json.loads(dashboard(interlock.loads(ORDER).chart))
    return result


def test_it_has_the_form_that_grafana_imports(found: dict[str, Any]) -> None:
    errors = [
        f"{each.instance_path}: {each.message}" for each in jsonschema_rs.Draft7Validator(SCHEMA).iter_errors(found)
    ]

    assert [] == errors


def test_a_long_kind_gets_an_id_that_grafana_accepts() -> None:
    long = json.loads(dashboard(interlock.loads(ORDER.replace("kind: order", f"kind: {'k' * 60}")).chart))

    assert jsonschema_rs.Draft7Validator(SCHEMA).is_valid(long)


def test_panels_have_own_ids_and_do_not_overlap(found: dict[str, Any]) -> None:
    places = [each["gridPos"] for each in found["panels"]]
    cells = [(x, y) for each in places for x in range(each["x"], each["x"] + each["w"]) for y in (each["y"],)]

    assert len(places) == len({each["id"] for each in found["panels"]})
    assert len(cells) == len(set(cells))


def test_queries_name_metrics_that_exist(found: dict[str, Any]) -> None:
    known = {each.name for each in FAMILIES}
    known |= {f"{each.name}_{part}" for each in FAMILIES if each.type == "histogram" for part in ("bucket", "count")}
    asked = {name for panel in found["panels"] for each in panel["targets"] for name in _metrics(each["expr"])}

    assert asked <= known
    assert "interlock_state_duration_seconds_bucket" in asked


def _metrics(expression: str) -> list[str]:
    return re.findall(r"interlock_\w+", expression)


def test_thresholds_are_those_of_the_chart(found: dict[str, Any]) -> None:
    """Only a state that says how long an entity may stay has one."""
    thresholds = {
        panel["title"]: step["value"]
        for panel in found["panels"]
        for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        if step["value"] is not None
    }

    assert {"Oldest entity in pending": 90.0, "Overdue work": 60, "Dead letters": 1} == thresholds
