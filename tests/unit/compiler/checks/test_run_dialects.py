"""What is an error in our vocabulary and not in others, what `allow` silences, and what no reader of ours brings."""

from dataclasses import replace

import pytest

from interlock.compiler.build import compile_document
from interlock.compiler.checks.report import CODES, DURABILITY_LINT
from interlock.model.document.actions import Assign, Foreach, GuardName, Raise, Send
from interlock.model.document.document import (
    DialectName,
    Document,
    EventType,
    Expect,
    Invoke,
    Retry,
    State,
    Transition,
)
from tests.unit.compiler.diagnostics import errors, read, reported

FOREIGN: list[DialectName] = ["scxml", "xstate"]


def of(*states: State, **fields: object) -> Document:
    """A document of these states."""
    return Document(kind="test", root=State(states=states), **fields)  # type: ignore[arg-type]  # the tests know the fields


@pytest.mark.parametrize("dialect", FOREIGN)
@pytest.mark.parametrize(
    "text",
    [
        "states: {a: {on: {e: a}}}",
        "states: {a: {on: {e: .b}, states: {b: {}}}}",
        "states:\n  a: {onDone: c, states: {b: {}}}\n  c: {}",
        "states: {a: {on: {e: [{actions: [x]}, {guard: g, actions: [y]}]}}}",
        "states: {a: {entry: [{assign: {n: 1}}]}}",
        "context: {n: {type: integer, default: one}}\nstates: {a: {}}",
        "states: {a: {entry: [{raise: error.mine}]}}",
        "events: {e: {}}\nstates: {a: {entry: [{raise: f}], on: {e: {}}}}",
        "states:\n  a: {after: {1s: {target: b, roles: [owner]}}}\n  b: {}",
        "states: {a: {invoke: [{id: i, src: s}, {id: i, src: t}]}}",
        "states:\n  a: {always: b}\n  b: {always: a}",
    ],
)
def test_other_dialects_load_what_ours_refuses(dialect: DialectName, text: str) -> None:
    """Their files run elsewhere, so what is wrong by our rules is at most a warning."""
    document = read(text)

    assert [] != errors(document)
    assert [] == errors(replace(document, dialect=dialect))


@pytest.mark.parametrize("dialect", FOREIGN)
@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("initial.outside", "states:\n  a: {initial: '#b', states: {c: {}}}\n  b: {}"),
        ("history.no_default", "states: {a: {states: {b: {}, h: {type: history}}}}"),
        ("target.conflict", "initial: [a, b]\nstates: {a: {}, b: {}}"),
        ("parallel.no_region", "states: {p: {type: parallel, states: {h: {type: history, target: h}}}}"),
        ("monotonic.violated", "monotonic: true\nstates:\n  a: {on: {e: b}}\n  b: {on: {e: a}}"),
    ],
)
def test_no_dialect_loads_what_has_no_legal_configuration(dialect: DialectName, code: str, text: str) -> None:
    assert code in errors(replace(read(text), dialect=dialect))


def test_durability_lints_are_infos_in_an_imported_chart() -> None:
    document = read("states: {a: {on: {e: b}}, b: {}, c: {}}")

    assert ["warning", "warning"] == [each.split()[0] for each in reported(document, "state.no_timeout")][:2]
    assert {"info"} == {each.split()[0] for each in reported(replace(document, dialect="xstate"), "state.no_timeout")}
    assert {"warning"} == {
        each.split()[0] for each in reported(replace(document, dialect="xstate"), "state.unreachable")
    }
    assert CODES["state.no_timeout"] is DURABILITY_LINT


def test_xstate_waits_after_an_eventless_transition_that_changed_nothing() -> None:
    document = read("states:\n  a: {always: b}\n  b: {always: a}")

    assert [] == reported(replace(document, dialect="xstate"), "always.loop")
    assert ["warning"] == [each.split()[0] for each in reported(replace(document, dialect="scxml"), "always.loop")]


def test_xstate_completes_nested_parallels() -> None:
    """X20: so there is nothing to warn of."""
    text = """\
states:
  p:
    type: parallel
    onDone: z
    states: {q: {type: parallel, states: {r: {states: {f: {type: final}}}, s: {states: {f: {type: final}}}}}, t: {}}
  z: {}
"""

    assert [] == reported(replace(read(text), dialect="xstate"), "done.nested_parallel")


def test_xstate_enters_the_regions_that_a_target_beside_them_leaves() -> None:
    """X14: from region to region the parallel state stays active, and its other regions are entered again."""
    text = """\
dialect: xstate
states:
  p:
    type: parallel
    states: {r: {states: {a: {on: {e: '#p.s.c'}}}}, s: {states: {b: {}, c: {}}}, t: {states: {d: {on: {f: e}}, e: {}}}}
"""

    assert [] == reported(text, "state.unreachable")


def test_xstate_may_target_its_root() -> None:
    """X3: there the root is a state like others."""
    text = "id: top\nstates: {a: {on: {e: '#top'}}}"

    assert [] == errors(replace(read(text), dialect="xstate"))
    assert ["target.root"] == errors(replace(read(text), dialect="scxml"))


def test_allow_silences_a_lint_from_there_down() -> None:
    text = "states:\n  a: {ALLOW, on: {e: c}, states: {saving: {}}}\n  c: {on: {e: a}, states: {loading: {}}}"
    plain, allowed = (
        text.replace("ALLOW", each) for each in ("tags: [x]", "allow: {state.verb_name: as our users say}")
    )

    assert 2 == len(reported(plain, "state.verb_name"))
    assert ["warning 5:28"] == [" ".join(each.split()[:2]) for each in reported(allowed, "state.verb_name")]


