"""`interlock show` of an entity that an operator holds, alone or with its kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import Caller

STORE = "sqlite:///orders.db"
ORDER = "interlock: 1\nkind: order\nstates: {open: {on: {pay: paid}}, paid: {}}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a chart."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.yaml").write_text(ORDER)
    return tmp_path


def held_lines(call: Caller, entity: str, *words: str) -> list[str]:
    """Who holds an entity and why."""
    lines = [each.split() for each in call("show", STORE, entity, *words).out.splitlines()]
    return [" ".join(each[1:]) for each in lines if each[:1] == ["held"]]


def test_show_prints_the_hold_of_an_entity_and_of_its_kind(call: Caller, folder: Path) -> None:
    for name in ("order/1", "order/2"):
        call("create", STORE, name, "--chart", "order.yaml")
    free = held_lines(call, "order/1")
    call("hold", STORE, "order/1", "--reason", "case 118", "--principal", "ann")
    (single,) = held_lines(call, "order/1")
    call("hold", STORE, "order", "--reason", "case 119", "--principal", "bob")
    both, other = held_lines(call, "order/1"), held_lines(call, "order/2")

    assert [] == free
    assert single.endswith("by ann: case 118")
    assert [True, True] == [both[0] == single, both[1].startswith("all of order, since ")]
    assert [True, 1] == [other[0].endswith("by bob: case 119"), len(other)]
    assert [] == held_lines(call, "order/1", "--at", "1")
