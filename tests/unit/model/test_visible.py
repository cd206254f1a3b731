"""What of an entity is masked for readers who may not see everything."""

from __future__ import annotations

import interlock
from interlock.model.charts.chart import Chart
from interlock.model.snapshot import Invocation, Snapshot, Timer
from interlock.model.visible import (
    MASK,
    ChartMask,
    VisibleInvoke,
    VisibleTimer,
    is_sensitive,
    project,
)

FIELDS = """
interlock: 1
kind: account
context: {balance: {type: integer, default: 0}, iban: {type: string, default: DE}, person: {type: object, default: {}}}
sensitive: [iban, person.name]
initial: active
states:
  active:
    after: {1h: frozen}
    on:
      asked: {actions: [{send: {to: "=context.iban", event: told, id: reminder, delay: 1m}}]}
  frozen: HIDDEN
"""


def chart(*, hides: bool) -> Chart:
    """Return a chart with masked fields, and with a hidden state or without."""
    text = FIELDS.replace("HIDDEN", "{sensitive: true}" if hides else "{}")
    return interlock.loads(text).chart


def test_fields_are_masked_by_their_outermost_name() -> None:
    mask = ChartMask(chart(hides=False))

    assert {"iban", "person"} == mask.fields
    assert {"balance": 1, "iban": MASK} == mask.context({"balance": 1, "iban": "DE1"})


def test_names_that_the_chart_does_not_contain_are_masked() -> None:
    mask = ChartMask(chart(hides=False))

    assert ["reminder", "reminder~3.1", "send.3.0", MASK, MASK] == [
        mask.name(each) for each in ("reminder", "reminder~3.1", "send.3.0", "DE89", "send.x.0")
    ]


def test_names_contain_no_version_where_the_chart_hides_states() -> None:
    mask = ChartMask(chart(hides=True))

    assert ["reminder", "reminder", MASK] == [mask.name(each) for each in ("reminder", "reminder~3.1", "send.3.0")]


def test_the_entity_in_an_address_is_masked_and_a_child_is_shown() -> None:
    mask = ChartMask(chart(hides=False))

    assert [f"entity/{MASK}", "child/shipping", "parent", "entity"] == [
        mask.address(each) for each in ("entity/account/DE89", "child/shipping", "parent", "entity")
    ]


def test_the_timer_in_a_source_is_masked() -> None:
    shows, hides = ChartMask(chart(hides=False)), ChartMask(chart(hides=True))

    assert ["invoke/a/1/0", "timer/reminder/3", f"timer/{MASK}/3"] == [
        shows.source(each) for each in ("invoke/a/1/0", "timer/reminder/3", "timer/DE89/3")
    ]
    assert ["timer/reminder", f"timer/{MASK}"] == [hides.source(each) for each in ("timer/reminder/3", "timer/DE89/3")]


def test_only_charts_with_something_sensitive_are_sensitive() -> None:
    plain = interlock.loads("{interlock: 1, kind: lamp, initial: off, states: {off: {}}}").chart

    assert [True, False] == [is_sensitive(chart(hides=False)), is_sensitive(plain)]


def test_a_projection_has_timers_in_the_order_of_their_time_and_no_keys() -> None:
    shown = chart(hides=False)
    timers = (Timer("reminder", "told", 900, 3, 1), Timer("DE89", "told", 100, 3, 0, state="active"))
    invokes = (Invocation("child", "active", 3, "account/1/3/0"),)
    snapshot = Snapshot(
        "account", "account/1", 3, shown.revision, ("active",), {"iban": "DE1"}, timers=timers, invokes=invokes
    )
    found = project(shown, ChartMask(shown), snapshot)

    assert (VisibleTimer(MASK, "told", 100, "active"), VisibleTimer("reminder", "told", 900)) == found.timers
    assert (VisibleInvoke("child", "active"),) == found.invokes
    assert ({"iban": MASK}, True, None) == (found.context, found.masked, found.output)
