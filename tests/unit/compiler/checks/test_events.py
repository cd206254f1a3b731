"""Reserved names, the `events` block, roles, what is raised and sent."""

import pytest

from tests.unit.compiler.diagnostics import reported


def test_declared_events_leave_the_kernels_names_alone() -> None:
    """V6: `_`, `done.`, `error.` and `after.` belong to the kernel."""
    bad = """\
events: {done.shopping: {}}
states: {a: {on: {done.shopping: {}}}}
"""
    good = """\
events: {shopping.done: {}}
states: {a: {on: {shopping.done: {}}}}
"""

    assert ["error 3:10"] == reported(bad, "name.reserved")
    assert [] == reported(good, "name.reserved")


def test_a_reserved_name_cannot_be_sent_to_another_entity() -> None:
    bad = "states: {a: {entry: [{send: {event: done.mine, to: order/1}}]}}"
    good = "states: {a: {entry: [{send: {event: mine.done, to: order/1}}]}}"

    assert ["error 3:22"] == reported(bad, "name.reserved")
    assert [] == reported(good, "name.reserved")


def test_raised_events_leave_the_kernels_names_alone() -> None:
    """V6 holds for what a chart raises."""
    bad = "states: {a: {entry: [{raise: error.mine}]}}"
    good = "states: {a: {entry: [{raise: mine.error}]}}"

    assert ["error 3:22"] == reported(bad, "name.reserved")
    assert [] == reported(good, "name.reserved")


def test_a_raised_event_is_declared() -> None:
    """The `events` block is complete when it is there."""
    bad = """\
events: {paid: {direction: internal}}
states: {a: {entry: [{raise: payd}], on: {paid: {}}}}
"""
    good = """\
events: {paid: {direction: internal}}
states: {a: {entry: [{raise: paid}], on: {paid: {}}}}
"""

    assert ["error 4:22"] == reported(bad, "event.undeclared")
    assert [] == reported(good, "event.undeclared")


def test_an_event_sent_to_itself_is_declared() -> None:
    """What comes back undeclared would be rejected."""
    bad = """\
events: {e: {}}
states: {a: {entry: [{send: {event: later, delay: 1s}}, {send: {event: x, to: parent}}],
    on: {e: {}}}}
"""
    good = """\
events: {e: {}, later: {direction: internal}}
states: {a: {entry: [{send: {event: later, delay: 1s}}, {send: {event: x, to: parent}}],
    on: {e: {}, later: {}}}}
"""

    assert ["error 4:22"] == reported(bad, "event.undeclared")
    assert [] == reported(good, "event.undeclared")


def test_what_the_system_sends_when_stuck_is_declared() -> None:
    """`then` of `expect` names an event."""
    bad = """\
events: {e: {}}
states: {a: {expect: {within: 1h, then: stuck}, on: {e: {}}}}
"""
    good = """\
events: {e: {}, stuck: {roles: [system]}}
states: {a: {expect: {within: 1h, then: stuck}, on: {e: {}, stuck: {}}}}
"""

    assert ["error 4:10"] == reported(bad, "event.undeclared")
    assert [] == reported(good, "event.undeclared")


def test_an_event_of_then_that_is_never_sent_is_reported() -> None:
    """Waiting is normal, or the entity has ended."""
    text = "states: {a: {expect: {within: 1h, then: late}, on: {e: b, late: b}}, b: {type: final}}\n"
    forever = text.replace("1h", "forever")
    ended = "states: {a: {on: {e: b, late: b}}, b: {type: final, expect: {within: 1h, then: late}}}\n"

    assert [] == reported(text, "expect.unsent")
    assert ["warning 3:10"] == reported(forever, "expect.unsent")
    assert 1 == len(reported(ended, "expect.unsent"))


