"""Functions that are called twice: what is found, and what is not."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.assemble.charts import BoundChart, loads
from interlock.errors import UsageError
from interlock.testing.exercise import exercise
from interlock.testing.simulation import Simulation
from tests.support.cli import Caller

TEXT = """
interlock: 1
kind: account
revision: 1.0.0
context: {n: {type: integer, default: 0}, log: {type: array, default: []}}
initial: open
states:
  open: {expect: {within: forever}, on: {closed: {target: shut, guard: may_close}, booked: {actions: [{assign: book}]}}}
  shut: {type: final}
"""


def account(
    guard: Callable[..., Any] = lambda context, event: True, assign: Callable[..., Any] = lambda context, event: {}
) -> BoundChart:
    """Return the chart with these functions."""
    chart = loads(TEXT)
    chart.guard("may_close")(guard)
    chart.assign("book")(assign)
    return chart


def test_pure_functions_run_as_without_the_check() -> None:
    calls: list[str] = []

    def book(context: dict[str, Any], event: Any) -> dict[str, Any]:
        calls.append(event.name)
        return {"n": context["n"] + 1, "log": [*context["log"], {"at": event.time_ms}]}

    simulation = Simulation(account(assign=book), time_ms=7)
    simulation.create("account/1")
    step = simulation.send("account/1", "booked")

    assert (["booked", "booked"], {"n": 1, "log": [{"at": 7}]}) == (calls, step.snapshot.context)
    assert "applied" == simulation.send("account/1", "closed").outcome


def test_an_assign_with_another_result_is_impure() -> None:
    numbers = itertools.count()
    simulation = Simulation(account(assign=lambda context, event: {"n": next(numbers)}))
    simulation.create("account/1")
    with pytest.raises(UsageError) as raised:
        simulation.send("account/1", "booked")

    assert "function.impure" == raised.value.code
    assert "the assign `book`" in raised.value.message


def test_a_result_that_differs_in_type_only_is_another_result() -> None:
    values = itertools.cycle([1, 1.0])
    simulation = Simulation(account(assign=lambda context, event: {"n": 0, "log": [next(values)]}))
    simulation.create("account/1")
    with pytest.raises(UsageError):
        simulation.send("account/1", "booked")


def test_a_guard_that_flips_is_impure_although_the_step_is_refused() -> None:
    values = itertools.cycle([False, True])
    simulation = Simulation(account(guard=lambda context, event: next(values)))
    simulation.create("account/1")
    with pytest.raises(UsageError) as raised:
        simulation.send("account/1", "closed")

    assert "the guard `may_close`" in raised.value.message


def test_a_function_that_changes_its_arguments_is_impure() -> None:
    def book(context: dict[str, Any], event: Any) -> dict[str, Any]:
        context["log"].append(1)
        return {"log": [1]}

    simulation = Simulation(account(assign=book))
    simulation.create("account/1")
    with pytest.raises(UsageError) as raised:
        simulation.send("account/1", "booked")

    assert "changes its arguments" in raised.value.message


def test_a_function_that_always_raises_is_pure_and_one_that_raises_once_is_not() -> None:
    def fails(context: dict[str, Any], event: Any) -> dict[str, Any]:
        raise ValueError(object())

    simulation = Simulation(account(assign=fails))
    simulation.create("account/1")
    faults = simulation.send("account/1", "booked").faults
    once = iter([None])

    def book(context: dict[str, Any], event: Any) -> dict[str, Any]:
        next(once)
        return {}

    other = Simulation(account(assign=book))
    other.create("account/1")
    with pytest.raises(UsageError):
        other.send("account/1", "booked")
    assert 1 == len(faults)


def test_the_check_does_not_change_the_chart_of_the_caller() -> None:
    numbers = itertools.count()
    chart = account(assign=lambda context, event: {"n": next(numbers)})
    Simulation(chart)
    step = chart.step(chart.start(entity="account/1").snapshot, "booked")

    assert {"n": 0, "log": []} == step.snapshot.context


CODE = """
import itertools
import interlock

numbers = itertools.count()
chart = interlock.loads('''{text}''')
chart.guard("may_close")(lambda context, event: {guard})
chart.assign("book")(lambda context, event: {{"n": {value}}})
"""


@pytest.mark.parametrize(("value", "code"), [("context['n'] + 1", 0), ("next(numbers)", 1)], ids=["pure", "impure"])
def test_check_strict_reports_impure_functions(
    value: str, code: int, call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"ledger_{code}"
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path(folder, f"{name}.py").write_text(CODE.format(text=TEXT, guard="True", value=value), encoding="utf-8")
    ended = call("check", "--strict", f"{name}:chart")
    without = call("check", f"{name}:chart")

    assert (code, 0) == (ended.code, without.code), ended
    assert (code == 1) == ("function.impure" in ended.out)


def test_walks_name_the_functions_that_they_did_not_call() -> None:
    text = TEXT.replace(
        "closed: {target: shut, guard: may_close}, ", "never: {target: shut, guard: {all: [no, may_close]}}, "
    )
    chart = loads(text)
    chart.assign("book")(lambda context, event: {})
    chart.guard("no")(lambda context, event: False)
    chart.guard("may_close")(lambda context, event: True)
    (found,) = exercise(chart)

    assert ("function.uncalled", "info") == (found.code, found.severity)
    assert "`may_close`" in found.message
    assert "`book`" not in found.message


def test_walks_are_repeatable() -> None:
    calls: list[list[object]] = [[], []]
    for seen in calls:
        chart = account(assign=lambda context, event, seen=seen: seen.append(event.data) or {"n": 1})
        exercise(chart)

    assert calls[0] == calls[1]
    assert calls[0]
