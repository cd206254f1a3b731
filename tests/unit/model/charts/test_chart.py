"""Values that answer: descriptors, effects, charts."""

from __future__ import annotations

import pytest

from interlock.assemble.charts import loads
from interlock.errors import SourceLocation
from interlock.model.charts.chart import DIALECTS, Chart, Descriptor, State, Transition
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
    assert descriptor.matches(name) is matches


def test_an_effect_names_its_handler() -> None:
    """`call` by name, `invoke` by src; others have none."""
    assert Effect("call", 0, "k", {"name": "charge", "input": 5}).name == "charge"
    assert Effect("call", 0, "k", {"name": "charge", "input": 5}).input == 5
    assert Effect("invoke", 0, "k", {"src": "boot"}).name == "boot"
    assert Effect("log", 0, "k", {"label": "x"}).name is None


def test_a_transition_is_called_by_its_path() -> None:
    assert Transition(index=3, source=1).display_name == "transition 3"
    assert (
        Transition(index=3, source=1, location=SourceLocation(path="states.a.on.go")).display_name == "states.a.on.go"
    )


def test_a_chart_finds_its_states_by_id() -> None:
    root = State(index=0, id="", key="", type="compound", parent=-1, last=0, depth=0)
    chart = Chart(kind="k", revision="1", dialect=DIALECTS["interlock"], states=(root,), transitions=())

    assert chart.state("") is root
    assert chart.state("x") is None


SHAPE = """
interlock: 1
kind: shape
states:
  a:
    states:
      b: {on: {go: c, up: a, out: f, stay: {target: .d, reenter: false}}, states: {d: {}}}
      c: {}
  p:
    type: parallel
    states: {q: {on: {across: r}}, r: {}, h: {type: history, target: [q, r]}}
  f: {type: final}
"""


def shape(dialect: str = "interlock") -> tuple[Chart, dict[str, int]]:
    """Return a chart of nested states, with the numbers of its states by key."""
    chart = loads(SHAPE.replace("kind: shape", f"kind: shape\ndialect: {dialect}")).chart
    return chart, {state.key: state.index for state in chart.states}


def test_a_path_leads_from_a_state_to_the_root() -> None:
    chart, at = shape()

    assert [at["d"], at["b"], at["a"], 0] == chart.path(at["d"])
    assert [0] == chart.path(0)


def test_a_state_contains_its_descendants_and_not_itself() -> None:
    chart, at = shape()

    assert {"b", "c", "d"} == {key for key, index in at.items() if chart.contains(at["a"], index)}
    assert not chart.contains(at["d"], at["d"])


def test_the_common_ancestor_is_the_innermost_state_around_all() -> None:
    chart, at = shape()

    assert at["a"] == chart.common_ancestor(at["d"], at["c"])
    assert at["b"] == chart.common_ancestor(at["d"], at["b"])
    assert 0 == chart.common_ancestor(at["d"], at["c"], at["q"])
    assert at["q"] == chart.common_ancestor(at["q"])


def test_regions_are_the_children_that_can_be_active() -> None:
    chart, at = shape()

    assert (at["q"], at["r"]) == chart.regions(at["p"])


@pytest.mark.parametrize(
    ("dialect", "domains"),
    [
        ("interlock", {"go": "a", "up": "", "out": "", "stay": "b", "across": ""}),
        ("xstate", {"go": "a", "up": "", "out": "", "stay": "b", "across": "p"}),
    ],
)
def test_the_domain_of_a_transition_follows_the_dialect(dialect: str, domains: dict[str, str]) -> None:
    chart, at = shape(dialect)
    found = {each.descriptors[0].text: chart.domain(each, each.targets) for each in chart.transitions}

    assert {name: at[key] for name, key in domains.items()} == found
    assert chart.domain(chart.transitions[0], ()) is None
