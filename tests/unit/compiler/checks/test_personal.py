"""Personal data: what an expression may do with it, and what a personal field may get. Each rule from both sides."""

import pytest

from interlock.definition.yaml.format import FORMAT
from interlock.model.charts.personal_plan import plan_of
from tests.unit.compiler.diagnostics import HEAD, chart_of, compiled
from tests.unit.compiler.diagnostics import errors as errors_of

CONTEXT = """\
context:
  email: {type: string, nullable: true, personal: true}
  phone: {type: string, nullable: true, personal: true}
  home: {type: object, nullable: true, fields: {zip: {type: string, personal: true}, country: string}}
  address: {type: object, nullable: true, personal: true}
  note: {nullable: true}
  count: {type: integer, default: 0}
  delay: {type: string, default: 1s}
events:
  signup: {payload: {email: {type: string, personal: true}, adult: boolean}}
  rename: {payload: {email: string}}
  told: {direction: internal, payload: {email: {type: string, personal: true, required: false}}}
  heard: {direction: internal, payload: {email: {type: string, required: false}}}
  welcomed: {direction: out, payload: {email: {type: string, personal: true}, adult: {type: boolean, required: false}}}
  any.thing: {}
"""


def with_transition(body: str, event: str = "signup") -> str:
    """A definition whose only transition has this body."""
    return f"{CONTEXT}states:\n  a:\n    on:\n      {event}: {body}\n"


def with_action(action: str, event: str = "signup") -> str:
    return with_transition(f"{{actions: [{action}]}}", event)


def errors(definition: str) -> list[str]:
    """The codes of all errors of a definition that can be read: a misspelt key would hide what is tested."""
    assert [str(each) for each in FORMAT.read(HEAD + definition, source="test.yaml").diagnostics] == []
    return errors_of(definition)


def problems(definition: str) -> list[str]:
    """The codes of errors about personal data, each once."""
    assert [str(each) for each in FORMAT.read(HEAD + definition, source="test.yaml").diagnostics] == []
    found = compiled(definition).diagnostics
    unread = [str(each) for each in found if each.severity == "error" and not each.code.startswith("personal.")]

    assert unread == []
    return sorted({each.code for each in found if each.severity == "error"})


@pytest.mark.parametrize(
    "guard",
    [
        "event.data.email == context.email",
        "event.data.email != context.phone",
        "context.email == null",
        "null != context['email']",
        "context.address is not null and context.count > 0",
        "event.data.adult",
        "context.home.country == 'DE'",
        "context.home == null",
        "get(context, 'email') == null",
        "context.count in [1, 2]",
    ],
)
def test_a_guard_may_compare_a_personal_value_with_null_and_with_another(guard: str) -> None:
    assert problems(with_transition(f'{{guard: "= {guard}", actions: []}}')) == []


@pytest.mark.parametrize(
    "guard",
    [
        "event.data.email == 'ada@example.org'",
        "event.data.email == context.note",
        "context.email",
        "not context.email",
        "context.email and true",
        "len(context.email) > 3",
        "ends_with(event.data.email, '.org')",
        "'@' in context.email",
        "context.email in ['a', 'b']",
        "context.address.city == 'Bonn'",
        "context.home.zip > '1'",
        "get(context.address, 'city') == 'Bonn'",
        "context.home == event.data",
        "[context.email] == []",
        "{'a': context.email} == {}",
        "(context.email if context.count > 0 else 'x') == null",
        "context[event.data.email] == null",
        "event == null or context == event.data",
        "context.count == 1 == context.email",
    ],
)
def test_a_guard_may_not_look_into_a_personal_value(guard: str) -> None:
    assert problems(with_transition(f'{{guard: "= {guard}", actions: []}}')) == ["personal.read"]