def test_allow_silences_lints_that_are_errors() -> None:
    """A transition that is never chosen may be kept on purpose; then the chart compiles."""
    text = "states: {a: {ALLOWon: {e: [{actions: [x]}, {guard: g, actions: [y]}]}}}"

    assert ["transition.shadowed"] == errors(text.replace("ALLOW", ""))
    assert [] == errors(text.replace("ALLOW", "allow: {transition.shadowed: the old way, kept for a while}, "))


def test_an_event_is_declared_once() -> None:
    """Two declarations would contradict each other."""
    twice = (EventType(name="e"), EventType(name="e"))

    assert ["error 1:1"] == reported(of(State(key="a"), events=twice), "event.duplicate")


def test_an_event_name_is_bounded() -> None:
    events = (EventType(name="e" * 257),)

    assert ["error 1:1"] == reported(of(State(key="a"), events=events), "event.name_length")


def test_a_backoff_is_a_duration_or_a_range() -> None:
    waits = [None, "1s", "1s..30s", "soon", "1s..2s..3s"]
    documents = [of(State(key="a", invokes=(Invoke(src="s", retry=Retry(max=1, backoff=each)),))) for each in waits]

    assert [0, 0, 0, 1, 1] == [len(reported(each, "duration.syntax")) for each in documents]


def test_expectations_and_delays_are_durations() -> None:
    """SCXML reads a bad delay and fails when it is reached, so it is a warning there."""
    sending = of(State(key="a", entry=((Send(event="e", delay="soon"),),)))
    expecting = of(State(key="a", expect=Expect(within="soon")))

    assert ["error 1:1"] == reported(sending, "duration.syntax")
    assert ["error 1:1"] == reported(expecting, "duration.syntax")
    assert [] == errors(replace(sending, dialect="scxml"))


def test_reserved_names_that_others_raise_are_left_alone() -> None:
    document = of(State(key="a", entry=((Raise(event="error.mine"),),)), dialect="scxml", events=())

    assert [] == reported(document, "name.reserved")
    assert [] == reported(document, "event.undeclared")


def test_histories_that_share_a_default_are_not_a_cycle() -> None:
    text = """\
states:
  a:
    states:
      p: {type: parallel, states: {r: {initial: '#a.p.r.x.y', states: {x: {states: {y: {}}}}}, s: {}}}
      h: {type: history, target: [p.r, p.s]}
      g: {type: history, target: p}
      k: {type: history, target: [p.r.x, p.s]}
"""

    assert [] == errors(text)
    again = Document(
        kind="test",
        root=State(states=(State(key="a"), State(key="b"), State(key="h", type="history", targets=("a", "a")))),
    )
    assert ["target.conflict"] == errors(again)


def test_a_deep_history_may_have_recorded_anything_below_its_parent() -> None:
    text = """\
monotonic: ['#a.b.x', c]
initial: a.b.x
states:
  a:
    on: {f: c}
    states: {b: {initial: y, states: {x: {on: {e: y}}, y: {}}}, h: {type: history, history: deep, target: b}}
  c: {on: {e: a.h}}
"""

    assert ["monotonic.violated"] == errors(text)
    assert [] == errors(text.replace("history: deep, ", ""))


def test_an_order_is_of_states_that_can_be_followed() -> None:
    states = tuple(State(key=f"s{each}") for each in range(101))
    document = Document(kind="test", root=State(states=states, monotonic=True))

    assert ["error 1:1"] == reported(document, "monotonic.order")


def test_a_region_beside_may_take_what_this_one_hides() -> None:
    """S11: each atomic state asks for itself, so the parallel state's transition is taken for the other region."""
    text = """\
states:
  p:
    type: parallel
    on: {e: z}
    states: {a: {on: {e: {}}}, b: {SECOND}}
  z: {type: final}
"""

    assert [] == reported(text.replace("SECOND", ""), "state.trap")
    assert ["warning", "warning"] == [
        each.split()[0] for each in reported(text.replace("SECOND", "on: {e: {}}"), "state.trap")
    ]


def test_a_cycle_through_a_compound_state() -> None:
    text = "states:\n  a: {always: b}\n  b: {states: {c: {always: '#a'}}}"

    assert 1 == len(reported(text, "always.loop"))


def test_two_ways_into_one_cycle_are_one_cycle() -> None:
    text = """\
states:
  a: {always: p}
  d: {always: p}
  p: {type: parallel, states: {b: {states: {x: {always: y}, y: {}}}, c: {states: {x: {always: y}, y: {always: x}}}}}
"""

    assert 1 == len(reported(text, "always.loop"))


def test_unknown_names_beyond_the_limit_get_no_suggestion() -> None:
    assign = Assign(values=tuple(("itm", each) for each in range(27)))
    loop = Foreach(items=[1], item="item", block=(assign,))
    found = reported(of(State(key="a", entry=((loop,),))), "assign.unknown_field")

    assert {
        "error 1:1",
    } == set(found)


@pytest.mark.slow
def test_many_transitions_for_one_event_are_checked_in_bounded_time() -> None:
    guarded = tuple(
        Transition(events=(f"e{each % 7}",), guard=GuardName(name=f"g{each}"), targets=("b",)) for each in range(3_000)
    )
    document = of(State(key="a", transitions=guarded), State(key="b"))

    assert [] == errors(document)
    assert 0 < len(reported(document, "transition.overlap")) < 3_000


def test_the_compiler_never_raises_on_diagnostics() -> None:
    document = of(
        State(
            key="a", type="final", states=(State(key="a"),), transitions=(Transition(events=("e",), targets=("x",)),)
        ),
        State(key="a", type="history"),
        State(key="", type="parallel"),
        dialect="interlock",
        compatible="?",
        renamed=(("a", "nowhere"),),
    )
    compilation = compile_document(document)

    assert compilation.chart is None
    assert 8 <= len(compilation.diagnostics)
