"""The points X1 to X24 in which XState 5 differs from SCXML: our side always, the real XState where it is installed."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from interlock.compiler.build import compile_document
from interlock.definition.xstate.format import read_xstate, write_xstate
from interlock.kernel.step import Kernel
from interlock.model.document.actions import Raise
from interlock.model.document.document import Document, Invoke, State
from interlock.model.event import Event
from tests.conformance.xstate.peer import Ours, Seen, chart_of, document_of, missing, ours, refusal, theirs
from tests.conformance.xstate.scenes import SCENES, Json, Scene, expression, story, traced

ABSENT = missing()
needs_node = [
    pytest.mark.node,
    pytest.mark.skipif(ABSENT is not None, reason=f"CROSS-CHECK WITH XSTATE SKIPPED: {ABSENT}"),
]
pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_our_story(scene: Scene) -> None:
    assert scene.story == story(ours(scene.definition, scene.inputs()), scene.events), scene.fact


@cache
def seen_there() -> dict[str, list[Seen]]:
    """What XState does with every scene, asked once."""
    answers = theirs([(each.definition, each.inputs()) for each in SCENES])
    return {scene.name: seen for scene, seen in zip(SCENES, answers, strict=True)}


@pytest.mark.parametrize("scene", [pytest.param(each, id=each.name, marks=needs_node) for each in SCENES])
def test_their_story(scene: Scene) -> None:
    assert scene.story == story(seen_there()[scene.name], scene.events), scene.fact


# What no trace shows

MISSING_INITIAL: Json = {"id": "m", "states": {"a": {}, "b": {}}}
NULL_TRANSITION: Json = {"id": "m", "initial": "a", "states": {"a": {"on": {"E": None}}, "b": {}}}
ROOT_SIBLING: Json = {"id": "m", "initial": "a", "on": {"E": "b"}, "states": {"a": {}, "b": {}}}


@pytest.mark.parametrize(
    ("definition", "code"),
    [(MISSING_INITIAL, "initial.missing"), (NULL_TRANSITION, "transition.null"), (ROOT_SIBLING, "target.unknown")],
    ids=["X1", "X9", "X2"],
)
def test_what_xstate_refuses_is_a_diagnostic(definition: Json, code: str) -> None:
    """X1, X2, X9: what XState throws on is an error with a place here."""
    reading = read_xstate(json.dumps(definition), source="m.json")

    assert [code] == [each.code for each in reading.diagnostics]


@pytest.mark.node
@pytest.mark.skipif(ABSENT is not None, reason=f"CROSS-CHECK WITH XSTATE SKIPPED: {ABSENT}")
@pytest.mark.parametrize("definition", [MISSING_INITIAL, NULL_TRANSITION, ROOT_SIBLING], ids=["X1", "X9", "X2"])
def test_xstate_refuses_it(definition: Json) -> None:
    """X1, X2, X9: XState throws."""
    assert refusal(definition) is not None


INVOKES = traced({
    "s": {"on": {"E": "a", "T": "t"}},
    "a": {"initial": {"target": "x", "actions": "init"}, "invoke": {"src": "job", "id": "job"}, "states": {"x": {}}},
    "t": {"invoke": {"src": "job"}, "always": "b"},
    "b": {},
})  # fmt: skip


@pytest.mark.parametrize(
    ("event", "expected"), [("E", ["-s", "+a", "job", "init", "+x"]), ("T", ["-s", "+t", "-t", "+b"])]
)
def test_invokes_start_between_entry_actions_and_initial_content(event: str, expected: list[str]) -> None:
    """X16: per state its entry actions, its invokes, the content of `initial`; withdrawn on an immediate exit."""
    kernel = Kernel(chart_of(document_of(INVOKES)))
    step = kernel.step(kernel.start(entity="e").snapshot, Event(event))

    assert expected == [each.name for each in step.effects]


@pytest.mark.node
@pytest.mark.skipif(ABSENT is not None, reason=f"CROSS-CHECK WITH XSTATE SKIPPED: {ABSENT}")
def test_xstate_creates_children_at_entry_and_starts_them_at_the_end() -> None:
    """X16: created between entry and initial content, started after the step, a transient one never."""
    lasting, transient = theirs([(INVOKES, [{"type": "E"}]), (INVOKES, [{"type": "T"}])])

    assert ("-s", "+a", "invoke:job", "init", "+x", "started:job") == lasting[1].trace
    assert ("-s", "+t", "invoke:job", "-t", "+b") == transient[1].trace


def test_the_first_event_is_xstate_init() -> None:
    """X21: what runs at the start sees the event `xstate.init`."""
    definition = traced({"a": {"always": {"guard": expression("event.name == 'xstate.init'"), "target": "b"}}, "b": {}})

    assert "+a -a +b => b" == story(ours(definition, []), "")


FAILING = traced({"a": {"invoke": {"src": "job", "id": "job"}}, "b": {}})


def test_an_error_of_a_child_that_nothing_takes_ends_the_entity() -> None:
    """X21: the entity has failed, as XState's actor would have."""
    kernel = Kernel(chart_of(document_of(FAILING)))
    start = kernel.start(entity="e").snapshot
    event = Event("error.invoke.job", type="platform", invokeid="job", source=f"invoke/{start.invokes[0].key}")

    assert "failed" == kernel.step(start, event).snapshot.ended


