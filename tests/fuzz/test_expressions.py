"""Proof that the target of expressions would notice what it looks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fuzz import worker
from tests.fuzz.mutation import encoded
from tests.fuzz.target import ACCEPTED
from tests.fuzz.targets import expressions
from tests.fuzz.targets.expressions import ExpressionTarget
from tests.fuzz.worker import Finding


def test_every_known_escape_is_tried_as_it_is() -> None:
    """The seeds of the mutations are inputs themselves."""
    target = ExpressionTarget()
    verdicts = [target.attempt(encoded(text)) for text in (*expressions.HOSTILE, *expressions.VALID)]
    target.look()

    assert len(expressions.VALID) <= sum(each.startswith(ACCEPTED) for each in verdicts)


def planted(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> str | Finding:
    """What is found when every expression does this instead."""
    compiled = type("Planted", (), {"function": staticmethod(function)})
    monkeypatch.setattr(expressions, "compile_parsed", lambda *_, **__: compiled)
    with worker.limits():
        return worker.attempt(ExpressionTarget(), b"1")


def text_of(found: str | Finding) -> str:
    """The text of a finding."""
    assert isinstance(found, Finding), found
    return found.text


def test_a_code_object_made_while_running_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit hook sees what an escaped expression would do first."""
    assert "compile" in text_of(planted(lambda *_: eval("1"), monkeypatch))


def test_a_foreign_attribute_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entity sees attributes that are not fields."""
    found = planted(lambda _context, _event, entity, *_: entity.__class__ and 1, monkeypatch)

    assert "attribute __class__" in text_of(found)


@pytest.mark.parametrize(
    "value",
    [(1,), {1: 2}, object(), 2**256, float("inf"), "x" * 1_000_001, [0] * 100_000, [[[object()]]]],
    ids=["tuple", "key", "object", "bits", "infinite", "long", "wide", "inner"],
)
def test_a_value_outside_the_limits_is_noticed(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are looked at in depth."""
    assert isinstance(planted(lambda *_: value, monkeypatch), Finding)


def raises(error: Exception) -> Callable[..., Any]:
    """A function that does nothing else."""

    def function(*_: object) -> None:
        raise error

    return function


def test_an_unknown_exception_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what `explain` knows may come out of an evaluation."""
    assert not isinstance(planted(raises(TypeError()), monkeypatch), Finding)

    assert isinstance(planted(raises(ValueError()), monkeypatch), Finding)


def test_a_changed_context_is_noticed() -> None:
    """The values that were given must be unchanged."""
    target = ExpressionTarget()
    target.contexts[0]["list"].append(1)

    with pytest.raises(AssertionError):
        target.look()
