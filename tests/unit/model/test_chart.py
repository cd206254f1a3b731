"""Values that answer: descriptors, effects, charts."""

from __future__ import annotations

import pytest

from interlock.errors import Place
from interlock.model.chart import DIALECTS, Chart, Descriptor, State, Transition
from interlock.model.effect import Effect


@pytest.mark.parametrize(
    ("descriptor", "name", "matches"),
    [
        (Descriptor("foo", ("foo",)), "foo", True),
        (Descriptor("foo", ("foo",)), "foo.bar", True),
        (Descriptor("foo", ("foo",)), "foobar", False),
        (Descriptor("foo", ("foo",)), "Foo", False),
        (Descriptor("*", ()), "anything.at.all", True),
        (Descriptor("foo", ("foo",), exact=True), "foo.bar", False),
        (Descriptor("foo.bar", ("foo", "bar")), "foo", False),
    ],
)
def test_a_descriptor_matches_whole_tokens(descriptor: Descriptor, name: str, matches: bool) -> None:
    """As a prefix, or exactly."""
    assert descriptor.matches(name) is matches


def test_an_effect_names_its_handler() -> None:
    """`call` by name, `invoke` by src; others have none."""
    assert Effect("call", 0, "k", {"name": "charge", "input": 5}).name == "charge"
    assert Effect("call", 0, "k", {"name": "charge", "input": 5}).input == 5
    assert Effect("invoke", 0, "k", {"src": "boot"}).name == "boot"
    assert Effect("log", 0, "k", {"label": "x"}).name is None


def test_a_transition_is_called_by_its_path() -> None:
    """Or by its number, where the definition has no text."""
    assert Transition(index=3, source=1).where == "transition 3"
    assert Transition(index=3, source=1, place=Place(path="states.a.on.go")).where == "states.a.on.go"


def test_a_chart_finds_its_states_by_id() -> None:
    """Or says that there is none."""
    root = State(index=0, id="", key="", type="compound", parent=-1, last=0, depth=0)
    chart = Chart(kind="k", revision="1", dialect=DIALECTS["interlock"], states=(root,), transitions=())

    assert chart.state("") is root
    assert chart.state("x") is None