@pytest.mark.parametrize(
    "values",
    [
        "{email: = event.data.email}",
        "{email: null}",
        "{email: = context.phone, phone: = context.email}",
        "{email: '= event.data.email if event.data.adult else null'}",
        "{email: '= event.data.email if event.data.adult else context.email'}",
        "{home.zip: = event.data.email}",
        "{home: {zip: = event.data.email, country: DE}}",
        "{home: \"= {'zip': event.data.email, 'country': 'DE'}\"}",
        "{home: null}",
        "{address: = context.email}",
        "{count: = context.count + 1}",
        "{note: = event.data.adult}",
        "{note: '= context.email != null'}",
    ],
)
def test_a_personal_field_takes_a_personal_value_or_null(values: str) -> None:
    assert problems(with_action(f"{{assign: {values}}}")) == []


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ("{email: ada}", "personal.unsealed"),
        ("{email: = context.note}", "personal.unsealed"),
        ("{email: = event.data.adult}", "personal.unsealed"),
        ("{email: '= event.data.email if event.data.adult else context.note'}", "personal.read"),
        ("{email: {a: = event.data.email}}", "personal.unsealed"),
        ("{address.city: = event.data.email}", "personal.unsealed"),
        ("{home: {zip: '10115', country: DE}}", "personal.unsealed"),
        ("{home: = context.note}", "personal.unsealed"),
        ("{home: = context.email}", "personal.read"),
        ("{note: = event.data.email}", "personal.read"),
        ("{note: = event.data}", "personal.read"),
        ("{note: [= event.data.email]}", "personal.read"),
        ('{note: "= [event.data.email]"}', "personal.read"),
        ('{note: "= {context.delay: event.data.email}"}', "personal.read"),
        ("{note: '= event'}", "personal.read"),
        ("{home.country: = event.data.email}", "personal.read"),
        ("{count: = len(event.data.email)}", "personal.read"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(values: str, code: str) -> None:
    assert code in problems(with_action(f"{{assign: {values}}}"))


def test_a_field_that_is_personal_in_some_events_only_cannot_be_read() -> None:
    """Copied into a personal field, the plain one would be stored unsealed."""
    both = f"{CONTEXT}states:\n  a:\n    on:\n      '*': {{actions: [{{assign: {{email: = event.data.email}}}}]}}\n"
    action = "{assign: {email: = event.data.email}}"
    entry = f"{CONTEXT}states:\n  a:\n    entry: [{action}]\n    on: {{signup: a2}}\n  a2: {{}}\n"

    assert "personal.read" in problems(both)
    assert "personal.read" in problems(entry)


def test_a_plain_payload_never_fills_a_personal_field() -> None:
    assert problems(with_action("{assign: {email: = event.data.email}}", "rename")) == ["personal.unsealed"]
    assert problems(with_action("{assign: {email: = event.data.email}}", "any.thing")) == ["personal.unsealed"]


@pytest.mark.parametrize(
    "action",
    [
        "{do: mail.send, with: {to: = event.data.email}}",
        "{send: {event: told, data: {email: = event.data.email}}}",
        "{raise: {event: told, data: {email: = context.email}}}",
        "{send: {event: hello, to: other/1, data: {email: = event.data.email}}}",
        "{send: {event: hello, to: '= context.delay', data: = event.data}}",
        "{emit: {type: welcomed, data: {email: = event.data.email, adult: = event.data.adult}}}",
        "{log: {label: signed up, value: = event.data.adult}}",
    ],
)
def test_an_action_may_pass_a_personal_value_to_where_it_stays_sealed(action: str) -> None:
    assert problems(with_action(action)) == []


@pytest.mark.parametrize(
    "action",
    [
        "{raise: {event: heard, data: {email: = event.data.email}}}",
        "{send: {event: heard, data: {email: = event.data.email}}}",
        "{raise: {event: '= event.data.email'}}",
        "{send: {event: '= event.data.email', to: other/1}}",
        "{send: {event: told, to: = event.data.email}}",
        "{send: {event: told, id: = event.data.email}}",
        "{send: {event: told, delay: = event.data.email}}",
        "{cancel: = event.data.email}",
        "{emit: {type: welcomed, data: {email: = event.data.email, adult: = event.data.email}}}",
        "{emit: {type: '= event.data.email'}}",
        "{log: {label: signed up, value: = event.data.email}}",
        "{log: {label: signed up, value: = event.data}}",
        "{foreach: {in: = context.address, item: each, do: []}}",
        "{if: = context.email, then: []}",
        "{do: mail.send, with: {to: = lower(event.data.email)}}",
    ],
)
def test_an_action_may_not_pass_it_where_it_is_stored_or_shown_plain(action: str) -> None:
    assert "personal.read" in problems(with_action(action))


def test_a_message_needs_a_declared_personal_field() -> None:
    definition = with_action("{emit: {type: other.topic, data: {email: = event.data.email}}}")

    assert "personal.read" in errors(definition)


INVOKE = """\
context: {{iban: {{type: string, nullable: true, personal: true}}, note: {{nullable: true}}}}
states:
  a:
    invoke: {{id: look, src: bank.lookup, {0}, onDone: {{target: b, actions: [{1}]}}, onError: b}}
  b: {{}}
"""


@pytest.mark.parametrize(
    ("invoke", "action"),
    [
        ("personal: [iban]", "{assign: {iban: = event.data.iban}}"),
        ("personal: [iban]", "{assign: {note: = event.data.ok}}"),
        ("personal: true", "{assign: {iban: = event.data}}"),
        ("input: {iban: = context.iban}", "{assign: {note: = event.data.ok}}"),
    ],
)
def test_a_result_is_personal_where_the_invoke_says_so(invoke: str, action: str) -> None:
    assert problems(INVOKE.format(invoke, action)) == []


@pytest.mark.parametrize(
    ("invoke", "action", "code"),
    [
        ("timeout: 5s", "{assign: {iban: = event.data.iban}}", "personal.unsealed"),
        ("personal: [iban]", "{assign: {note: = event.data.iban}}", "personal.read"),
        ("personal: true", "{assign: {iban: = event.data.iban}}", "personal.read"),
        ("personal: true", "{assign: {note: = event.data}}", "personal.read"),
        ("key: = context.iban", "{assign: {note: 1}}", "personal.read"),
    ],
)
def test_a_result_that_is_not_marked_is_plain(invoke: str, action: str, code: str) -> None:
    assert code in problems(INVOKE.format(invoke, action))


def test_invokes_with_one_id_agree() -> None:
    text = """\
context: {iban: {type: string, nullable: true, personal: true}}
states:
  a: {invoke: {id: look, src: x, personal: [iban], onDone: b, onError: b}}
  b: {invoke: {id: look, src: x, onDone: c, onError: c}}
  c: {}
"""
    located = """\
context: {iban: {type: string, nullable: true, personal: true}, place: {nullable: true}}
states:
  a: {invoke: {idLocation: place, src: x, personal: [iban], onDone: b, onError: b}}
  b: {}
"""

    assert problems(text) == ["personal.place"]
    assert problems(located) == ["personal.place"]


def test_a_saga_step_with_a_personal_output_has_a_personal_result() -> None:
    text = """\
context: {{iban: {{type: string, nullable: true{0}}}}}
states:
  a:
    saga:
      steps:
        - id: account
          do: {{src: bank.open, output: iban}}
          compensate: {{src: bank.close, input: {{iban: = context.iban}}}}
      onDone: b
      onError: b
  b: {{type: final}}
"""
    plan = plan_of(chart_of(text.format(", personal: true")))

    assert plan is not None
    assert dict(plan.results) == {"a.account": True}
    assert plan_of(chart_of(text.format(""))) is None


@pytest.mark.parametrize(
    ("context", "code"),
    [
        ("{email: {type: string, personal: true, default: x@example.org}}", "personal.unsealed"),
        (
            "{home: {type: object, default: {zip: a}, fields: {zip: {type: string, personal: true}}}}",
            "personal.unsealed",
        ),
        ("{email: {type: string, nullable: true, personal: true, index: true}}", "personal.place"),
        ("{all: {type: array, nullable: true, items: {type: string, personal: true}}}", "personal.place"),
        (
            "{all: {type: array, nullable: true, items: {type: object, fields: {a: {type: string, personal: true}}}}}",
            "personal.place",
        ),
        (
            "{email: {type: string, nullable: true, personal: true}, copy: {default: = context.email}}",
            "personal.read",
        ),
    ],
)
def test_what_cannot_be_sealed_cannot_be_marked(context: str, code: str) -> None:
    assert code in errors(f"context: {context}\nstates: {{a: {{}}}}\n")


@pytest.mark.parametrize(
    "context",
    [
        "{email: {type: string, nullable: true, default: null, personal: true}}",
        "{all: {type: array, nullable: true, personal: true, items: {type: string, personal: true}}}",
        "{home: {type: object, nullable: true, personal: true, fields: {zip: {type: string, personal: true}}}}",
    ],
)
def test_a_whole_array_or_object_can_be_marked(context: str) -> None:
    assert errors(f"context: {context}\nstates: {{a: {{}}}}\n") == []


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (
            "{payload: {email: {type: string, personal: true}}, permit: '= event.data.email == principal.mail'}",
            "personal.read",
        ),
        ("{payload: {email: {type: string, personal: true}}, dedupe: = event.data.email}", "personal.read"),
        ("{payload: {email: {type: string, personal: true, default: x}}}", "personal.unsealed"),
    ],
)
def test_a_policy_and_a_key_are_not_personal(event: str, code: str) -> None:
    assert code in errors(f"events: {{e: {event}}}\nstates: {{a: {{on: {{e: b}}}}, b: {{}}}}\n")