def test_an_event_of_then_is_taken_while_the_state_is_active() -> None:
    """By the state, one that contains it, one inside or another region; not by the next state."""
    bad = "states: {a: {expect: {within: 1h, then: late}, on: {e: b}}, b: {on: {late: a}}}\n"
    own = "states: {a: {expect: {within: 1h, then: late}, on: {late.*: b}}, b: {}}\n"
    outer = "on: {late: b}\nstates: {a: {expect: {within: 1h, then: late}, on: {e: b}}, b: {}}\n"
    inner = "states: {a: {expect: {within: 1h, then: late}, states: {c: {on: {late: d}}, d: {}}}, b: {}}\n"
    region = """\
states:
  p:
    type: parallel
    states: {a: {expect: {within: 1h, then: late}}, b: {states: {c: {on: {late: d}}, d: {}}}}
"""

    assert ["warning 3:10"] == reported(bad, "expect.unhandled")
    assert [[]] * 4 == [reported(each, "expect.unhandled") for each in (own, outer, inner, region)]


def test_a_transition_waits_for_declared_events() -> None:
    bad = """\
events: {order.cancelled: {}}
states: {a: {on: {order.canceled: {}, order.cancelled: {}}}}
"""
    good = """\
events: {order.cancelled: {}}
states: {a: {on: {order: {}, done.state.a: {}, '*': {actions: [x]}}}}
"""

    assert ["warning 4:35"] == reported(bad, "event.undeclared")
    assert [] == reported(good, "event.undeclared")


def test_nothing_waits_for_an_outgoing_event() -> None:
    """`out` documents a message that leaves."""
    bad = """\
events: {e: {direction: out}}
states: {a: {entry: [{emit: {type: e}}], on: {e: {}}}}
"""
    good = """\
events: {e: {direction: internal}}
states: {a: {entry: [{raise: e}], on: {e: {}}}}
"""

    assert ["error 4:50"] == reported(bad, "event.direction")
    assert [] == reported(good, "event.direction")


def test_an_outgoing_event_is_not_raised() -> None:
    bad = """\
events: {e: {direction: out}}
states: {a: {entry: [{raise: e}]}}
"""
    good = """\
events: {e: {direction: out}}
states: {a: {entry: [{emit: {type: e}}]}}
"""

    assert ["error 4:22"] == reported(bad, "event.direction")
    assert [] == reported(good, "event.direction")


def test_raised_data_fits_the_payload() -> None:
    bad = """\
events: {e: {direction: internal, payload: {n: integer, m: integer}}}
states: {a: {entry: [{raise: {event: e, data: {n: one, m: '= 1 + 1'}}}], on: {e: {}}}}
"""
    good = """\
events: {e: {direction: internal, payload: {n: integer, m: integer}}}
states: {a: {entry: [{raise: {event: e, data: {n: 1, m: '= 1 + 1'}}}], on: {e: {}}}}
"""

    assert ["error 4:22"] == reported(bad, "payload.type")
    assert [] == reported(good, "payload.type")


def test_raised_data_has_no_unknown_field() -> None:
    bad = """\
events: {e: {direction: internal, payload: {}}}
states: {a: {entry: [{raise: {event: e, data: {n: 1}}}], on: {e: {}}}}
"""
    good = """\
events: {e: {direction: internal, payload: {}}}
states: {a: {entry: [{raise: e}], on: {e: {}}}}
"""

    assert ["error 4:22"] == reported(bad, "payload.type")
    assert [] == reported(good, "payload.type")


def test_raised_data_is_an_object() -> None:
    bad = """\
events: {e: {direction: internal, payload: {}}}
states: {a: {entry: [{raise: {event: e, data: 1}}], on: {e: {}}}}
"""
    good = """\
events: {e: {direction: internal, payload: {}}}
states: {a: {entry: [{raise: {event: e, data: '= event.data'}}], on: {e: {}}}}
"""

    assert ["error 4:22"] == reported(bad, "payload.type")
    assert [] == reported(good, "payload.type")


def test_a_transition_narrows_roles() -> None:
    bad = """\
events: {e: {roles: [owner]}}
states: {a: {on: {e: {roles: [ower], actions: [x]}}}}
"""
    good = """\
events: {e: {roles: [owner, admin]}}
states: {a: {on: {e: {roles: [owner, system], actions: [x]}}}}
"""

    assert ["error 4:22"] == reported(bad, "roles.widened")
    assert [] == reported(good, "roles.widened")


