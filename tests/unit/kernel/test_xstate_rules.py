"""Where the XState dialect takes another turn than SCXML: the seven flags of the dialect record (X5-X21)."""

import json
from typing import Any

import pytest

from interlock.kernel.step import Kernel
from interlock.model.event import Event
from tests.unit.kernel.charts import calls, last_step, payloads, result_of, xstate_kernel


def machine(**keys: Any) -> Kernel:
    """An XState definition made runnable; guards are ours."""
    return xstate_kernel(json.dumps({"id": "m", **keys}))


def leaf(name: str, **keys: Any) -> dict[str, Any]:
    """A state that shows when it is entered and left."""
    return {"entry": f"+{name}", "exit": f"-{name}", **keys}


COMPOUND = {
    "initial": "a",
    "states": {
        "a": leaf(
            "a",
            initial="x",
            states={"x": leaf("x", on={"N": "y"}), "y": leaf("y")},
            on={
                "S": "a",
                "R": {"target": "a", "reenter": True},
                "G": ".y",
                "T": {"actions": "t"},
                "D": {"target": ".x", "reenter": True},
            },
        ),
        "z": leaf("z"),
    },
}


@pytest.mark.parametrize(
    ("event", "trace"),
    [
        ("S", ["-y", "+x"]),
        ("R", ["-y", "-a", "+a", "+x"]),
        ("G", ["-y", "+y"]),
        ("T", ["t"]),
        ("D", ["-y", "-a", "+a", "+x"]),
    ],
)
def test_a_transition_does_not_reenter_its_source_unless_told(event: str, trace: list[str]) -> None:
    """X12, X13."""
    assert trace == calls(last_step(machine(**COMPOUND), "N", event))


def test_the_initial_content_of_a_state_that_stays_does_not_run() -> None:
    """X13: only what is inside is entered again."""
    kernel = machine(
        initial="a",
        states={
            "a": leaf("a", initial="x", states={"x": leaf("x", on={"N": "y"}), "y": {}}, on={"S": {"target": "#m.a"}})
        },
    )

    assert ["+x"] == calls(last_step(kernel, "N", "S"))


REGIONS = {
    "initial": "p",
    "states": {
        "p": leaf(
            "p",
            type="parallel",
            states={
                "r1": leaf("r1", initial="a", states={"a": leaf("a", on={"X": "#b2", "E": {"actions": "inner"}})}),
                "r2": leaf("r2", initial="b1", states={"b1": leaf("b1"), "b2": leaf("b2", id="b2")}),
            },
            on={"E": {"actions": "outer"}, "F": {"actions": "outer"}, "S": "p"},
        ),
    },
}


def test_a_transition_between_regions_keeps_the_parallel() -> None:
    """X14: the nearest ancestor of any type; regions without a target are entered again."""
    step = last_step(machine(**REGIONS), "X")

    assert ["-b1", "-r2", "-a", "-r1", "+r1", "+a", "+r2", "+b2"] == calls(step)


def test_a_parallel_that_targets_itself_stays() -> None:
    """X13: all its regions are entered again."""
    assert ["-b1", "-r2", "-a", "-r1", "+r1", "+a", "+r2", "+b1"] == calls(last_step(machine(**REGIONS), "S"))


@pytest.mark.parametrize(("event", "trace"), [("E", ["inner"]), ("F", ["outer"]), ("Q", [])])
def test_a_parallel_state_is_tried_if_no_region_has_a_transition(event: str, trace: list[str]) -> None:
    """X8."""
    assert trace == calls(last_step(machine(**REGIONS), event))


def test_completion_climbs_through_nested_parallels() -> None:
    """X20, probe 7."""
    region = {"initial": "a", "states": {"a": {"on": {"E": "f"}}, "f": {"type": "final"}}}
    kernel = machine(
        initial="p",
        states={
            "p": {"type": "parallel", "states": {"q": {"type": "parallel", "states": {"r": region}}}, "onDone": "z"},
            "z": {},
        },
    )

    assert ("z",) == last_step(kernel, "E").snapshot.configuration


def test_a_final_child_of_a_parallel_counts_as_done() -> None:
    """X5: the parallel state is done once, though two finals complete it together."""
    kernel = machine(
        initial="z",
        states={
            "p": {
                "type": "parallel",
                "states": {"f": {"type": "final"}, "g": {"type": "final"}},
                "onDone": {"actions": "told"},
            },
            "z": {"on": {"E": "p"}},
        },
    )

    assert ["told"] == calls(last_step(kernel, "E"))