@pytest.mark.node
@pytest.mark.skipif(ABSENT is not None, reason=f"CROSS-CHECK WITH XSTATE SKIPPED: {ABSENT}")
def test_an_untaken_error_ends_the_actor_of_xstate() -> None:
    """X21: status `error`."""
    assert "error" == theirs([(FAILING, [{"type": "xstate.error.actor.job"}])])[0][-1].status


def test_done_events_of_invokes_are_aliased() -> None:
    """X19: `xstate.done.actor.ID` in a descriptor is our `done.invoke.ID`, and an onError takes `error.invoke.ID`."""
    states = {
        "a": {"invoke": {"src": "job", "id": "job", "onError": "c"}, "on": {"xstate.done.actor.job": "b"}},
        "b": {},
        "c": {},
    }
    kernel = Kernel(chart_of(document_of(traced(states))))
    start = kernel.start(entity="e").snapshot
    ends = []
    for name in ("done.invoke.job", "error.invoke.job"):
        event = Event(name, type="platform", invokeid="job", source=f"invoke/{start.invokes[0].key}")
        ends.append(kernel.step(start, event).snapshot.configuration)

    assert [("b",), ("c",)] == ends


def test_what_xstate_lacks_is_reported_on_export() -> None:
    """X22: autoforward, finalize and idLocation have no place in XState."""
    invoke = Invoke(src="job", autoforward=True, finalize=(), id_location="child")
    document = Document(kind="k", root=State(states=(State(key="a", invokes=(invoke,)), State(key="b"))))
    codes = {each.code for each in write_xstate(document).diagnostics}

    assert {"export.autoforward", "export.finalize", "export.id_location"} <= codes


def test_other_keys_of_an_event_are_its_data() -> None:
    """X23: `{type, ...payload}` is a name and data."""
    action = {"type": "xstate.raise", "params": {"event": {"type": "E", "amount": 2}}}
    document = document_of({"id": "m", "initial": "a", "states": {"a": {"entry": action}, "b": {}}})

    assert ((Raise(event="E", data={"amount": 2}),),) == document.root.states[0].entry


def test_version_four_is_read_only_when_said() -> None:
    text = json.dumps(
        {"id": "m", "initial": "a", "states": {"a": {"on": {"S": {"target": "a", "cond": "ok"}}}, "b": {}}}
    )
    refused = read_xstate(text, source="m.json")
    read = read_xstate(text, source="m.json", xstate=4)

    assert ["xstate.version"] == [each.code for each in refused.diagnostics]
    assert () == read.diagnostics
    assert read.document is not None
    assert True is read.document.root.states[0].transitions[0].reenter


