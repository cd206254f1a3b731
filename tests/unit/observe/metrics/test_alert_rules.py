"""The alert rules of charts: thresholds, windows, labels. `tests/processes/test_promtool.py` shows that they fire."""

from __future__ import annotations

from typing import Any

import yaml

import interlock
from interlock.observe.metrics.alert_rules import alert_rules

CHART = """
interlock: 1
kind: %s
initial: pending
states:
  pending: {expect: {within: %s}, on: {pay: paid}}
  paid: {expect: {within: forever}, on: {close: closed}}
  closed: {type: final}
"""
HIDDEN = """
interlock: 1
kind: account
initial: open
states:
  open: {expect: {within: 1h}, on: {freeze: frozen}}
  frozen: {sensitive: {as: open}, expect: {within: 1h}, on: {thaw: open}}
"""


def rules_of(*texts: str) -> dict[str, list[dict[str, Any]]]:
    """The rules by group."""
    found = yaml.safe_load(alert_rules([interlock.loads(each).chart for each in texts]))
    return {group["name"]: group["rules"] for group in found["groups"]}


def test_only_a_state_with_a_duration_has_rules() -> None:
    rules = rules_of(CHART % ("order", "2h"))["interlock_order"]

    assert [("InterlockStuck", "pending"), ("InterlockNotMoving", "pending")] == [
        (each["alert"], each["labels"]["state"]) for each in rules
    ]


def test_the_threshold_is_that_of_the_chart_and_the_alert_waits_for_a_tenth_of_it() -> None:
    stuck, moving = rules_of(CHART % ("order", "2h"))["interlock_order"]

    assert 'max by (kind, state) (interlock_state_oldest_seconds{kind="order",state="pending"}) > 7200' == stuck["expr"]
    assert ("12m", "12m") == (stuck["for"], moving["for"])
    assert "[2h]" in moving["expr"]


def test_a_short_threshold_has_a_window_of_five_minutes_and_waits_for_one() -> None:
    stuck, moving = rules_of(CHART % ("order", "10s"))["interlock_order"]

    assert ("1m", True) == (stuck["for"], "[5m]" in moving["expr"])
    assert "* 300 <" in moving["expr"]


def test_several_charts_have_a_group_each_and_store_rules_once() -> None:
    groups = rules_of(CHART % ("order", "2h"), CHART % ("parcel", "3d"), CHART % ("note", "forever"))

    assert ["interlock_order", "interlock_parcel", "interlock"] == list(groups)
    assert ["InterlockDeadLetters", "InterlockOutboxLag", "InterlockNoExporter"] == [
        each["alert"] for each in groups["interlock"]
    ]


def test_a_chart_with_hidden_states_has_no_rules() -> None:
    assert ["interlock"] == list(rules_of(HIDDEN))
