"""Nine small charts on which implementations differ, by SCXML and by XState: one algorithm, two records of flags.

The same states run in both dialects: as SCXML means them, as XState means them, and, where it is installed, on
the real XState.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from interlock.model.document.document import Document, State
from tests.conformance.xstate.peer import Ours, Seen, chart_of, document_of, missing, theirs
from tests.conformance.xstate.scenes import Json, story, traced

ABSENT = missing()
pytestmark = pytest.mark.conformance


@dataclass(frozen=True)
class Probe:
    """A chart, its events, and the two stories. `order`: the keys of the parallel state as written, for SCXML."""

    name: str
    definition: Json
    events: str
    scxml: str
    xstate: str
    order: tuple[str, ...] = ()

    def inputs(self) -> list[Json]:
        """The events as XState takes them."""
        return [{"type": each} for each in self.events.split()]


def _compound(**more: Any) -> Json:
    return traced({"a": {"initial": "x", "states": {"x": {"on": {"N": "y"}}, "y": {}}, **more}, "z": {}})


def _region(key: str, action: str) -> Json:
    return {"initial": key, "states": {key: {"on": {"E": {"target": f"{key}2", "actions": action}}}, f"{key}2": {}}}


PROBES = (
    Probe("1", _compound(on={"S": "a"}), "N S", "+a +x |N -x +y |S -y -a +a +x => x", "+a +x |N -x +y |S -y +x => x"),
    Probe(
        "2",
        traced({"a": {"on": {"S": {"target": "a", "actions": "act"}}}, "z": {}}),
        "S",
        "+a |S -a act +a => a",
        "+a |S act => a",
    ),
    Probe("3", _compound(on={"G": ".y"}), "G", "+a +x |G -x -a +a +y => y", "+a +x |G -x +y => y"),
    Probe(
        "3-internal",
        _compound(on={"G": {"target": ".y", "reenter": False}}),
        "G",
        "+a +x |G -x +y => y",
        "+a +x |G -x +y => y",
    ),
    Probe(
        "4",
        traced(
            {
                "p": {
                    "type": "parallel",
                    "states": {
                        "r1": {"initial": "a", "states": {"a": {"on": {"X": "#m.p.r2.b2"}}}},
                        "r2": {"initial": "b1", "states": {"b1": {}, "b2": {}}},
                    },
                },
                "z": {},
            }
        ),
        "X",
        "+p +r1 +a +r2 +b1 |X -b1 -r2 -a -r1 -p +p +r1 +a +r2 +b2 => a,b2",
        "+p +r1 +a +r2 +b1 |X -b1 -r2 -a -r1 +r1 +a +r2 +b2 => a,b2",
    ),
    Probe(
        "5",
        traced({"a": {"on": {"*": "star", "foo.*": "wild", "foo.bar": "exact"}}, "star": {}, "wild": {}, "exact": {}}),
        "foo.bar",
        "+a |foo.bar -a +star => star",
        "+a |foo.bar -a +exact => exact",
    ),
    Probe(
        "6",
        traced(
            {
                "p": {
                    "type": "parallel",
                    "on": {"E": {"actions": "pAct"}},
                    "states": {"r": {"initial": "a", "states": {"a": {"on": {"E": "b"}}, "b": {}}}, "c": {}},
                },
                "z": {},
            }
        ),
        "E",
        "+p +r +a +c |E -a pAct +b => b,c",
        "+p +r +a +c |E -a +b => b,c",
    ),
    Probe(
        "7",
        traced(
            {
                "p": {
                    "type": "parallel",
                    "onDone": "z",
                    "states": {
                        "q": {
                            "type": "parallel",
                            "states": {
                                "r": {"initial": "a", "states": {"a": {"on": {"E": "f"}}, "f": {"type": "final"}}}
                            },
                        }
                    },
                },
                "z": {},
            }
        ),
        "E",
        "+p +q +r +a |E -a +f => f",
        "+p +q +r +a |E -a +f -f -r -q -p +z => z",
    ),
    Probe(
        "8",
        traced({"p": {"type": "parallel", "states": {"b": {}, "2": {}, "1": {}}}, "z": {}}),
        "",
        "+p +b +2 +1 => b,2,1",
        "+p +1 +2 +b => 1,2,b",
        order=("b", "2", "1"),
    ),
    Probe(
        "9",
        traced({"p": {"type": "parallel", "states": {"r": _region("a", "t1"), "s": _region("b", "t2")}}, "z": {}}),
        "E",
        "+p +r +a +s +b |E -b -a t1 t2 +a2 +b2 => a2,b2",
        "+p +r +a +s +b |E -b -a t1 t2 +a2 +b2 => a2,b2",
    ),
)


def _as_scxml(probe: Probe) -> Document:
    """The same states under SCXML's rules; the document order is that of the text, not JavaScript's."""
    document = document_of(probe.definition)
    return replace(document, dialect="scxml", root=_reordered(document.root, probe.order))


def _reordered(state: State, order: tuple[str, ...]) -> State:
    states = tuple(_reordered(each, order) for each in state.states)
    if order and {each.key for each in states} == set(order):
        states = tuple(sorted(states, key=lambda each: order.index(each.key)))
    return replace(state, states=states)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_by_scxml(probe: Probe) -> None:
    """Appendix D of SCXML."""
    assert probe.scxml == story(Ours(chart_of(_as_scxml(probe))).run(probe.inputs()), probe.events)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_by_xstate(probe: Probe) -> None:
    """XState 5, as our kernel reads it."""
    assert probe.xstate == story(Ours(chart_of(document_of(probe.definition))).run(probe.inputs()), probe.events)


@cache
def seen_there() -> dict[str, list[Seen]]:
    """What XState does with every probe, asked once."""
    answers = theirs([(each.definition, each.inputs()) for each in PROBES])
    return {probe.name: seen for probe, seen in zip(PROBES, answers, strict=True)}


@pytest.mark.node
@pytest.mark.skipif(ABSENT is not None, reason=f"CROSS-CHECK WITH XSTATE SKIPPED: {ABSENT}")
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_on_xstate(probe: Probe) -> None:
    """XState 5 itself."""
    assert probe.xstate == story(seen_there()[probe.name], probe.events)
