"""What a chart writes, as against what it computes."""

from __future__ import annotations

from interlock.model.charts.sites import written_names
from tests.unit.compiler.diagnostics import chart_of

CHART = """
events: {go: {}, x: {}}
initial: a
states:
  a:
    after: {1h: b}
    on:
      go:
        actions:
          - charge
          - {send: {event: x, to: order/1, id: one}}
          - {send: {event: "= context.secret", to: "= context.secret", id: "= context.secret"}}
          - {raise: x}
          - {emit: {type: told}}
          - {emit: {type: "= context.secret"}}
  b: {invoke: {id: job, src: work}}
  c: {invoke: {src: "= context.secret"}}
context: {secret: {type: string, default: hidden}}
"""


def test_written_names_are_those_that_stand_in_the_chart_as_text() -> None:
    """Of events, handlers, timers, sends, targets, sources and messages; nothing that is computed."""
    found = written_names(chart_of(CHART))

    assert {"go", "x", "after.1h.a", "charge", "order/1", "one", "told", "job", "work", "done.state.a"} <= found
    assert not any("secret" in each for each in found)
