"""The Python builder creates the same documents as YAML and refuses invalid calls."""

import doctest
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.assemble.charts import load
from interlock.definition.builder import namespace as build
from interlock.definition.yaml.format import FORMAT as YAML
from interlock.errors import DefinitionError, UsageError
from interlock.model.document.actions import Assign, Do, Expression, GuardExpression, GuardName
from interlock.model.document.document import Document, Initial, Invoke
from interlock.model.limits import DEPTH_MAX, VALUE_DEPTH_MAX
from tests.unit.definition.built_charts import EVERY_WORD, every_word, order, vm

FUNCTIONS = [name for name in build.__all__ if name.islower()]
EXAMPLES = Path(__file__).parents[4] / "examples"


def from_yaml(text: str) -> Document | None:
    """The document of a YAML text that has no errors."""
    reading = YAML.read(text, source="example.yaml")
    assert [] == [each for each in reading.diagnostics if each.severity == "error"]
    return reading.document


@pytest.mark.parametrize("chart", [order, vm], ids=lambda each: each.__name__)
def test_an_example_built_in_python_equals_the_one_in_yaml(chart: Callable[[], Document]) -> None:
    text = (EXAMPLES / f"{chart.__name__}.interlock.yaml").read_text(encoding="utf-8")

    assert from_yaml(text) == chart()


def test_everything_that_yaml_can_say_can_be_said_in_python() -> None:
    assert from_yaml(EVERY_WORD) == every_word()


def test_every_public_name_is_documented_and_typed() -> None:
    for name in FUNCTIONS:
        function = getattr(build, name)
        signature = inspect.signature(function)

        assert inspect.isfunction(function), name
        assert function.__doc__, name
        assert signature.return_annotation is not signature.empty, name
        assert all(each.annotation is not each.empty for each in signature.parameters.values()), name


def test_no_public_signature_says_any() -> None:
    texts = [str(inspect.signature(getattr(build, name))) for name in FUNCTIONS]

    assert [] == [each for each in texts if re.search(r"\bAny\b", each)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_examples_in_docstrings_run(name: str) -> None:
    for example in doctest.DocTestFinder().find(getattr(build, name), name, globs=dict(vars(build))):
        results = doctest.DocTestRunner().run(example)

        assert 0 == results.failed


def test_a_place_is_the_callers_line() -> None:
    """Findings of the compiler point into Python code, with the path that YAML would show."""
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]  # CPython always has frames
    pushed = build.on("pushed", "open")
    always = build.always("open", guard=build.expr("context.wind"))
    states = [build.state("closed", pushed, build.after(build.expr("5"), "open"), always)]
    chart = build.chart("door", states=states)
    closed = chart.root.states[0]
    eventless, delayed, pushed = closed.transitions

    assert __file__ == pushed.location.file == chart.source
    assert line + 1 == pushed.location.line
    assert line + 3 == closed.location.line
    assert "states.closed" == closed.location.path
    assert "states.closed.on.pushed" == pushed.location.path
    assert "states.closed.after[= 5]" == delayed.location.path
    assert "states.closed.always" == eventless.location.path
    assert isinstance(eventless.guard, GuardExpression)
    assert "states.closed.always" == eventless.guard.expression.location.path


def test_an_expression_is_marked_and_a_string_stays_a_string() -> None:
    """`=` has no meaning in Python: only `expr` makes an expression."""
    action = build.assign(a="= b", c=build.expr(" d "))

    assert Assign(values=(("a", "= b"), ("c", Expression("d")))) == action


def test_a_bare_string_names_a_function_or_a_handler() -> None:
    transition = build.on("go", guard="ready", actions="beep")

    assert GuardName(name="ready") == transition.guard
    assert (Do(name="beep"),) == transition.actions


def test_an_expression_may_stand_as_a_guard() -> None:
    assert GuardExpression(expression=Expression("x")) == build.on("go", guard=build.expr("x")).guard


def test_values_are_copied() -> None:
    rows: list[Any] = [1, {"a": (True, None)}]
    action = build.emit("t", rows)
    rows.append(2)

    assert [1, {"a": [True, None]}] == action.data


def test_transitions_stand_in_the_order_in_which_they_are_tried() -> None:
    """As in YAML: always, after, on_done, on, transition; each in the order written."""
    state = build.state(
        "s",
        build.transition("a"),
        build.on("x", "b"),
        build.on("y", "c"),
        build.on_done("d"),
        build.after("1s", "e"),
        build.always("f"),
    )

    assert ["f", "e", "d", "b", "c", "a"] == [each.targets[0] for each in state.transitions]


