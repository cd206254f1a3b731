"""Mistakes in the arguments of a built chart are named where they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interlock import build
from interlock.errors import DefinitionError, UsageError

WRONG: Any = "text"
"""An argument of another type."""


def made(**arguments: Any) -> Any:
    return build.chart("order", states=[build.state("a")], **arguments)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: build.event("pay", approvals=WRONG), "approvals"),
        (lambda: build.event("pay", permit=WRONG), "permit"),
        (lambda: build.approvals("approve", count=0), "count"),
        (lambda: build.approvals("approve", count=True), "count"),
        (lambda: build.access(permit=WRONG), "permit"),
        (lambda: made(create="clerk"), "create"),
        (lambda: made(read={"roles": ["clerk"]}), "read"),
        (lambda: made(removed=["a"]), "removed"),
        (lambda: made(retention="90d"), "retention"),
    ],
)
def test_an_argument_of_another_type_is_named(make: Callable[[], object], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()

    assert named in caught.value.message


@pytest.mark.parametrize("key", ["removed", "retention"])
def test_an_unknown_key_is_named(key: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        made(**{key: {"other": {}}})

    assert ["key.unknown"] == [each.code for each in caught.value.diagnostics]
    assert "other" in str(caught.value)


def test_approvals_are_those_of_the_vocabulary() -> None:
    found = build.event("release", approvals=build.approvals("approve", count=2, without=["request"], within="24h"))

    assert found.approvals is not None
    assert ("approve", 2, ("request",), "24h") == (
        found.approvals.of,
        found.approvals.count,
        found.approvals.without,
        found.approvals.within,
    )