@pytest.mark.parametrize(
    ("access", "codes"),
    [
        ("create: {permit: '= event.data.context.email == principal.mail'}", ["personal.read"]),
        ("read: {permit: '= context.email == principal.mail'}", ["personal.read"]),
        ("create: {permit: '= event.data.context.email != null'}", []),
        ("read: {permit: '= context.owner == principal.id'}", []),
    ],
)
def test_the_permits_of_a_chart_are_not_personal(access: str, codes: list[str]) -> None:
    context = "context: {email: {type: string, nullable: true, personal: true}, owner: {type: string, nullable: true}}"

    assert codes == errors(f"{access}\n{context}\nstates: {{a: {{}}}}\n")


def test_a_policy_may_ask_whether_there_is_a_value() -> None:
    event = "{payload: {email: {type: string, personal: true, required: false}}, permit: '= event.data.email != null'}"

    assert "personal.read" not in errors(f"events: {{e: {event}}}\nstates: {{a: {{on: {{e: b}}}}, b: {{}}}}\n")


def test_a_delay_and_the_output_of_an_inner_state_are_not_personal() -> None:
    head = "context: {d: {type: string, nullable: true, personal: true}}\n"
    delay = f"{head}states: {{a: {{after: {{'= context.d': b}}}}, b: {{}}}}\n"
    inner = """\
context: {d: {type: string, nullable: true, personal: true}}
states: {a: {states: {x: {type: final, output: = context.d}}, onDone: b}, b: {}}
"""
    outer = f"{head}states: {{a: {{type: final, output: = context.d}}}}\n"

    assert "personal.read" in errors(delay)
    assert "personal.read" in errors(inner)
    assert errors(outer) == []


