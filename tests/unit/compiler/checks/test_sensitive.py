"""What is hidden: masked fields, and states shown under a neutral name."""

import pytest

from tests.unit.compiler.diagnostics import reported


def test_masked_fields_exist() -> None:
    """A misspelt field would be shown to all."""
    bad = """\
context: {card: {type: string, nullable: true}}
states: {a: {sensitive: [crd]}}
"""
    good = """\
context: {card: {type: string, nullable: true}}
states: {a: {sensitive: [card.number]}}
"""

    assert ["error 4:10"] == reported(bad, "sensitive.unknown_field")
    assert [] == reported(good, "sensitive.unknown_field")


def test_a_neutral_name_is_not_a_state() -> None:
    bad = """\
states:
  a: {on: {e: b}}
  b: {sensitive: {as: a}}
"""
    good = """\
states:
  a: {on: {e: b}}
  b: {sensitive: {as: c}}
"""

    assert ["error 5:3"] == reported(bad, "sensitive.neutral")
    assert [] == reported(good, "sensitive.neutral")


def test_the_neutral_name_is_processing_unless_said() -> None:
    bad = """\
states:
  processing: {on: {e: b}}
  b: {sensitive: true}
"""
    good = """\
states:
  a: {on: {e: b}}
  b: {sensitive: true}
"""

    assert ["error 5:3"] == reported(bad, "sensitive.neutral")
    assert [] == reported(good, "sensitive.neutral")


def test_entering_a_hidden_state_takes_roles() -> None:
    bad = """\
events: {e: {}, f: {roles: [fraud]}}
states:
  a: {on: {e: h}}
  h: {sensitive: true, on: {f: a}}
"""
    good = """\
events: {e: {roles: [fraud]}, f: {roles: [fraud]}}
states:
  a: {on: {e: h}}
  h: {sensitive: true, on: {f: a}}
"""

    assert ["warning 5:15"] == reported(bad, "sensitive.no_roles")
    assert [] == reported(good, "sensitive.no_roles")


def test_a_timer_out_of_a_hidden_state_names_system() -> None:
    bad = """\
events: {e: {roles: [fraud]}}
states:
  a: {on: {e: h}}
  h: {sensitive: true, after: {1h: a}}
"""
    good = """\
events: {e: {roles: [fraud]}}
states:
  a: {on: {e: h}}
  h: {sensitive: true, after: {1h: {target: a, roles: [system]}}}
"""

    assert ["warning 6:36"] == reported(bad, "sensitive.no_roles")
    assert [] == reported(good, "sensitive.no_roles")


def test_a_timer_into_a_hidden_state_names_system() -> None:
    bad = """\
events: {e: {roles: [fraud]}}
states:
  a: {after: {1h: h}, on: {e: h}}
  h: {sensitive: true, on: {e: a}}
"""
    good = """\
events: {e: {roles: [fraud]}}
states:
  a: {after: {1h: {target: h, roles: [system]}}, on: {e: h}}
  h: {sensitive: true, on: {e: a}}
"""

    assert ["warning 5:19"] == reported(bad, "sensitive.no_roles")
    assert [] == reported(good, "sensitive.no_roles")


def test_an_undeclared_event_says_nothing_about_roles() -> None:
    """Without an `events` block anyone may send any event."""
    bad = """\
states:
  a: {on: {e: h}}
  h: {sensitive: true, on: {e: {target: a, roles: [fraud]}}}
"""
    good = """\
states:
  a: {on: {e: {target: h, roles: [fraud]}}}
  h: {sensitive: true, on: {e: {target: a, roles: [fraud]}}}
"""

    assert ["warning 4:15"] == reported(bad, "sensitive.no_roles")
    assert [] == reported(good, "sensitive.no_roles")


def test_leaving_takes_at_least_the_right_to_enter() -> None:
    """Otherwise a principal who may not enter could end what was hidden."""
    bad = """\
events: {e: {roles: [fraud]}, f: {roles: [fraud, customer]}, g: {direction: internal}}
states:
  a: {on: {e: h, g: {}}}
  h: {sensitive: true, on: {f: a, g: a}}
"""
    good = """\
events: {e: {roles: [fraud]}, f: {roles: [fraud]}, g: {direction: internal}}
states:
  a: {on: {e: h, g: {}}}
  h: {sensitive: true, on: {f: a, g: a}}
"""

    assert ["warning 6:32"] == reported(bad, "sensitive.roles")
    assert [] == reported(good, "sensitive.roles")


def test_an_entry_into_several_hidden_states_is_reported_once() -> None:
    text = """\
events: {e: {}, f: {roles: [fraud]}}
states:
  a: {on: {e: h.k}}
  h: {sensitive: true, states: {k: {sensitive: {as: review}}}, on: {f: a}}
"""

    assert 1 == len(reported(text, "sensitive.no_roles"))


NAMED = """\
context: {{card: {{type: string, default: x, nullable: true}}, id: {{type: string, default: y}}}}
sensitive: [card.number]
initial: a
states:
  a: {{on: {{e: {{target: b, actions: [{action}]}}}}}}
  b: {{invoke: {invoke}}}
"""


@pytest.mark.parametrize(
    "action",
    [
        "{{send: {{event: {0}, to: order/1}}}}",
        "{{send: {{event: x, to: {0}}}}}",
        "{{send: {{event: x, id: {0}, delay: 1s}}}}",
        "{{raise: {0}}}",
        "{{emit: {{type: {0}}}}}",
        '{{if: "= true", then: [{{emit: {{type: {0}}}}}]}}',
    ],
)
def test_a_masked_field_is_not_part_of_a_name(action: str) -> None:
    """Names of events, timers, targets and messages are journaled and shown as they are."""
    bad = NAMED.format(action=action.format("\"= 'x/' + context['card']\""), invoke="{src: w}")
    good = NAMED.format(action=action.format("\"= 'x/' + context.id\""), invoke="{src: w}")

    assert 1 == len(reported(bad, "sensitive.name"))
    assert [] == reported(good, "sensitive.name")


@pytest.mark.parametrize("key", ["src", "type", "key"])
def test_a_masked_field_is_not_part_of_an_invokes_name(key: str) -> None:
    src = "" if key == "src" else "src: w, "
    bad = NAMED.format(action="x", invoke=f'{{{src}{key}: "= context.card"}}')
    good = NAMED.format(action="x", invoke=f'{{{src}{key}: "= context.id"}}')

    assert 1 == len(reported(bad, "sensitive.name"))
    assert [] == reported(good, "sensitive.name")


def test_a_masked_field_may_be_data() -> None:
    """Data and inputs are masked with the field; an expression that does not parse has its own diagnostic."""
    fine = NAMED.format(
        action='{send: {event: x, to: order/1, data: "= context.card"}}', invoke='{src: w, input: "= context.card"}'
    )
    broken = NAMED.format(action='{raise: "= context.card +"}', invoke="{src: w}")

    assert [] == reported(fine, "sensitive.name")
    assert [] == reported(broken, "sensitive.name")


def test_a_way_within_a_hidden_state_does_not_enter_it() -> None:
    text = """\
events: {e: {roles: [fraud]}, f: {}}
states:
  a: {on: {e: h}}
  h: {sensitive: true, initial: x, on: {f: {target: h, reenter: true}}, states: {x: {}}}
"""

    assert [] == [each for each in reported(text, "sensitive.no_roles") if " into " in each]
