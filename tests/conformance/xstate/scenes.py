"""Small definitions with the trace that XState 5 gives: the points X1 to X24, one or more scenes each.

Trace notation: `+s` state s entered, `-s` left, `|E` event E given, any other word an action that ran; `=>` the atomic
states after it. `traced` adds the recording of entries and exits, so the scenes stay short.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tests.conformance.xstate.peer import Seen

Json = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """A definition, its events, and the expected trace on both sides."""

    name: str
    fact: str
    definition: Json
    events: str
    story: str

    def inputs(self) -> list[Json]:
        """The events as XState takes them; a number is time that passes."""
        return [{"advance": int(each)} if each.isdigit() else {"type": each} for each in self.events.split()]


def traced(states: Json, *, root: bool = False, **more: Any) -> Json:
    """A definition of these states in which every state, and the root where asked, records its entry and exit."""
    made = deepcopy({"id": "m", "states": states, **more})
    if "type" not in made:
        made.setdefault("initial", next(iter(states)))
    _record("m", made, recorded=root)
    return made


def _record(key: str, state: Json, *, recorded: bool = True) -> None:
    if recorded and state.get("type") != "history":
        state["entry"] = [f"+{key}", *state.get("entry", [])]
        state["exit"] = [f"-{key}", *state.get("exit", [])]
    for name, child in state.get("states", {}).items():
        _record(name, child)


def story(seen: list[Seen], events: str) -> str:
    """What was seen, as one line. Of a step that failed only the failure: what XState did by then is undone here."""
    words = list(seen[0].trace)
    for event, each in zip(events.split(), seen[1:], strict=False):
        words += [f"|{event}", *(each.trace if each.status != "error" else ())]
    last = seen[-1]
    if last.status == "error":
        return " ".join([*words, "error"])
    atoms = ",".join(each.split(".")[-1] for each in last.configuration)
    return " ".join([*words, "=>", "done" if last.status == "done" else atoms])


def assign(**values: Any) -> Json:
    """An assign of these values."""
    return {"type": "interlock.assign", "params": {"values": values}}


def expression(text: str) -> Json:
    """A guard of this expression."""
    return {"type": "interlock.expression", "params": {"expression": text}}


def raised(event: str) -> Json:
    """A raise of this event."""
    return {"type": "xstate.raise", "params": {"event": {"type": event}}}


def _compound(key: str = "a", **more: Any) -> Json:
    return {key: {"initial": "x", "states": {"x": {"on": {"N": "y"}}, "y": {}}, **more}, "other": {}}


def _parallel(a: Json, b: Json, **more: Any) -> Json:
    return {"p": {"type": "parallel", "states": {"a": a, "b": b}, **more}, "z": {}}


_REGIONS = {
    "p": {
        "type": "parallel",
        "states": {
            "r1": {"initial": "a", "states": {"a": {"on": {"X": "#m.p.r2.b2"}}}},
            "r2": {"initial": "b1", "states": {"b1": {}, "b2": {}}},
        },
    },
    "z": {},
}

SCENES = (
    Scene(
        "X2",
        "a target is a sibling's key, `.child`, `#id`, or `#id.child`",
        traced(
            {
                "a": {"on": {"1": "b", "S": "b"}},
                "b": {"initial": "c", "on": {"C": ".d"}, "states": {"c": {}, "d": {"on": {"I": "#deep"}}}},
                "e": {
                    "id": "deep",
                    "initial": "f",
                    "states": {"f": {"on": {"P": "#m.b.d"}}, "g": {}},
                    "on": {"G": "#deep.g"},
                },
            }
        ),
        "S C I P I G",
        "+a |S -a +b +c |C -c +d |I -d -b +e +f |P -f -e +b +d |I -d -b +e +f |G -f +g => g",
    ),
    Scene(
        "X3",
        "the root is a state: it can be entered again",
        traced({"a": {"on": {"S": "b"}}, "b": {}}, root=True, on={"R": {"target": ".a", "reenter": True}}),
        "S R",
        "+m +a |S -a +b |R -b -m +m +a => a",
    ),
    Scene(
        "X3-plain",
        "a transition of the root stays in the root unless it re-enters",
        traced({"a": {"on": {"S": "b"}}, "b": {}}, root=True, on={"R": ".a"}),
        "S R",
        "+m +a |S -a +b |R -b +a => a",
    ),
    Scene(
        "X4",
        "order is JavaScript's: keys that are numbers come first, ascending",
        traced({"b": {}, "2": {}, "1": {}}, type="parallel"),
        "",
        "+1 +2 +b => 1,2,b",
    ),
    Scene(
        "X5",
        "a final child of a parallel state completes it",
        traced(
            {
                "p": {
                    "type": "parallel",
                    "onDone": "z",
                    "states": {
                        "a": {"initial": "u", "states": {"u": {"on": {"E": "v"}}, "v": {"type": "final"}}},
                        "f": {"type": "final"},
                    },
                },
                "z": {},
            }
        ),
        "E",
        "+p +a +u +f |E -u +v -f -v -a -p +z => z",
    ),
    Scene(
        "X6-exact",
        "`foo` takes the event foo only",
        traced({"a": {"on": {"foo": "b"}}, "b": {}}),
        "foo.bar",
        "+a |foo.bar => a",
    ),
    Scene(
        "X6-wildcard",
        "`foo.*` takes foo too",
        traced({"a": {"on": {"foo.*": "b"}}, "b": {}}),
        "foo",
        "+a |foo -a +b => b",
    ),
    Scene(
        "X7",
        "the exact name comes before wildcards, whatever the order written",
        traced({"a": {"on": {"*": "star", "foo.*": "wild", "foo.bar": "exact"}}, "star": {}, "wild": {}, "exact": {}}),
        "foo.bar",
        "+a |foo.bar -a +exact => exact",
    ),
    Scene(
        "X7-longest",
        "among wildcards the longest comes first",
        traced({"a": {"on": {"*": "star", "foo.*": "wild", "foo.bar.*": "long"}}, "star": {}, "wild": {}, "long": {}}),
        "foo.bar.baz",
        "+a |foo.bar.baz -a +long => long",
    ),
    Scene(
        "X7-guard",
        "a false guard falls to the state's own `*` before the parent is asked",
        traced(
            {
                "p": {
                    "initial": "a",
                    "on": {"X": {"actions": "outer"}},
                    "states": {"a": {"on": {"X": {"guard": "no"}, "*": {"actions": "own"}}}},
                },
                "z": {},
            }
        ),
        "X",
        "+p +a |X own => a",
    ),
    Scene(
        "X8",
        "a parallel state is asked only if no region took the event",
        traced(_parallel({"on": {"E": {"actions": "A"}}}, {}, on={"E": {"actions": "pAct"}})),
        "E",
        "+p +a +b |E A => a,b",
    ),
    Scene(
        "X8-deeper",
        "regions of two levels answer, both enclosing parallel states are silent",
        traced(
            {
                "p": {
                    "type": "parallel",
                    "on": {"E": {"actions": "P"}},
                    "states": {
                        "q": {
                            "type": "parallel",
                            "on": {"E": {"actions": "Q"}},
                            "states": {"a": {"on": {"E": {"actions": "A"}}}, "b": {}},
                        },
                        "r": {"on": {"E": {"actions": "R"}}},
                    },
                },
                "z": {},
            }
        ),
        "E",
        "+p +q +a +b +r |E A R => a,b,r",
    ),
    Scene(
        "X9",
        "an empty transition takes the event from its ancestors",
        traced({"p": {"initial": "a", "on": {"E": "z"}, "states": {"a": {"on": {"E": {}}}}}, "z": {}}),
        "E",
        "+p +a |E => a",
    ),
    Scene(
        "X10",
        "a guard that fails ends the actor; later candidates are not tried",
        traced({"a": {"on": {"E": [{"guard": "fails", "target": "b"}, {"target": "c"}]}}, "b": {}, "c": {}}),
        "E",
        "+a |E error",
    ),
    Scene(
        "X11",
        "an eventless transition that only acts runs once per event",
        traced({"a": {"always": {"actions": "alw"}, "on": {"E": {"actions": "e"}}}, "b": {}}),
        "E",
        "+a alw |E e alw => a",
    ),
    Scene(
        "X11-assign",
        "with an assign it goes on while its guard holds",
        traced(
            {
                "a": {
                    "always": {"guard": expression("context.n < 3"), "actions": ["alw", assign(n="= context.n + 1")]}
                },
                "b": {},
            },
            context={"n": 0},
        ),
        "",
        "+a alw alw alw => a",
    ),
    Scene(
        "X12",
        "a transition to an own child stays in its source",
        traced(_compound(on={"G": ".y"})),
        "G",
        "+a +x |G -x +y => y",
    ),
    Scene(
        "X12-reenter",
        "with `reenter` the source is left and entered",
        traced(_compound(on={"G": {"target": ".y", "reenter": True}})),
        "G",
        "+a +x |G -x -a +a +y => y",
    ),
    Scene(
        "X13-atomic",
        "a self-target of an atomic state only acts",
        traced({"a": {"on": {"S": {"target": "a", "actions": "act"}}}, "b": {}}),
        "S",
        "+a |S act => a",
    ),
    Scene(
        "X13-compound",
        "of a compound state it starts the children over, without content of `initial`",
        traced(_compound(initial={"target": "x", "actions": "init"}, on={"S": "a"})),
        "N S",
        "+a init +x |N -x +y |S -y +x => x",
    ),
    Scene(
        "X13-reenter",
        "with `reenter` the state itself is left and entered, with that content",
        traced(_compound(initial={"target": "x", "actions": "init"}, on={"S": {"target": "a", "reenter": True}})),
        "N S",
        "+a init +x |N -x +y |S -y -a +a init +x => x",
    ),
    Scene(
        "X13-parallel",
        "of a parallel state it enters all regions anew, the state stays",
        traced(
            {
                "p": {
                    "type": "parallel",
                    "on": {"S": "p"},
                    "states": {"r": {"initial": "a", "states": {"a": {"on": {"E": "b"}}, "b": {}}}, "q": {}},
                },
                "z": {},
            }
        ),
        "E S",
        "+p +r +a +q |E -a +b |S -q -b -r +r +a +q => a,q",
    ),
    Scene(
        "X14",
        "region to region: the parallel state stays, all its regions are entered anew",
        traced(_REGIONS),
        "X",
        "+p +r1 +a +r2 +b1 |X -b1 -r2 -a -r1 +r1 +a +r2 +b2 => a,b2",
    ),
    Scene(
        "X15",
        "all exits, all actions, all entries: never region by region",
        traced(
            {
                "p": {
                    "type": "parallel",
                    "states": {
                        "r": {
                            "initial": "a",
                            "states": {"a": {"on": {"E": {"target": "a2", "actions": "t1"}}}, "a2": {}},
                        },
                        "s": {
                            "initial": "b",
                            "states": {"b": {"on": {"E": {"target": "b2", "actions": "t2"}}}, "b2": {}},
                        },
                    },
                },
                "z": {},
            }
        ),
        "E",
        "+p +r +a +s +b |E -b -a t1 t2 +a2 +b2 => a2,b2",
    ),
    Scene(
        "X17",
        "a history without target falls back to where its parent starts, with that content",
        traced(
            {
                "a": {"on": {"H": "c.h"}},
                "c": {"initial": {"target": "x", "actions": "init"}, "states": {"x": {}, "h": {"type": "history"}}},
            }
        ),
        "H",
        "+a |H -a +c init +x => x",
    ),
    Scene(
        "X17-recorded",
        "a state that history brings back is entered without the content of its `initial`",
        traced(
            {
                "a": {"on": {"H": "c.h"}},
                "c": {
                    "initial": "x",
                    "on": {"L": "a"},
                    "states": {
                        "x": {"initial": {"target": "y", "actions": "init"}, "states": {"y": {}}},
                        "h": {"type": "history"},
                    },
                },
            },
            initial="c",
        ),
        "L H",
        "+c +x init +y |L -y -x -c +a |H -a +c +x +y => y",
    ),
    Scene(
        "X17-region",
        "so is a region that comes along with a target in another one",
        traced(
            {
                "a": {"on": {"E": "#m.p.r.y"}},
                "p": {
                    "type": "parallel",
                    "states": {
                        "r": {"initial": "x", "states": {"x": {}, "y": {}}},
                        "s": {"initial": {"target": "u", "actions": "init"}, "states": {"u": {}}},
                    },
                },
            }
        ),
        "E",
        "+a |E -a +p +r +y +s +u => y,u",
    ),
    Scene(
        "X18",
        "an error in an action ends the actor and nothing of the step is kept",
        traced(
            {"a": {"on": {"E": {"target": "b", "actions": [assign(n="= context.nothing.here")]}}}, "b": {}},
            context={"n": 0},
        ),
        "E",
        "+a |E error",
    ),
    Scene(
        "X19-done",
        "descriptors may name the events that XState makes itself",
        traced(
            {
                "a": {
                    "initial": "x",
                    "on": {"xstate.done.state.m.a": "z"},
                    "states": {"x": {"on": {"E": "f"}}, "f": {"type": "final"}},
                },
                "z": {},
            }
        ),
        "E",
        "+a +x |E -x +f -f -a +z => z",
    ),
    Scene(
        "X19-wildcard",
        "also by wildcard",
        traced(
            {
                "a": {
                    "initial": "x",
                    "on": {"xstate.done.state.*": "z"},
                    "states": {"x": {"on": {"E": "f"}}, "f": {"type": "final"}},
                },
                "z": {},
            }
        ),
        "E",
        "+a +x |E -x +f -f -a +z => z",
    ),
    Scene(
        "X19-after",
        "and those of delays",
        traced(
            {
                "p": {
                    "initial": "a",
                    "on": {"xstate.after.1500.m.p.a": "z"},
                    "states": {"a": {"after": {"1500": {"guard": "no", "actions": "never"}}}},
                },
                "z": {},
            }
        ),
        "1499 1",
        "+p +a |1499 |1 -a -p +z => z",
    ),
    Scene(
        "X20",
        "nested parallel states complete upward",
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
        "+p +q +r +a |E -a +f -f -r -q -p +z => z",
    ),
    Scene(
        "X20-root",
        "a parallel root that completes ends the entity; every exit action runs, outermost last",
        traced(
            {"r": {"initial": "a", "states": {"a": {"on": {"F": "f"}}, "f": {"type": "final"}}}},
            root=True,
            type="parallel",
        ),
        "F",
        "+m +r +a |F -a +f -f -r -m => done",
    ),
    Scene(
        "X20-end",
        "so does a final child of a compound root",
        traced({"a": {"on": {"F": "f"}}, "f": {"type": "final"}}, root=True),
        "F",
        "+m +a |F -a +f -f -m => done",
    ),
    Scene(
        "X24-after",
        "a delayed transition is taken when its time has come, and not after the state was left",
        traced(
            {"a": {"after": {"100": "b"}, "on": {"E": "c"}}, "b": {"after": {"50": "c"}, "on": {"E": "c"}}, "c": {}}
        ),
        "99 1 49 E 10",
        "+a |99 |1 -a +b |49 |E -b +c |10 => c",
    ),
    Scene(
        "X24-order",
        "assigns run in order with the other actions",
        traced(
            {
                "a": {"on": {"E": {"target": "b", "actions": [assign(n=1), raised("F"), assign(n=2)]}}},
                "b": {"on": {"F": {"guard": expression("context.n == 2"), "actions": "two"}}},
            },
            context={"n": 0},
        ),
        "E",
        "+a |E -a +b two => b",
    ),
)
