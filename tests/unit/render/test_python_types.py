"""The Python types of a chart: what is written for each kind of field, event, input and name."""

from __future__ import annotations

import typing
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal, cast

import pytest

import interlock
from interlock.render.python_types import python_types
from tests.tidy.tracked import ROOT

_NUMBERS = count()


def module_of(text: str, format: str = "yaml") -> ModuleType:
    """The module of a chart, imported under a new name: overloads are registered by the name of their module."""
    module = ModuleType(f"written_{next(_NUMBERS)}")
    written = python_types(interlock.loads(text, format=format).chart)
    exec(compile(written, "written.py", "exec", dont_inherit=True), module.__dict__)
    return module


def keys(found: Any) -> dict[str, Any]:
    """The keys of a TypedDict with their types, as texts; the optional ones with a question mark."""
    hints = typing.get_type_hints(found, include_extras=True)
    return {f"{name}{'' if name in found.__required_keys__ else '?'}": str(hint) for name, hint in hints.items()}


def chart(*, context: str = "{}", events: str | None = None, rest: str = "states: {a: {}}") -> str:
    lines = ["interlock: 1", "kind: thing", f"context: {context}", *([f"events: {events}"] if events else []), rest]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("{type: string, required: true}", "<class 'str'>"),
        ("{type: integer, required: true}", "<class 'int'>"),
        ("{type: number, required: true}", "<class 'float'>"),
        ("{type: boolean, required: true}", "<class 'bool'>"),
        ("{type: any, required: true}", "typing.Any"),
        ("{type: object, required: true}", "dict[str, typing.Any]"),
        ("{type: array, required: true}", "list[typing.Any]"),
        ("{type: array, items: string, required: true}", "list[str]"),
        ("{type: string, nullable: true, required: true}", "str | None"),
        ("{type: string, enum: [x, 'y | None'], required: true}", "typing.Literal['x', 'y | None']"),
        ("{type: integer, enum: [1, 2], required: true}", "typing.Literal[1, 2]"),
        ("{type: number, enum: [1, 2], required: true}", "<class 'float'>"),
        ("{type: any, enum: [true, x], required: true}", "typing.Optional[typing.Literal[True, 'x']]"),
        ("{type: any, enum: [1.5], required: true}", "typing.Any"),
        ("{type: string, default: x}", "<class 'str'>"),
    ],
)
def test_a_field_has_the_type_of_its_values(field: str, expected: str) -> None:
    found = module_of(chart(context=f"{{value: {field}}}"))

    assert {"value": expected} == keys(found.ThingContext)


def test_only_required_fields_must_be_given_to_create() -> None:
    fields = "{a: {type: string, required: true}, b: {type: string, default: x}, c: {type: string, nullable: true}}"
    found = module_of(chart(context=fields))

    assert ["a", "b?", "c?"] == list(keys(found.ThingInitialContext))
    assert ["a", "b", "c"] == list(keys(found.ThingContext))


def test_a_field_that_is_bound_late_may_be_absent() -> None:
    text = "binding: late\nstates: {a: {context: {inner: {type: string, default: x}}}}"
    found = module_of(chart(context="{outer: {type: string, default: x}}", rest=text))

    assert ["outer", "inner?"] == list(keys(found.ThingContext))
    assert ["outer?"] == list(keys(found.ThingInitialContext))


def test_an_object_has_a_type_of_its_own_which_create_and_the_context_share() -> None:
    fields = (
        "{address: {type: object, required: true, fields: {street: {type: string, required: true}, floor: integer}}}"
    )
    found = module_of(chart(context=fields))

    assert ["street", "floor?"] == list(keys(found.ThingAddress))
    shared = [typing.get_type_hints(each)["address"] for each in (found.ThingContext, found.ThingInitialContext)]
    assert [found.ThingAddress, found.ThingAddress] == shared


def test_objects_inside_arrays_are_typed() -> None:
    text = "{lines: {type: array, required: true, items: {type: object, fields: {price: integer}}}}"
    found = module_of(chart(context=text))

    assert "list[" in keys(found.ThingContext)["lines"]
    assert any(["price"] == [*getattr(each, "__annotations__", {})] for each in vars(found).values())


@pytest.mark.parametrize("name", ["unit-price", "class", "__private", "größe", "str", "TypedDict"])
def test_a_key_that_is_not_an_attribute_is_kept(name: str) -> None:
    events = f'{{go: {{payload: {{"{name}": string, other: string}}}}}}'
    found = module_of(chart(events=events, rest="states: {a: {on: {go: {}}}}"))

    assert {name: "<class 'str'>", "other": "<class 'str'>"} == keys(found.GoPayload)


def test_the_names_of_states_events_and_handlers_are_literals() -> None:
    text = "states: {a: {entry: [ring], on: {go: b}, states: {x: {}, h: {type: history, target: x}}}, b: {}}"
    found = module_of(chart(rest=text))

    assert ("a", "a.x", "b") == typing.get_args(found.ThingState)
    assert ("go",) == typing.get_args(found.ThingEvent)
    assert ("ring",) == typing.get_args(found.ThingHandler)


def test_a_chart_of_one_state_has_that_state() -> None:
    assert 1 == len(typing.get_args(module_of('{"id": "one"}', format="xstate").OneState))