def test_a_parallel_root_that_completes_ends_the_entity() -> None:
    """X20: all its finals are kept as the place where it ended."""
    region = {"initial": "a", "states": {"a": {"on": {"E": "f"}}, "f": {"type": "final"}}}
    kernel = machine(type="parallel", states={"r": region, "s": region})
    step = last_step(kernel, "E")

    assert ("done", 2) == (step.snapshot.ended, len(step.snapshot.configuration))


def test_a_parallel_root_with_a_region_to_go_lives_on() -> None:
    """X20, the other side."""
    region = {"initial": "a", "states": {"a": {"on": {"E": "f"}}, "f": {"type": "final"}}}
    kernel = machine(type="parallel", states={"r": region, "s": {"initial": "b", "states": {"b": {}}}})

    assert None is last_step(kernel, "E").snapshot.ended


def test_a_final_child_of_the_root_ends_the_entity() -> None:
    kernel = machine(initial="a", states={"a": {"on": {"E": "f"}}, "f": {"type": "final"}}, entry="+m", exit="-m")
    step = last_step(kernel, "E")

    assert ("done", ["-m"]) == (step.snapshot.ended, calls(step))


def test_always_with_actions_only_runs_once_per_event() -> None:
    """X11: it waits for the next event when nothing changed."""
    kernel = machine(initial="a", states={"a": {"always": {"actions": "alw"}, "on": {"E": {"actions": "e"}}}})

    assert ["alw"] == calls(last_step(kernel))
    assert ["e", "alw"] == calls(last_step(kernel, "E"))


def test_always_goes_on_while_it_changes_the_context() -> None:
    """X11: a write counts as a change, until the guard no longer holds."""
    less = {"type": "interlock.expression", "params": {"expression": "context.n < 3"}}
    grow = {"type": "interlock.assign", "params": {"values": {"n": "= context.n + 1"}}}
    kernel = machine(
        context={"n": 0},
        initial="a",
        states={"a": {"on": {"E": "b"}}, "b": {"always": {"guard": less, "actions": [grow, "alw"]}}},
    )

    assert ["alw", "alw", "alw"] == calls(last_step(kernel, "E"))


def test_always_goes_on_while_it_changes_the_configuration() -> None:
    """X11: then it stays where it is."""
    kernel = machine(
        initial="a",
        states={"a": {"on": {"E": "b"}}, "b": {"always": "c"}, "c": {"always": {"actions": "alw"}}},
    )
    step = last_step(kernel, "E")

    assert (["alw"], "c") == (calls(step), step.snapshot.configuration[0].rpartition(".")[2])


def test_the_first_event_is_xstates_own() -> None:
    """X21: entry actions of the first step see `xstate.init`, not nothing."""
    log = {"type": "xstate.log", "params": {"value": "= event.name"}}
    kernel = machine(initial="a", states={"a": {"entry": log}})

    assert [{"label": None, "value": "xstate.init"}] == payloads(last_step(kernel), "log")


def test_a_history_without_memory_falls_back_to_the_initial_state() -> None:
    """X17; a parallel's history falls back to the parallel, whose regions it then remembers."""
    region = {"initial": "a", "states": {"a": {"on": {"N": "b"}}, "b": {}}}
    kernel = machine(
        initial="z",
        states={
            "p": {
                "type": "parallel",
                "states": {"r": region, "s": region, "h": {"type": "history", "history": "deep"}},
                "on": {"OUT": "z", "H": "#m.p.h"},
            },
            "z": {"on": {"BACK": "p.h"}},
        },
    )
    first = last_step(kernel, "BACK").snapshot.configuration
    moved = last_step(kernel, "BACK", "N").snapshot.configuration

    assert first != moved
    assert moved == last_step(kernel, "BACK", "N", "OUT", "BACK").snapshot.configuration
    assert 2 == len(last_step(kernel, "BACK", "N", "H").snapshot.configuration)


def test_an_error_ends_the_step() -> None:
    """X18: nothing is committed."""
    broken = {"type": "xstate.log", "params": {"value": "= 1 // 0"}}
    kernel = machine(initial="a", states={"a": {"on": {"E": "b"}}, "b": {"entry": ["before", broken]}})
    before = last_step(kernel).snapshot
    step = kernel.step(before, Event("E"))

    assert ("rejected", "failed", ()) == (step.outcome, step.reason, step.effects)
    assert before is step.snapshot


def test_an_untaken_error_of_an_invoke_ends_the_entity() -> None:
    """X21: the actor is dead there, the entity has failed here."""
    kernel = machine(initial="a", states={"a": {"invoke": {"id": "j", "src": "f"}, "exit": "bye"}})
    before = last_step(kernel).snapshot
    step = kernel.step(before, result_of(before, "j", {"code": "c"}, word="error"))

    assert ("failed", ["bye"]) == (step.snapshot.ended, calls(step))
