"""Registered functions: guards and assigns that code brings, missing, failing, and answering nonsense."""

from collections.abc import Callable
from typing import Any

import pytest

from interlock.errors import UsageError
from interlock.kernel.step import Kernel
from interlock.model.event import Event
from interlock.model.step import Fault
from tests.unit.kernel.charts import calls, chart_of, faults, kernel_of, last_step

CHART = """
context: {n: {type: integer, default: 1}, m: {type: string, default: ''}}
states:
  a:
    on:
      ask: [{guard: allowed, actions: [yes]}, {actions: [no]}]
      ask_with: {guard: {name: over, with: {limit: "= event.data"}}, actions: [yes]}
      ask_any: {guard: {any: [allowed, {in: b}]}, actions: [yes]}
      ask_none: [{guard: {any: []}, actions: [yes]}, {guard: {all: []}, actions: [no]}]
      ask_not: {guard: {not: allowed}, actions: [yes]}
      fill: {actions: [{assign: compute}, after_it]}
      fill_with: {actions: [{assign: compute_with, with: [1, "= event.data"]}]}
  b: {}
"""


def kernel(**functions: Callable[..., Any]) -> Kernel:
    """Return the chart with these functions, and defaults for the others."""
    guards: dict[str, Callable[..., Any]] = {
        "allowed": lambda context, event: True,
        "over": lambda context, event, given: given["limit"] > context["n"],
    }
    assigns: dict[str, Callable[..., Any]] = {
        "compute": lambda context, event: {},
        "compute_with": lambda context, event, given: {"n": sum(given)},
    }
    for name, function in functions.items():
        (guards if name in guards else assigns)[name] = function
    return kernel_of(CHART, guards=guards, assigns=assigns)


@pytest.mark.parametrize(
    ("guards", "assigns", "code", "names"),
    [
        ({}, {}, "guard.unregistered", "`allowed`, `over`"),
        ({"allowed": len}, {}, "guard.unregistered", "`over`"),
        ({"allowed": len, "over": len}, {}, "assign.unregistered", "`compute`, `compute_with`"),
    ],
)
def test_a_missing_function_is_named_before_any_step(
    guards: dict[str, Any], assigns: dict[str, Any], code: str, names: str
) -> None:
    """The hint is the line that would register the first of them."""
    with pytest.raises(UsageError) as caught:
        Kernel(chart_of(CHART), guards=guards, assigns=assigns)

    assert code == caught.value.code
    assert names in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"register it with @chart.{code.split('.', maxsplit=1)[0]}('")


@pytest.mark.parametrize(
    ("answer", "ran"), [(True, ["yes"]), (1, ["yes"]), ([0], ["yes"]), (False, ["no"]), (None, ["no"]), ("", ["no"])]
)
def test_the_truth_of_a_guards_answer_decides(answer: object, ran: list[str]) -> None:
    assert ran == calls(last_step(kernel(allowed=lambda context, event: answer), "ask"))


def test_a_guard_gets_context_event_and_arguments() -> None:
    """The third only where the chart gives some."""
    seen: list[tuple[Any, ...]] = []

    def over(context: Any, event: Any, given: Any) -> bool:
        seen.append((dict(context), event.name, given))
        return True

    last_step(kernel(over=over), Event("ask_with", 3))

    assert [({"n": 1, "m": ""}, "ask_with", {"limit": 3})] == seen


def test_guards_combine() -> None:
    """`any` and `all` stop as early as they can; an empty `any` never holds, an empty `all` always does."""
    never = kernel(allowed=lambda context, event: False)

    assert (["yes"], ["no"], []) == tuple(
        calls(last_step(kernel(), name)) for name in ("ask_any", "ask_none", "ask_not")
    )
    assert ([], ["yes"]) == tuple(calls(last_step(never, name)) for name in ("ask_any", "ask_not"))


class Mute:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise LookupError("detached")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("boom"), "`allowed` raised RuntimeError: boom"),
        (ValueError("x" * 300), f"`allowed` raised ValueError: {'x' * 200}"),
        (KeyError("x"), "`allowed` raised KeyError: 'x'"),
        (ValueError("half \ud83d"), r"`allowed` raised ValueError: half \ud83d"),
        (KeyError(Mute()), "`allowed` raised KeyError: KeyError, which cannot be shown"),
    ],
)
def test_a_guard_that_raises_counts_as_false_and_is_a_fault(error: Exception, message: str) -> None:
    """S33: the next candidate is tried."""

    def allowed(context: Any, event: Any) -> bool:
        raise error

    step = last_step(kernel(allowed=allowed), "ask")

    assert ["no"] == calls(step)
    assert (Fault("function.failed", message, "states.a.on.ask[0].guard"),) == step.faults


def test_a_guard_is_evaluated_once_per_selection() -> None:
    """S12: though two regions lie below its transition."""
    asked: list[str] = []

    def allowed(context: Any, event: Any) -> bool:
        asked.append(event.name)
        return False

    text = "type: parallel\non: {go: {guard: allowed, actions: [x]}}\nstates: {a: {}, b: {}}\nunhandled: ignore"
    last_step(kernel_of(text, guards={"allowed": allowed}), "go")

    assert ["go"] == asked


def test_the_result_of_an_assign_function_is_written() -> None:
    step = last_step(kernel(compute=lambda context, event: {"n": context["n"] + 1, "m": event.name}), "fill")

    assert {"n": 2, "m": "fill"} == step.snapshot.context
    assert 8 == last_step(kernel(), Event("fill_with", 7)).snapshot.context["n"]


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (None, "assign.function"),
        ([("n", 1)], "assign.function"),
        ({"n": {1, 2}}, "assign.function"),
        ({"n": float("nan")}, "assign.function"),
        ({1: 2}, "assign.function"),
        ({"n": "x"}, "assign.refused"),
        ({"z": 1}, "assign.unknown_field"),
    ],
)
def test_an_invalid_result_of_an_assign_function_is_an_error(result: object, code: str) -> None:
    """The block ends there, and the context is unchanged."""
    step = last_step(kernel(compute=lambda context, event: result), "fill")

    assert [(code, "states.a.on.fill")] == [(each.code, each.place) for each in step.faults]
    assert [] == calls(step)
    assert {"n": 1, "m": ""} == step.snapshot.context


def test_an_assign_function_that_raises_is_an_error() -> None:

    def compute(context: Any, event: Any) -> dict[str, Any]:
        raise OSError("no disk")

    assert ["function.failed"] == faults(last_step(kernel(compute=compute), "fill"))


class Undecided:
    """A value whose `bool()` raises, as comparisons of arrays give it."""

    def __bool__(self) -> bool:
        raise ValueError("neither")


def test_a_guard_whose_answer_has_no_truth_is_in_error() -> None:
    """It counts as false, as any other guard in error (S33)."""
    step = last_step(kernel(allowed=lambda context, event: Undecided()), "ask")

    assert ["no"] == calls(step)
    assert [("function.failed", "`allowed` raised ValueError: neither")] == [
        (each.code, each.message) for each in step.faults
    ]