@pytest.mark.parametrize(
    "rest",
    [
        'states: {a: {on: {"*": b}}, b: {}}',
        'states: {a: {on: {"payment.*": b}}, b: {}}',
        "states: {a: {invoke: {id: c, type: chart, src: other, autoforward: true}}}",
    ],
)
def test_a_chart_that_takes_other_events_takes_any_name(rest: str) -> None:
    assert str is module_of(chart(rest=rest)).ThingEvent


def test_declared_events_are_closed() -> None:
    found = module_of(chart(events="{go: {}}", rest='states: {a: {on: {"*": b}}, b: {}}'))

    assert ("go",) == typing.get_args(found.ThingEvent)


def sends(found: ModuleType) -> list[dict[str, Any]]:
    """The parameters of each `send` of the facade."""
    named = SimpleNamespace(__module__=found.__name__, __qualname__="ThingRuntime.send")
    overloads = typing.get_overloads(cast("Any", named)) or [found.ThingRuntime.send]
    return [
        {name: value for name, value in each.__annotations__.items() if name in ("event", "payload")}
        for each in overloads
    ]


def test_each_declared_event_has_its_payload() -> None:
    events = (
        "{paid: {payload: {id: string}}, noted: {payload: {text: {type: string, default: x}}}, left: {payload: {}},"
        " said: {}, hidden: {direction: internal}, told: {direction: out}}"
    )
    found = module_of(
        chart(events=events, rest="states: {a: {on: {paid: {}, noted: {}, left: {}, said: {}, hidden: {}}}}")
    )

    assert [
        {"event": Literal["paid"], "payload": found.PaidPayload},
        {"event": Literal["noted"], "payload": found.NotedPayload | None},
        {"event": Literal["left"]},
        {"event": Literal["said"], "payload": Any},
    ] == sends(found)
    assert (["id"], ["text?"]) == (list(keys(found.PaidPayload)), list(keys(found.NotedPayload)))


def test_undeclared_events_have_any_payload() -> None:
    assert [{"event": Literal["go"], "payload": Any}] == sends(module_of(chart(rest="states: {a: {on: {go: {}}}}")))


def test_a_chart_without_events_has_no_send() -> None:
    assert not hasattr(module_of(chart()).ThingRuntime, "send")


def test_two_events_of_one_spelling_have_two_names() -> None:
    found = module_of(
        chart(
            events="{a.b: {payload: {x: string}}, a_b: {payload: {y: string}}}",
            rest="states: {a: {on: {a.b: {}, a_b: {}}}}",
        )
    )

    assert (["x"], ["y"]) == (list(keys(found.ABPayload)), list(keys(found.ABPayload2)))


def test_an_input_has_the_keys_of_every_call() -> None:
    rest = (
        "states:\n"
        "  a:\n"
        "    entry: [{do: ring, with: {times: 2, at: {hour: 7}, tone: '= context.tone', to: ['x']}}]\n"
        "    exit: [{do: ring, with: {times: soon, at: {hour: null, minute: 5}, tone: null, all: []}}]\n"
    )
    found = module_of(chart(context="{tone: {type: string, nullable: true}}", rest=rest))

    assert {
        "times": "int | str",
        "at": f"<class '{found.__name__}.RingInputAt'>",
        "tone": "str | None",
        "to?": "typing.NotRequired[list[str]]",
        "all?": "typing.NotRequired[list[typing.Any]]",
    } == keys(found.RingInput)
    assert {"hour": "int | None", "minute?": "typing.NotRequired[int]"} == keys(found.RingInputAt)


def test_an_input_that_is_not_an_object_is_an_alias() -> None:
    rest = "states: {a: {entry: [ring, {do: ring, with: {times: 2}}, call], invoke: {src: count, input: '= 1 + 1'}}}"
    found = module_of(chart(rest=rest))

    assert (type(None), Any) == (type(found.CallInput), found.CountInput)
    assert (found.RingInputObject, type(None)) == typing.get_args(found.RingInput)


def test_compensations_get_the_key_of_their_step() -> None:
    definition = Path(ROOT / "examples/order/order.interlock.yaml").read_text(encoding="utf-8")
    found = module_of(definition)

    assert ["compensates"] == list(keys(found.StockReleaseInput))
    assert "amount" in keys(found.OrderContext)
    assert not [each for each in keys(found.OrderContext) if "saga" in each]


@pytest.mark.parametrize(
    ("kind", "state"), [("2fast", "Chart2fastState"), ("task-list", "TaskListState"), ("_", "ChartState")]
)
def test_every_kind_gives_python_names(kind: str, state: str) -> None:
    assert hasattr(module_of(f"interlock: 1\nkind: {kind}\nstates: {{a: {{}}}}\n"), state)


def test_a_name_without_any_letter_falls_back() -> None:
    text = chart(
        rest="states: {a: {entry: ['²', '-'], on: {go: {}}}}",
        context="{'²': {type: object, required: true, fields: {x: string}}}",
    )
    found = module_of(text)

    assert hasattr(found, "HandlerInput")
    assert hasattr(found, "HandlerInput2")


def test_the_same_chart_gives_the_same_text() -> None:
    first, second = (interlock.load(ROOT / "examples/order/order.interlock.yaml").chart for _ in range(2))

    assert python_types(first) == python_types(second)


def test_the_facade_is_the_runtime_itself() -> None:
    found = module_of(chart(rest="states: {a: {on: {go: {}}}}"))
    thing = object()

    assert thing is found.thing_runtime(thing)
