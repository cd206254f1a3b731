"""Hashes of the functions that a chart needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import interlock
from interlock.assemble.charts import BoundChart
from interlock.engines.temporal.functions import check_functions, function_hashes
from interlock.errors import UnavailableError

TEXT = """
interlock: 1
kind: gate
states:
  shut: {on: {push: {target: opened, guard: is_open}}}
  opened: {type: final}
"""


def gate(function: Callable[..., Any]) -> BoundChart[dict[str, Any]]:
    """A chart with this guard."""
    chart = interlock.loads(TEXT)
    chart.guard("is_open")(function)
    return chart


def first(context: object, event: object) -> bool:
    """The first guard."""
    return True


def test_a_function_is_known_by_its_source() -> None:
    recorded = function_hashes(gate(first).kernel)

    def second(context: object, event: object) -> bool:
        return False

    check_functions(gate(first).kernel, recorded)
    assert list(recorded) == ["is_open"]
    with pytest.raises(UnavailableError) as refused:
        check_functions(gate(second).kernel, recorded)
    assert refused.value.code == "function.changed"
    assert "`is_open`" in refused.value.message


def test_a_function_without_source_is_not_compared() -> None:
    assert function_hashes(gate(max).kernel) == {}
    check_functions(gate(max).kernel, function_hashes(gate(first).kernel))
    check_functions(gate(first).kernel, {})
