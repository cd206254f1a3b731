"""What is hidden: masked fields, and states shown under a neutral name."""

import pytest

from interlock.kernel.step import Kernel
from interlock.model.charts.chart import HiddenStates
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from tests.unit.compiler.diagnostics import chart_of, reported


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


ACCOUNT = """\
kind: account
unhandled: defer
events:
  deposit.made: {{roles: [customer]}}
  account.closed: {{roles: [customer]}}
  account.frozen: {{roles: [fraud]}}
  account.unfrozen: {{roles: [fraud]}}
context: {{balance: {{type: integer, default: 0}}}}
states:
  active:
    on:
      deposit.made: {{actions: [{{assign: {{balance: "= context.balance + 1"}}}}]}}
      account.frozen: frozen
      account.closed: closed
  pending: {{on: {{account.frozen: {pending}, account.closed: active}}}}
  frozen: {{sensitive: {sensitive}, {frozen}on: {{account.unfrozen: active}}}}
  closed: {{type: final}}
""".replace("kind: account\n", "")


def account(sensitive: str = "true", *, pending: str = "active", frozen: str = "") -> str:
    """Return an account that can be frozen."""
    return ACCOUNT.format(sensitive=sensitive, pending=pending, frozen=frozen)


def hidden(text: str) -> HiddenStates:
    """Return the hidden states of a chart."""
    found = chart_of(text).hidden
    assert found is not None
    return found


def test_a_hidden_state_that_keeps_every_rule_is_covered() -> None:
    found = hidden(account())

    assert (frozenset({"frozen"}), True, frozenset()) == (found.states, found.is_covered, found.readers)
    assert chart_of("states: {a: {}}\n").hidden is None


def test_as_names_the_only_visible_state_from_which_it_is_entered() -> None:
    """A name that only hidden states have would itself say which entities are in one."""
    assert hidden(account("{as: active}")).is_covered
    for text in (account("{as: processing}"), account("{as: frozen}"), account("{as: active}", pending="frozen")):
        assert 1 == len(reported(text, "sensitive.cover")), text
        assert not hidden(text).is_covered


def test_an_entity_does_not_start_in_a_hidden_state() -> None:
    text = account().replace("states:\n", "initial: frozen\nstates:\n")

    assert 1 == len(reported(text, "sensitive.cover"))
    assert not hidden(text).is_covered


def test_a_hidden_state_invokes_no_chart() -> None:
    """Others see the child, which has the key of its parent in its id."""
    bad = account(frozen="invoke: {type: chart, src: review, onDone: {target: active, roles: [system]}}, ")
    good = bad.replace("type: chart, ", "")

    assert 1 == len(reported(bad, "sensitive.cover"))
    assert [] == reported(good, "sensitive.cover")


def test_no_expression_of_such_a_chart_reads_the_version() -> None:
    bad = account().replace("context.balance + 1", "entity.version")

    assert 1 == len(reported(bad, "sensitive.cover"))
    assert not hidden(bad).is_covered


def test_an_allowed_lint_does_not_make_a_cover() -> None:
    text = account("{as: processing}", frozen="allow: {sensitive.cover: a test}, ")

    assert [] == reported(text, "sensitive.cover")
    assert not hidden(text).is_covered


def test_an_event_of_others_is_not_lost_in_a_hidden_state() -> None:
    """Its sender gets `accepted`."""
    deferred = account()
    lost = deferred.replace("unhandled: defer\n", "")
    accepted = lost.replace(
        "{account.unfrozen: active}", "{account.unfrozen: active, deposit.made: {}, account.closed: {}}"
    )
    guarded = lost.replace(
        "{account.unfrozen: active}", '{account.unfrozen: active, deposit.made: {guard: "= false"}, account.closed: {}}'
    )
    denied = deferred.replace("deposit.made: {roles: [customer]}", "deposit.made: {roles: [customer, fraud]}").replace(
        "{account.unfrozen: active}", "{account.unfrozen: active, deposit.made: {actions: [x], roles: [fraud]}}"
    )

    assert [0, 2, 0, 1, 1] == [
        len(reported(text, "sensitive.unanswered")) for text in (deferred, lost, accepted, guarded, denied)
    ]
    assert [True, False, True, False, False] == [
        hidden(text).is_covered for text in (deferred, lost, accepted, guarded, denied)
    ]


def test_the_roles_of_a_hidden_state_limit_who_enters_and_leaves_it() -> None:
    text = account("{roles: [fraud, chief]}").replace(
        "account.frozen: {roles: [fraud]}", "account.frozen: {roles: [fraud, teller]}"
    )
    kernel = Kernel(chart_of(text))
    active = kernel.start({}, entity="test/1").snapshot

    def send(snapshot: Snapshot, event: str, role: str) -> Step:
        return kernel.step(snapshot, Event(event, principal={"id": "x", "roles": [role]}))

    frozen = send(active, "account.frozen", "fraud").snapshot

    assert ("denied", "applied") == (
        send(active, "account.frozen", "teller").outcome,
        send(frozen, "account.unfrozen", "chief").outcome,
    )
    assert ("frozen",) == frozen.configuration
    assert "denied" == send(frozen, "account.unfrozen", "teller").outcome
    assert frozenset({"fraud", "chief"}) == hidden(text).readers


def test_a_transition_of_the_root_needs_the_roles_only_while_it_leaves_the_hidden_state() -> None:
    """A customer may close an account at any time. Of a frozen one the request waits."""
    text = (
        account("{roles: [fraud]}")
        .replace("      account.closed: closed\n", "")
        .replace("states:\n", "on: {account.closed: closed}\nstates:\n")
    )
    kernel = Kernel(chart_of(text))
    active = kernel.start({}, entity="test/1").snapshot
    closed = Event("account.closed", principal={"id": "ada", "roles": ["customer"]})
    frozen = kernel.step(active, Event("account.frozen", principal={"id": "eve", "roles": ["fraud"]})).snapshot

    assert hidden(text).is_covered
    assert ("closed",) == kernel.step(active, closed).snapshot.configuration
    waits = kernel.step(frozen, closed)
    assert ("applied", "deferred", ("frozen",)) == (waits.outcome, waits.reason, waits.snapshot.configuration)
    for _ in range(100):  # the compiled steps, too
        assert ("closed",) == kernel.step(active, closed).snapshot.configuration
        assert "deferred" == kernel.step(frozen, closed).reason


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


def test_the_roles_of_a_hidden_state_are_enough_for_an_event_without_roles() -> None:
    text = account("{as: active, roles: [fraud]}").replace(
        "  account.frozen: {roles: [fraud]}\n  account.unfrozen: {roles: [fraud]}\n",
        "  account.frozen: {}\n  account.unfrozen: {}\n",
    )
    anybody = text.replace("roles: [fraud]}", "}").replace("as: active, }", "as: active}")

    assert ([], True) == (reported(text, "sensitive.no_roles"), hidden(text).is_covered)
    assert [] != reported(anybody, "sensitive.no_roles")
    assert not hidden(anybody).is_covered


def test_an_event_of_others_is_lost_in_a_hidden_state_that_ends_the_entity() -> None:
    text = account("{roles: [fraud]}").replace(", on: {account.unfrozen: active}}", ", type: final}")

    assert [] != reported(text, "sensitive.unanswered")
    assert not hidden(text).is_covered