def test_a_chart_may_be_invoked() -> None:
    """An inline chart makes the invoke one of type chart, and its kind is its own."""
    child = build.chart("child", states=[build.final("over")])

    assert Invoke(src=child, type="chart") == build.invoke(child)


def test_the_root_may_be_parallel() -> None:
    assert "parallel" == build.chart("c", type="parallel", states=[build.state("a")]).root.type


def test_no_actions_are_not_block() -> None:
    assert () == build.state("s", entry=[]).entry


def test_where_a_state_starts_may_have_actions() -> None:
    """`initial` as a function takes actions in addition to the target."""
    assert Initial(targets=("a",), actions=(Do(name="x"),)) == build.initial("a", actions="x")


def test_the_dialect_of_a_converted_chart_can_be_said() -> None:
    assert "scxml" == build.chart("c", dialect="scxml", states=[build.state("_hidden")]).dialect


def nested(depth: int) -> Any:
    """A state with so many levels inside."""
    state = build.state("s")
    for _ in range(depth):
        state = build.state("s", states=[state])
    return state


def deep(depth: int) -> Any:
    """A list of lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a key with a space": (lambda: build.state("a b"), "name.invalid"),
    "a key of 300 bytes": (lambda: build.state("a" * 300), "name.invalid"),
    "a target with a space": (lambda: build.on("e", "a b"), "name.invalid"),
    "a duration without a unit": (lambda: build.after("30", "a"), "duration.invalid"),
    "a backoff of words": (lambda: build.retry(1, backoff="soon"), "duration.invalid"),
    "no event at all": (lambda: build.on([], "a"), "value.empty"),
    "an event with a comma at its end": (lambda: build.on("a,", "b"), "name.invalid"),
    "a guard in YAML's style": (lambda: build.on("e", guard="= x"), "name.invalid"),
    "an expression in YAML's style": (lambda: build.expr("= x"), "expression.syntax"),
    "an empty expression": (lambda: build.expr(" "), "expression.syntax"),
    "an unknown field type": (lambda: build.field("a", "strnig"), "value.choice"),  # type: ignore[arg-type]  # the point
    "an unknown policy": (lambda: build.after("1s", restore="never"), "value.choice"),  # type: ignore[arg-type]  # the point
    "an unknown policy of a send": (
        lambda: build.send("e", delay="1s", restore="never"),  # type: ignore[arg-type]  # the point
        "value.choice",
    ),
    "a field said twice": (
        lambda: build.state("s", context=[build.string("a"), build.string("a")]),
        "key.duplicate",
    ),
    "an enum with an expression": (
        lambda: build.field("a", enum=[{"x": [build.expr("1")]}]),
        "value.expression",
    ),
    "a number that JSON has not": (lambda: build.emit("t", float("nan")), "value.number"),
    "a number too large": (lambda: build.emit("t", 2**256), "value.number"),
    "half a character in a value": (lambda: build.emit("t", ["\ud800"]), "value.text"),
    "half a character in a key": (lambda: build.emit("t", {"\ud800": 1}), "value.text"),
    "half a character in a description": (lambda: build.state("s", description="\ud800"), "value.text"),
    "half a character in an expression": (lambda: build.expr("'\ud800'"), "value.text"),
    "a value too deep": (lambda: build.emit("t", deep(VALUE_DEPTH_MAX + 1)), "value.depth"),
    "an assign of nothing": (build.assign, "value.empty"),
    "a saga without steps": (build.saga, "value.empty"),
    "an answer that waits for an event": (
        lambda: build.invoke("h", done=build.on("e", "a")),
        "transition.place",
    ),
    "an answer that waits for time": (
        lambda: build.invoke("h", error=[build.after("1s", "a")]),
        "transition.place",
    ),
    "a state among transitions": (lambda: build.state("a", build.state("b")), "state.place"),  # type: ignore[arg-type]  # the point
    "two states of one key": (
        lambda: build.chart("c", states=[build.state("a"), build.final("a")]),
        "key.duplicate",
    ),
    "a final state with an invoke": (lambda: build.final("a", build.invoke("h")), "invoke.place"),  # type: ignore[arg-type]  # the point
    "a chart without states": (lambda: build.chart("c"), "value.empty"),
    "an invoke of the root": (
        lambda: build.chart("c", build.invoke("h"), states=[build.state("a")]),  # type: ignore[arg-type]  # the point
        "state.place",
    ),
    "completion of the root": (
        lambda: build.chart("c", build.on_done("a"), states=[build.state("a")]),
        "state.place",
    ),
    "an event declared twice": (
        lambda: build.chart("c", events=[build.event("e"), build.event("e")], states=[build.state("a")]),
        "key.duplicate",
    ),
    "states too deep": (lambda: build.chart("c", states=[nested(DEPTH_MAX)]), "state.depth"),
}


@pytest.mark.parametrize("case", REFUSED, ids=lambda each: each.replace(" ", "_"))
def test_an_invalid_text_is_refused_at_the_call(case: str) -> None:
    wrong, code = REFUSED[case]
    with pytest.raises(DefinitionError) as caught:
        wrong()
    (found,) = caught.value.diagnostics

    assert code == found.code
    assert __file__ == found.location.file


MISUSED: dict[str, tuple[Callable[[Any], object], Any]] = {
    "an expression of a number": (build.expr, 1),
    "a key of a number": (build.state, 1),
    "a target of a number": (lambda bad: build.on("e", bad), 1),
    "a target in bytes": (lambda bad: build.on("e", bad), b"a"),
    "a guard of a number": (lambda bad: build.on("e", guard=bad), 1),
    "an action of a number": (lambda bad: build.on("e", actions=[bad]), 1),
    "actions of a number": (lambda bad: build.on("e", actions=bad), 1),
    "reenter of a number": (lambda bad: build.on("e", reenter=bad), 2),
    "a value of a set": (lambda bad: build.emit("t", bad), {1}),
    "a value in bytes": (lambda bad: build.emit("t", bad), b"x"),
    "a key that is not a string": (lambda bad: build.emit("t", bad), {1: 2}),
    "a context of strings": (lambda bad: build.state("s", context=bad), ["a"]),
    "an action's arguments": (lambda bad: build.do("h", bad), 1),
    "an assign of a list": (build.assign, [1]),
    "a branch that is not a pair": (lambda bad: build.if_("a", "b", elif_=[bad]), "xyz"),
    "a foreach over a number": (lambda bad: build.foreach(bad, "a", item="i"), 1),
    "an answer of a number": (lambda bad: build.invoke("h", done=[bad]), 1),
    "retries of a text": (build.retry, "3"),
    "retries below zero": (build.retry, -1),
    "an invalid retry": (lambda bad: build.invoke("h", retry=bad), 3),
    "an invalid saga step": (build.saga, "step"),
    "an invalid saga": (lambda bad: build.state("s", saga=bad), "plan"),
    "an invalid part": (lambda bad: build.state("s", bad), "e"),
    "invalid states": (lambda bad: build.state("s", states=bad), ["a"]),
    "an allowance of a list": (lambda bad: build.state("s", allow=bad), ["x"]),
    "a permit of a string": (lambda bad: build.event("e", permit=bad), "x"),
    "invalid events": (
        lambda bad: build.chart("c", events=bad, states=[build.state("a")]),
        ["e"],
    ),
    "removed as a list": (
        lambda bad: build.chart("c", removed=bad, states=[build.state("a")]),
        ["a"],
    ),
    "removed states as a list": (
        lambda bad: build.chart("c", removed={"states": bad}, states=[build.state("a")]),
        ["a"],
    ),
    "renamed as a list": (
        lambda bad: build.chart("c", renamed=bad, states=[build.state("a")]),
        ["a"],
    ),
}


@pytest.mark.parametrize("case", MISUSED, ids=lambda each: each.replace(" ", "_"))
def test_a_value_of_the_wrong_type_is_a_usage_error(case: str) -> None:
    wrong, bad = MISUSED[case]
    with pytest.raises(UsageError, match="test_namespace"):
        wrong(bad)


def test_what_only_the_whole_chart_shows_is_reported_together() -> None:
    """Fields without a first value, reserved names and falling ranges come in one error."""
    chart = build.chart(
        "c",
        context=[build.string("a"), build.string("_b", nullable=True)],
        states=[build.state("s", build.invoke("h", retry=build.retry(1, backoff="9s..1s")))],
    )
    with pytest.raises(DefinitionError) as caught:
        load(chart)

    errors = {each.code for each in caught.value.diagnostics if each.severity == "error"}
    assert {"context.no_value", "name.reserved", "duration.range"} == errors