# Where we differ from XState on purpose


def _region(name: str) -> Json:
    go = {"guard": expression("context.n == 1"), "target": f"{name}3", "actions": f"t{name}"}
    return {
        "initial": f"{name}1",
        "states": {f"{name}1": {"on": {f"go{name}": f"{name}2"}}, f"{name}2": {"always": go}, f"{name}3": {}},
    }


LATE = traced({
    "p": {
        "type": "parallel",
        "on": {"E": {"actions": {"type": "interlock.assign", "params": {"values": {"n": 1}}}}},
        "states": {"a": _region("a"), "b": _region("b")},
    },
    "z": {},
}, context={"n": 0})  # fmt: skip
AROUND = traced(
    {
        "p": {
            "initial": "x",
            "states": {"x": {"on": {"H": {"target": "h", "actions": "act"}}}, "h": {"type": "history"}},
        },
        "z": {},
    }
)
LOST = traced({
    "p": {
        "type": "parallel",
        "states": {"r": {"on": {"H": "#m.p.h"}}, "h": {"type": "history"}},
        "on": {"L": "z"},
    },
    "z": {},
})  # fmt: skip
UPWARD = traced({"a": {"on": {"R": "#m"}}, "b": {}}, root=True)
DIFFERENCES = [
    pytest.param(
        LATE, "gob goa E",
        "+p +a +a1 +b +b1 |gob -b1 +b2 |goa -a1 +a2 |E -b2 -a2 ta tb +a3 +b3 => a3,b3",
        "+p +a +a1 +b +b1 |gob -b1 +b2 |goa -a1 +a2 |E -b2 -a2 tb ta +a3 +b3 => a3,b3",
        id="eventless-order",
    ),
    pytest.param(AROUND, "H", "+p +x |H act => x", "+p +x |H act +x => x", id="history-of-the-source"),
    pytest.param(
        LOST, "H L",
        "+p +r |H -r -p +p +r |L -r -p +z => z", "+p +r |H -r -p +r |L -r +z => z",
        id="history-of-a-parallel",
    ),
    pytest.param(UPWARD, "R", "+m +a |R -a -m +m +a => a", "+m +a |R -a +m +a => a", id="root-as-target"),
]  # fmt: skip


def _inputs(events: str) -> list[Json]:
    return [{"type": each} for each in events.split()]


@pytest.mark.parametrize(("definition", "events", "mine", "other"), DIFFERENCES)
def test_where_xstate_leaves_the_rails_we_do_not(definition: Json, events: str, mine: str, other: str) -> None:
    """Entering without leaving, leaving without entering, an order that a restored snapshot forgets: not copied."""
    assert mine != other
    assert mine == story(Ours(chart_of(document_of(definition))).run(_inputs(events)), events)


@pytest.mark.node
@pytest.mark.skipif(ABSENT is not None, reason=f"CROSS-CHECK WITH XSTATE SKIPPED: {ABSENT}")
@pytest.mark.parametrize(("definition", "events", "mine", "other"), DIFFERENCES)
def test_xstate_still_does(definition: Json, events: str, mine: str, other: str) -> None:
    """Once XState changes one of these, this test says so and the difference can go."""
    assert other == story(theirs([(definition, _inputs(events))])[0], events)


def test_scenes_cover_every_point() -> None:
    shown = {each.name.split("-")[0] for each in SCENES}
    others: dict[str, Any] = {f"X{number}": True for number in (1, 16, 21, 22, 23)}

    assert {f"X{number}" for number in range(1, 25)} == shown | set(others)


def test_every_scene_compiles_without_findings_above_a_warning() -> None:
    found = [compile_document(document_of(each.definition)).chart for each in SCENES]

    assert all(each is not None for each in found)
