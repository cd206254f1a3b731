"""Who may create, read and send, and what is kept, written with the builder: as in YAML, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.definition.builder import namespace as build
from interlock.definition.yaml.format import FORMAT as YAML
from interlock.errors import DefinitionError, UsageError

TEXT = """
interlock: 1
kind: payment
create: {roles: [till], permit: "= principal.id != ''"}
read: {roles: [till, boss], owner: customer}
retention: {ended: 90d, entries: 400d}
context: {customer: {type: string, index: true, default: ""}}
events:
  asked: {}
  agreed: {}
  released: {roles: [boss], approvals: {of: agreed, count: 2, not: [asked], since: asked, within: 24h}}
initial: open
states: {open: {on: {released: done}}, done: {type: final}}
"""


WRONG: Any = {"of": "agreed"}
"""A value that belongs to no argument."""


def payment(**changes: Any) -> Any:
    """Return the chart of the text above."""
    agreed = build.approvals("agreed", count=2, without=["asked"], since="asked", within="24h")
    given: dict[str, Any] = {
        "create": build.access(roles=["till"], permit=build.expr("principal.id != ''")),
        "read": build.access(roles=["till", "boss"], owner="customer"),
        "retention": {"ended": "90d", "entries": "400d"},
        "context": [build.string("customer", index=True, default="")],
        "events": [
            build.event("asked"),
            build.event("agreed"),
            build.event("released", roles=["boss"], approvals=agreed),
        ],
        "initial": "open",
        "states": [build.state("open", build.on("released", "done")), build.final("done")],
    }
    return build.chart("payment", **{**given, **changes})


def test_what_is_built_equals_the_text() -> None:
    assert YAML.read(TEXT, source="payment.yaml").document == payment()


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "2"])
def test_a_count_of_approvals_is_a_positive_integer(count: Any) -> None:
    with pytest.raises((UsageError, DefinitionError), match="count"):
        build.approvals("agreed", count=count)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: build.event("released", approvals=WRONG), "approvals"),
        (lambda: build.event("released", permit=WRONG), "permit"),
        (lambda: build.access(permit=WRONG), "permit"),
        (lambda: payment(create={"roles": ["till"]}), "create"),
        (lambda: payment(read=["till"]), "read"),
        (lambda: payment(retention="90d"), "retention"),
        (lambda: payment(retention={"ended": "90d", "never": "1d"}), "never"),
        (lambda: payment(removed=["gone"]), "removed"),
        (lambda: payment(removed={"timers": {}}), "timers"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(wrong: Any, named: str) -> None:
    with pytest.raises((UsageError, DefinitionError), match=named):
        wrong()