def test_roles_without_declared_senders_are_left_alone() -> None:
    bad = """\
events: {e: {roles: [owner]}}
states: {a: {on: {e: {roles: [boss], actions: [x]}}}}
"""
    good = """\
events: {e: {}}
states: {a: {on: {e: {roles: [boss], actions: [x]}, f: {roles: [boss], actions: [x]}}}}
"""

    assert ["error 4:22"] == reported(bad, "roles.widened")
    assert [] == reported(good, "roles.widened")


def test_what_happens_by_itself_acts_as_system() -> None:
    bad = """\
states:
  a: {after: {1s: {target: b, roles: [owner]}}}
  b: {}
"""
    good = """\
states:
  a: {after: {1s: {target: b, roles: [owner, system]}}}
  b: {}
"""

    assert ["error 4:19"] == reported(bad, "roles.system")
    assert [] == reported(good, "roles.system")


def test_every_declared_event_is_taken_somewhere() -> None:
    bad = """\
events: {e: {}, f: {}}
states: {a: {on: {e: {}, '*': {}}}}
"""
    good = """\
events: {e: {}, f: {}}
states: {a: {on: {e: {}, f: {}}}}
"""

    assert ["warning 3:17"] == reported(bad, "event.unused")
    assert [] == reported(good, "event.unused")


def test_every_outgoing_event_is_emitted() -> None:
    """`out` documents a message that the chart publishes."""
    bad = """\
events: {e: {direction: out}}
states: {a: {entry: [{emit: {type: f}}]}}
"""
    good = """\
events: {e: {direction: out}}
states: {a: {entry: [{emit: {type: '= event.name'}}]}}
"""

    assert ["warning 3:10"] == reported(bad, "event.unused")
    assert [] == reported(good, "event.unused")


def test_an_event_needs_roles() -> None:
    bad = """\
events: {e: {roles: [owner]}, f: {}, g: {direction: internal}}
states: {a: {on: {e: {}, f: {}, g: {}}}}
"""
    good = """\
events: {e: {roles: [owner]}, f: {roles: [owner]}, g: {direction: internal}}
states: {a: {on: {e: {}, f: {}, g: {}}}}
"""

    assert ["warning 3:31"] == reported(bad, "event.no_roles")
    assert [] == reported(good, "event.no_roles")


def test_a_chart_without_any_roles_is_reported_once() -> None:
    bad = """\
events: {e: {}, f: {}}
states: {a: {on: {e: {}, f: {}}}}
"""
    good = "states: {a: {on: {e: {}, f: {}}}}"

    assert ["warning 3:10"] == reported(bad, "event.no_roles")
    assert [] == reported(good, "event.no_roles")


@pytest.mark.parametrize(
    ("written", "moving"),
    [
        ("str(context.n) + event.data.id", "context"),
        ("context['n']", "context"),
        ("event.data.id if In('a') else 'x'", "In()"),
        ("entity.id + '/' + str(entity.version)", "entity.version"),
        ("event.time_ms", "event.time_ms"),
    ],
)
def test_a_dedupe_reads_only_what_a_repetition_brings_again(written: str, moving: str) -> None:
    """What has changed by the time the event is repeated would make it a new one: it would be taken twice."""
    text = f"""\
context: {{n: {{type: integer, default: 0}}}}
events: {{e: {{dedupe: "= {written}"}}}}
states: {{a: {{on: {{e: {{}}}}}}}}
"""

    assert [("error 4:25")] == reported(text, "event.dedupe")


@pytest.mark.parametrize("written", ["= event.data.id", "= event.id", "= entity.id + event.data.id", "once", "= 1"])
def test_a_dedupe_of_the_event_itself_or_a_constant_is_right(written: str) -> None:
    text = f"""\
events: {{e: {{dedupe: "{written}"}}}}
states: {{a: {{on: {{e: {{}}}}}}}}
"""

    assert [] == reported(text, "event.dedupe")
