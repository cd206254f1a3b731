"""Which events an entity accepts now, and why not the others."""

from typing import Any

import interlock
from interlock.assemble.charts import BoundChart
from interlock.model.charts.sites import event_names
from interlock.observe.acceptance import Acceptance, acceptances

CHART = """
interlock: 1
kind: door
revision: 1.0.0
context: {locked: {type: boolean, default: true}, tries: {type: integer, default: 0}}
events:
  open: {roles: [guest]}
  unlock:
    roles: [owner]
    description: Turns the key
    payload:
      code: {type: string, required: true, length_max: 8}
      force: {type: integer, min: 1, max: 9, nullable: true, default: 3}
      marks: {type: array, items: {type: string}}
      place: {type: object, fields: {floor: {type: integer, required: true}}}
      side: {enum: [in, out]}
  burn: {roles: [guest]}
  creak: {direction: internal}
initial: closed
states:
  closed:
    on:
      open: {target: ajar, guard: "= not context.locked"}
      unlock: {actions: [{assign: {locked: false}}]}
  ajar: {on: {open: closed, burn: gone}}
  gone: {type: final}
"""

KEY = {"code": "1", "marks": [], "place": {"floor": 2}, "side": "in"}
GUEST = {"id": "g", "roles": ["guest"]}
OWNER = {"id": "o", "roles": ["owner", "guest"]}


def by_event(chart: BoundChart, snapshot: Any, principal: Any) -> dict[str, Acceptance]:
    """Gives the answers by event."""
    return {each.event: each for each in acceptances(chart.kernel, snapshot, principal)}


def test_a_false_guard_has_the_values_it_read() -> None:
    chart = interlock.loads(CHART)
    found = by_event(chart, chart.start(entity="door/1").snapshot, OWNER)["open"]

    assert (False, "guard") == (found.accepted, found.why)
    assert [("closed", "not context.locked", {"context.locked": True})] == [
        (each.state, each.guard, each.values) for each in found.guards
    ]


def test_accepted_events_come_first_with_their_targets() -> None:
    chart = interlock.loads(CHART)
    snapshot = chart.step(chart.start(entity="door/1").snapshot, "unlock", KEY).snapshot
    found = acceptances(chart.kernel, snapshot, OWNER)

    assert [("open", ("ajar",)), ("unlock", ())] == [(each.event, each.targets) for each in found if each.accepted]
    assert [True, True, False] == [each.accepted for each in found]


def test_an_event_accepted_elsewhere_names_the_states() -> None:
    chart = interlock.loads(CHART)
    found = by_event(chart, chart.start(entity="door/1").snapshot, OWNER)["burn"]

    assert ("elsewhere", ("ajar",)) == (found.why, found.states)


def test_a_denied_event_shows_only_that_it_is_denied() -> None:
    chart = interlock.loads(CHART)
    found = by_event(chart, chart.start(entity="door/1").snapshot, GUEST)["unlock"]

    assert ("roles", ("owner",)) == (found.why, found.roles)
    assert ((), (), (), None, None) == (found.states, found.guards, found.targets, found.payload, found.description)


def test_nothing_is_accepted_after_the_end() -> None:
    chart = interlock.loads(CHART)
    snapshot = chart.start(entity="door/1").snapshot
    for event, data in (("unlock", KEY), ("open", None), ("burn", None)):
        snapshot = chart.step(snapshot, event, data).snapshot

    assert {"ended"} == {each.why for each in acceptances(chart.kernel, snapshot, OWNER)}


def test_a_payload_has_a_json_schema() -> None:
    chart = interlock.loads(CHART)
    payload = by_event(chart, chart.start(entity="door/1").snapshot, OWNER)["unlock"].payload
    assert payload is not None

    assert (["code", "marks", "place", "side"], False) == (payload["required"], payload["additionalProperties"])
    assert {
        "code": {"type": "string", "maxLength": 8},
        "force": {"type": ["integer", "null"], "minimum": 1, "maximum": 9, "default": 3},
        "marks": {"type": "array", "items": {"type": "string"}},
        "side": {"enum": ["in", "out"]},
    } == {key: value for key, value in payload["properties"].items() if key != "place"}
    assert ["floor"] == payload["properties"]["place"]["required"]


def test_internal_events_are_not_listed() -> None:
    listed = interlock.loads(CHART)
    free = interlock.loads(
        "interlock: 1\nkind: x\ninitial: a\nstates: {a: {after: {1s: b}, on: {go: b, 'wild.*': b, '*': b}}, b: {}}"
    )

    assert ("open", "unlock", "burn") == event_names(listed.chart)
    assert ("go", "wild.*", "*") == event_names(free.chart)
