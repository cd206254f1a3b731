"""Alert rules made from a chart: promtool accepts them, and they fire when they should, and only then."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import interlock
from interlock.observe.metrics.alert_rules import alert_rules

ORDER = """
interlock: 1
kind: order
initial: pending
states:
  pending: {expect: {within: 10m}, on: {pay: packing}}
  packing: {on: {pack: transit}}
  transit: {id: 'in"transit{{x}}\\', expect: {within: 2d}, on: {arrive: delivered}}
  delivered: {type: final}
"""

PROMTOOL = shutil.which("promtool")
MISSING = "promtool is missing (Debian package `prometheus`): alert rules are NOT checked by it"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A folder with the rules of a chart."""
    if PROMTOOL is None:
        pytest.skip(MISSING)
    text = alert_rules([interlock.loads(ORDER).chart])
    (tmp_path / "order.rules.yml").write_text(text, encoding="utf-8")
    return tmp_path


def promtool(folder: Path, *arguments: str) -> None:
    """Run promtool; its output is the message if it fails."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], cwd=folder, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    """A series of a test of promtool."""
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return {"series": f"{name}{{{inside}}}", "values": values}


def fires(alert: str, at: str, *labels: dict[str, str]) -> dict[str, Any]:
    """The expectation that an alert fires with these labels, or, without any, that it is quiet."""
    return {
        "eval_time": at,
        "alertname": alert,
        "exp_alerts": [{"exp_labels": {"severity": "warning", **each}} for each in labels],
    }


def write_test(folder: Path, inputs: list[dict[str, str]], expected: list[dict[str, Any]]) -> None:
    """Write a test of promtool. Annotations of alerts are compared by promtool only if they are given, so none are."""
    found = yaml.safe_load((folder / "order.rules.yml").read_text(encoding="utf-8"))
    for group in found["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (folder / "bare.rules.yml").write_text(yaml.safe_dump(found, sort_keys=False), encoding="utf-8")
    document = {
        "rule_files": ["bare.rules.yml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": inputs, "alert_rule_test": expected}],
    }
    (folder / "test.yml").write_text(yaml.safe_dump(document), encoding="utf-8")


PENDING = {"kind": "order", "state": "pending"}
LEADER = series("interlock_exporter_leader", "1x60", instance="a")


def test_promtool_accepts_the_rules(rules: Path) -> None:
    promtool(rules, "check", "rules", "order.rules.yml")


def test_an_entity_that_is_stuck_raises_an_alert_once_however_many_processes_report_it(rules: Path) -> None:
    age = "0+60x60"  # a second per second, in minutes
    write_test(
        rules,
        [LEADER, *(series("interlock_state_oldest_seconds", age, instance=each, **PENDING) for each in "ab")],
        [fires("InterlockStuck", "11m"), fires("InterlockStuck", "13m", PENDING), fires("InterlockNoExporter", "20m")],
    )
    promtool(rules, "test", "rules", "test.yml")


def test_a_state_that_nobody_leaves_raises_an_alert(rules: Path) -> None:
    """Also if no entity has ever left it, so that it has no histogram."""
    write_test(
        rules,
        [LEADER, series("interlock_entities", "30x60", **PENDING)],
        [fires("InterlockNotMoving", "30m", PENDING)],
    )
    promtool(rules, "test", "rules", "test.yml")


@pytest.mark.parametrize(
    ("entities", "left"),
    [("20x60", "0x60"), ("30x60", "0+3x60"), ("0x25 30x35", "0x60")],
    ids=["small population", "moves", "has just arrived"],
)
def test_a_state_that_moves_or_has_few_entities_is_quiet(rules: Path, entities: str, left: str) -> None:
    write_test(
        rules,
        [
            LEADER,
            series("interlock_entities", entities, **PENDING),
            series("interlock_state_duration_seconds_count", left, instance="a", **PENDING),
        ],
        [fires("InterlockNotMoving", "30m")],
    )
    promtool(rules, "test", "rules", "test.yml")


def test_what_leaves_by_several_processes_is_added(rules: Path) -> None:
    """Each process alone is below a tenth of the expected rate, and together they are above it."""
    name = "interlock_state_duration_seconds_count"
    write_test(
        rules,
        [
            LEADER,
            series("interlock_entities", "100x60", **PENDING),
            *(series(name, "0+0.7x60", instance=each, **PENDING) for each in "ab"),
        ],
        [fires("InterlockNotMoving", "30m")],
    )
    promtool(rules, "test", "rules", "test.yml")


def test_dead_letters_lag_and_a_missing_exporter_raise_alerts(rules: Path) -> None:
    write_test(
        rules,
        [
            series("interlock_exporter_leader", "1x10 0x20", instance="a"),
            series("interlock_dead_letters", "2x30", lane="effect"),
            series("interlock_work_oldest_seconds", "90x30", lane="message"),
            series("interlock_work_oldest_seconds", "90x30", lane="timer"),
        ],
        [
            fires("InterlockDeadLetters", "20m", {"lane": "effect"}),
            fires("InterlockOutboxLag", "20m", {"lane": "message"}),
            fires("InterlockNoExporter", "12m"),
            fires("InterlockNoExporter", "20m", {}),
        ],
    )
    promtool(rules, "test", "rules", "test.yml")