def test_an_inline_child_declares_what_it_is_given() -> None:
    text = """\
context: {{email: {{type: string, nullable: true, personal: true}}}}
states:
  a:
    invoke:
      src: {{context: {{mail: {{type: string, nullable: true{0}}}}}, states: {{x: {{type: final}}}}}}
      input: {{mail: = context.email}}
      onDone: b
  b: {{}}
"""

    assert errors(text.format(", personal: true")) == []
    assert errors(text.format("")) == ["personal.read"]


def test_the_field_of_the_data_key_is_reserved() -> None:
    fields = "_personal: {nullable: true}, email: {type: string, nullable: true, personal: true}"
    declared = f"context: {{{fields}}}\nstates: {{a: {{}}}}\n"
    written = with_action("{assign: {_personal: null}}")

    assert "name.reserved" in errors(declared)
    assert "name.reserved" in errors(written)


def test_functions_get_tokens_and_are_not_refused() -> None:
    guard = with_transition("{guard: {name: known, with: {email: = event.data.email}}, actions: []}")
    call = with_action("{assign: normalize, with: {email: = event.data.email}}")

    assert problems(guard) == []
    assert "personal.read" not in errors(call)


def test_a_chart_without_personal_data_has_no_plan() -> None:
    assert (
        plan_of(
            chart_of(
                "context: {a: {default: 1}}\nevents: {e: {payload: {b: string}}}\nstates: {x: {on: {e: y}}, y: {}}\n"
            )
        )
        is None
    )


def test_a_computed_name_of_an_object_is_looked_at() -> None:
    """Its value may be personal only under a name that is known."""
    assert ["personal.read"] == problems(with_transition("""{guard: "= {context.email: 1} == {}", actions: []}"""))
    assert [] == problems(with_transition("""{guard: "= {str(context.count): 1} == {}", actions: []}"""))


def test_what_is_personal_for_one_of_two_events_is_so_for_both() -> None:
    """Reading inside a value that one event declares as personal, and the other as an object."""
    events = "  order: {payload: {email: {type: object, fields: {city: string}}}}\n  any.thing"
    text = with_transition("""{guard: "= event.data.email.city == 'x'", actions: []}""", "'*'")

    assert ["personal.read"] == problems(text.replace("  any.thing", events, 1))
    alone = with_transition("""{guard: "= event.data.email.city == 'x'", actions: []}""", "order")
    assert [] == problems(alone.replace("  any.thing", events, 1))


def test_a_malformed_expression_is_reported_once() -> None:
    assert ["expression.syntax"] == errors(with_transition("""{guard: "= context.email +", actions: []}"""))


def test_an_event_that_nothing_declares_has_no_personal_data() -> None:
    """It may have any, and none of it is sealed."""
    assert [] == problems(with_transition("""{guard: "= event.data.email == 'x'", actions: []}""", "nowhere"))
