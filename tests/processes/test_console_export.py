"""What the console copies works as it is: the test runs, and the command sends an event that the entity accepts."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.web.api.views import chart_file

EXPORT = Path("src/interlock/web/static/export.js").resolve()
ORDER = """
interlock: 1
kind: order
context: {amount: {type: integer, default: 1}}
events:
  order.paid: {payload: {id: {type: string, required: true}, count: {type: integer, min: 3, required: true}}}
  order.noted: {}
initial: open
states:
  open: {on: {order.paid: {target: paid, actions: [{assign: {amount: "= event.data.count"}}]}}}
  paid: {type: final}
"""

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("node") is None, reason="SKIPPED: node is not installed: the console's copies"),
]


def exported(call: str, *values: Any) -> str:
    """What a function of `export.js` returns for these values."""
    script = f"""
        globalThis.location = {{origin: "http://127.0.0.1:8080"}};
        const module = await import({json.dumps(EXPORT.as_uri())});
        process.stdout.write(module.{call}(...JSON.parse(process.argv[1])));
    """
    command = ["node", "--input-type=module", "-e", script, json.dumps(values)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_copied_test_loads_the_file_of_the_chart_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.interlock.yaml").write_text(ORDER, encoding="utf-8")
    file = chart_file(interlock.load("order.interlock.yaml").chart)
    entries = [
        {"event": "create", "data": {"context": {"amount": 2}}, "time_ms": 1, "after": ["open"]},
        {"event": "order.paid", "data": {"id": "p-'1", "count": 3}, "time_ms": 2, "after": ["paid"]},
    ]
    text = exported("asTest", {"entity": "order/A-1", "kind": "order", "file": file}, entries)
    names: dict[str, Any] = {}
    exec(text, names)

    assert "order.interlock.yaml" == file
    names["test_order_a_1"]()


@pytest.mark.parametrize("source", ["<text>", "<definition>", "nothing"])
def test_a_chart_without_a_file_is_taken_from_where_a_new_project_has_it(source: str) -> None:
    assert chart_file(interlock.loads(ORDER, source=source).chart) is None
    assert 'interlock.load("order.interlock.yaml")' in exported(
        "asTest", {"entity": "order/1", "kind": "order", "file": None}, []
    )


def test_the_path_of_a_file_elsewhere_is_not_shown() -> None:
    assert "order.yaml" == chart_file(interlock.loads(ORDER, source="/srv/secret/order.yaml").chart)
    assert "order.yaml" == chart_file(interlock.loads(ORDER, source="../order.yaml").chart)
    assert "charts/order.yaml" == chart_file(interlock.loads(ORDER, source="charts/order.yaml").chart)


def test_a_copied_command_sends_an_event_that_the_entity_accepts() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1},
            "count": {"type": "integer", "minimum": 3},
            "note": {"type": ["string", "null"]},
        },
        "required": ["id", "count"],
    }
    accepted = [
        {"event": "order.noted", "accepted": False, "payload": None},
        {"event": "order.paid", "accepted": True, "payload": schema},
    ]
    words = shlex.split(exported("asCurl", "order/it's 1", accepted).replace("\\\n", " "))
    body = json.loads(words[words.index("-d") + 1])
    order = interlock.loads(ORDER)
    step = order.step(order.start(entity="order/1").snapshot, body["event"], body["payload"])

    assert "http://127.0.0.1:8080/api/v1/send/order/it's%201" in words
    assert ("order.paid", {"id": "x", "count": 3}, "applied") == (body["event"], body["payload"], step.outcome)


def test_an_entity_that_accepts_no_event_is_read() -> None:
    words = shlex.split(exported("asCurl", "order/1", []).replace("\\\n", " "))

    assert "http://127.0.0.1:8080/api/v1/entity/order/1" in words
    assert "-d" not in words
