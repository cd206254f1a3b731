# ruff: noqa: E501  # two charts are easier to compare on one line each
"""Entities that are moved by the answers of a mapping; mappings that are wrong, incomplete or have needless answers."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import DefinitionError
from interlock.evolve.carry import CarryResult
from interlock.evolve.mapping.document import Mapping, mapping_of, read_mapping
from interlock.evolve.mapping.draft import draft_mapping
from interlock.evolve.mapping.mapped_carrier import MappedCarrier
from interlock.evolve.patch import apply_patch
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from tests.unit.evolve.pair_files import Pair
from tests.unit.evolve.test_carry import MOVE_MS, SAGA, START_MS, carrier, living

HEAD = "interlock-mapping: 1\nkind: k\n"


def mapped(before: str, after: str, mapping: str | Mapping) -> MappedCarrier:
    """A carrier between two charts with a mapping."""
    given = read_mapping(HEAD + mapping) if isinstance(mapping, str) else mapping
    return MappedCarrier(carrier(Pair("", before, after, ())), given)


def moved(by: MappedCarrier, snapshot: Snapshot, **options: Any) -> tuple[Snapshot, CarryResult]:
    """The snapshot of an entity that moves, checked like every other move."""
    result = by.carry(snapshot, time_ms=MOVE_MS, **options)
    assert result.step is not None, result.reasons
    assert result.patch is not None
    after = result.step.snapshot
    assert encode(apply_patch(snapshot, result.patch)) == encode(after)
    assert by.kernel.has(after)
    assert (snapshot.version + 1, by.written) == (after.version, after.revision)
    by.kernel.step(after, Event("unheard.of", time_ms=MOVE_MS))
    return after, result


def problems(before: str, after: str, mapping: str | Mapping) -> list[tuple[str, str]]:
    """The codes and messages of what is wrong with a mapping."""
    with pytest.raises(DefinitionError) as caught:
        mapped(before, after, mapping)
    return [(each.code, f"{each.message} {each.hint}") for each in caught.value.diagnostics]


# States

TWO = "context: {n: {type: integer, default: 0}}\nstates: {a: {on: {e: b, add: {actions: [{assign: {n: '= context.n + 1'}}]}}}, b: {}}\n"
ONE = "context: {n: {type: integer, default: 0}}\nstates: {c: {on: {e: d}}, d: {}}\n"


def test_several_states_become_one() -> None:
    by = mapped(TWO, ONE, "states: {a: c, b: c}\n")

    assert [("c",), ("c",)] == [moved(by, living(TWO, *each))[0].configuration for each in ([], ["e"])]


def test_one_state_becomes_several_by_condition() -> None:
    by = mapped(TWO, ONE, "states: {a: [{if: '= context.n > 1', to: d}, {to: c}], b: {to: d}}\n")

    assert ("c",) == moved(by, living(TWO))[0].configuration
    assert ("d",) == moved(by, living(TWO, "add", "add"))[0].configuration


def test_entities_stay_where_the_mapping_leaves_them_or_no_condition_is_true() -> None:
    by = mapped(TWO, ONE, "states: {a: {if: '= context.n > 1', to: d}, b: {stay: true}}\n")

    assert ("the state `a` stays: no condition of the mapping is true",) == by.carry(living(TWO), time_ms=0).reasons
    assert "leaves entities in it" in by.carry(living(TWO, "e"), time_ms=0).reasons[0]


def test_a_condition_that_fails_stops_its_entity() -> None:
    by = mapped(TWO, ONE, "states: {a: [{if: '= 1 / context.n > 1', to: d}, {to: c}], b: d}\n")

    assert any("division by zero" in each for each in by.carry(living(TWO), time_ms=0).reasons)


def test_a_condition_asks_for_states_of_the_old_chart() -> None:
    old = "states: {p: {type: parallel, states: {x: {states: {x1: {on: {e: x2}}, x2: {}}}, y: {states: {y1: {}}}}}}\n"
    new = "states: {q: {}, r: {}}\n"
    by = mapped(old, new, "states: {p: [{if: \"= In('x2')\", to: r}, {to: q}]}\n")

    assert [("q",), ("r",)] == [moved(by, living(old, *each))[0].configuration for each in ([], ["e"])]
    assert [("mapping.unknown", True)] == [
        (code, "x3" in text)
        for code, text in problems(old, new, "states: {p: [{if: \"= In('x3')\", to: r}, {to: q}]}\n")
    ]


def test_a_mapped_compound_state_enters_its_initial_one_if_nothing_happens_on_the_way() -> None:
    quiet = "states: {c: {states: {x: {}, y: {}}}}\n"
    busy = quiet.replace("x: {}", "x: {entry: [hello]}")
    old = "states: {a: {}}\n"

    assert ("c.x",) == moved(mapped(old, quiet, "states: {a: c}\n"), living(old))[0].configuration
    assert "`c.x` does something on entry" in problems(old, busy, "states: {a: c}\n")[0][1]


def test_regions_that_are_added_and_removed_are_mapped() -> None:
    two = "states: {p: {type: parallel, states: {x: {states: {x1: {on: {e: x2}}, x2: {}}}, y: {states: {y1: {}}}}}}\n"
    three = two.replace("y: {states", "z: {states: {z1: {on: {e: z2}}, z2: {}}}, y: {states")
    unanswered = problems(two, three, "")
    added = mapped(two, three, "states: {p.y.y1: [p.y.y1, p.z.z2]}\n".replace("[p", "{to: [p").replace("]", "]}"))
    removed = mapped(three, two, "states: {p.z: {to: []}}\n")

    assert any("region `p.z`" in text for _, text in unanswered)
    assert ("p.x.x2", "p.z.z2", "p.y.y1") == moved(added, living(two, "e"))[0].configuration
    assert ("p.x.x1", "p.y.y1") == moved(removed, living(three))[0].configuration


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ("states: {a: c}\n", "`b` have nowhere to go"),
        ("states: {a: c, b: end}\n", "it ends the entity"),
        ("states: {a: c, b: p}\n", "name the states in it"),
        ("states: {a: c, b: {to: [c, d]}}\n", "does not allow c, d to be active together"),
        ("states: {a: c, b: {to: []}}\n", "does not allow no state"),
        ("states: {a: c, b: p.x.x1}\n", "region `p.y`"),
        ("states: {a: c, b: s.s1}\n", "a step of a saga"),
        ("states: {a: c, b: s}\n", "no step of its saga"),
    ],
)
def test_a_mapping_that_leaves_an_entity_nowhere_is_refused(mapping: str, says: str) -> None:
    old = "states: {a: {on: {e: b}}, b: {}}\n"
    new = "states: {c: {on: {e: end}}, d: {}, end: {type: final}, p: {type: parallel, states: {x: {states: {x1: {}}}, y: {states: {y1: {}}}}}, s: {saga: {steps: [{id: s1, do: {src: x}}], onDone: d, onError: d}}}\n"
    found = problems(old, new, mapping)

    assert {"mapping.unanswered"} == {code for code, _ in found}
    assert any(says in text for _, text in found), found


def test_sagas_are_continued_or_left_alone() -> None:
    old = f"states: {SAGA}\n"
    new = old.replace("b: {on: {e: d}}", "b2: {on: {e: d}}").replace("onDone: b", "onDone: b2")
    by = mapped(old, new, "states: {b: b2}\n")

    assert living(old).invokes == moved(by, living(old))[0].invokes
    changed = old.replace("src: y", "src: z")
    assert "saga.call" in problems(old, changed, "")[0][1]
    stays = mapped(old, changed, "states: {a: {stay: true}}\n")
    assert stays.carry(living(old), time_ms=0).reasons
    added = problems("states: {a: {}}\n", f"states: {SAGA.replace('{a: {saga', '{a: {saga')}\n", "")
    assert any("no step of its saga" in text for _, text in added)


# Entry, invokes, timers

IDLE = "states: {a: {on: {e: b}}, b: {exit: [bye]}}\n"
BUSY = "states: {a: {on: {e: c}}, c: {entry: [{assign: {m: 2}}], after: {5m: a}, invoke: {id: job, src: work, onDone: a, onError: a}}}\ncontext: {m: {default: 1}}\n"


def test_what_an_entered_state_does_needs_an_answer() -> None:
    found = problems(IDLE, BUSY, "states: {b: c}\n")
    run = mapped(IDLE, BUSY, "states: {b: c}\nentered: {c: {entry: run, invokes: {job: start}}}\n")
    skip = mapped(IDLE, BUSY, "states: {b: c}\nentered: {c: {entry: skip, timers: {5m: skip}, invokes: {job: skip}}}\n")
    late = mapped(
        IDLE, BUSY, "states: {b: c}\nentered: {c: {entry: skip, timers: {5m: restart}, invokes: {job: skip}}}\n"
    )
    done, result = moved(run, living(IDLE, "e"), entered_ms={"b": START_MS})
    quiet, _ = moved(skip, living(IDLE, "e"))
    restarted, _ = moved(late, living(IDLE, "e"), entered_ms={"b": START_MS})

    assert [True, True] == ["entry actions" in found[0][1], "not started its invoke `job`" in found[1][1]]
    assert ({"m": 2}, ["job"], START_MS + 300_000) == (
        done.context,
        [each.id for each in done.invokes],
        done.timers[0].due_ms,
    )
    assert "the exit actions of `b`" in result.dropped or "b" in run.placer.place((("b", ("c",)),)).continued
    assert ({"m": 1}, (), ()) == (quiet.context, quiet.invokes, quiet.timers)
    assert MOVE_MS + 300_000 == restarted.timers[0].due_ms
    assert ("b",) == run.states_with_new_timers(living(IDLE, "e"))


def test_states_that_are_left_list_their_exit_actions() -> None:
    old = "states: {p: {exit: [bye], states: {x: {}, y: {}}}}\n"
    _, result = moved(mapped(old, "states: {c: {}, d: {}}\n", "states: {p.x: c, p.y: d}\n"), living(old))

    assert ("the exit actions of `p`",) == result.dropped


TIMED = "states: {a: {after: {2m: z}}, z: {}}\n"


@pytest.mark.parametrize(
    ("answer", "due", "since"),
    [
        ("{2m: 5m}", START_MS + 300_000, START_MS),
        ("{2m: {to: 5m, count: restart}}", MOVE_MS + 300_000, MOVE_MS),
        ("{2m: {to: 5m, count: deadline}}", START_MS + 120_000, None),
    ],
)
def test_a_timer_goes_on_as_the_mapping_says(answer: str, due: int, since: int | None) -> None:
    new = "states: {c: {after: {5m: z, 9m: y}}, y: {}, z: {}}\n"
    by = mapped(TIMED, new, f"states: {{a: c}}\ntimers: {{a: {answer}}}\nentered: {{c: {{timers: {{9m: skip}}}}}}\n")
    after, _ = moved(by, living(TIMED))

    assert [("after.5m.c", due, since)] == [(each.event, each.due_ms, each.since_ms) for each in after.timers]


def test_a_timer_is_dropped_or_needs_an_answer() -> None:
    new = "states: {c: {}, z: {}}\n"
    after, result = moved(mapped(TIMED, new, "states: {a: c}\ntimers: {a: {2m: drop}}\n"), living(TIMED))

    assert ((), ("the timer `after.2m.a`",)) == (after.timers, result.dropped)
    assert "no timer continues `2m` of `a`" in problems(TIMED, new, "states: {a: c}\n")[0][1].replace("after ", "")
    assert "`c` has no such timer" in problems(TIMED, new, "states: {a: c}\ntimers: {a: {2m: 3m}}\n")[0][1]
    split = "states: {c: {}, d: {}, z: {}}\n"
    left = "states: {a: [{if: '= true', to: c}, {to: d}]}\ntimers: {a: {2m: 3m}}\n"
    assert {"mapping.unanswered"} == {code for code, _ in problems(TIMED, split, left)}


def test_a_timer_of_a_state_that_keeps_its_name_is_kept_or_renamed_with_it() -> None:
    new = "renamed: {a: c}\nstates: {c: {after: {2m: z}}, y: {}}\n"
    after, _ = moved(mapped(TIMED, new.replace("2m: z", "2m: y"), "states: {z: y}\n"), living(TIMED))

    assert [("after.2m.c", START_MS + 120_000)] == [(each.event, each.due_ms) for each in after.timers]


def test_a_computed_delay_may_restart_and_cannot_be_moved() -> None:
    old = "context: {n: {type: integer, default: 5000}}\nstates: {a: {after: {'= context.n': z}}, z: {}}\n"
    new = "context: {n: {type: integer, default: 5000}}\nstates: {c: {after: {5m: z}}, z: {}}\n"
    restart = mapped(old, new, "states: {a: c}\ntimers: {a: {= context.n: {to: 5m, count: restart}}}\n")
    failing = new.replace("5m: z", "'= context.n / 0': z")

    assert MOVE_MS + 300_000 == moved(restart, living(old))[0].timers[0].due_ms
    assert mapped(old, new, "states: {a: c}\n").carry(living(old), time_ms=0).reasons
    assert (
        mapped("states: {a: {}}\n", failing.replace("5000}", "5}"), "states: {a: c}\n")
        .carry(living("states: {a: {}}\n"), time_ms=0)
        .reasons
    )


def test_timers_that_are_over_are_spread_by_the_id_of_the_entity() -> None:
    new = "states: {a: {after: {10s: z}}, z: {}}\n"
    by = carrier(Pair("", TIMED, new, ()))
    now = by.carry(living(TIMED), time_ms=MOVE_MS)
    spread = by.carry(living(TIMED), time_ms=MOVE_MS, spread_ms=600_000)

    assert now.step is not None
    assert spread.step is not None
    assert (1, 1, MOVE_MS) == (now.overdue, spread.overdue, now.step.snapshot.timers[0].due_ms)
    assert MOVE_MS < spread.step.snapshot.timers[0].due_ms < MOVE_MS + 600_000
    assert spread == by.carry(living(TIMED), time_ms=MOVE_MS, spread_ms=600_000)


WORK = "states: {a: {invoke: {id: job, src: work, onDone: z, onError: z}}, z: {}}\n"


def test_a_running_invoke_goes_on_in_the_state_that_continues_its_own() -> None:
    new = WORK.replace("{a: {", "{c: {")
    after, _ = moved(mapped(WORK, new, "states: {a: c}\n"), living(WORK))

    assert [("job", "c", 0)] == [(each.id, each.state, each.position) for each in after.invokes]
    lost = mapped(WORK, new.replace(", onError: z", ""), "states: {a: c}\n").carry(living(WORK), time_ms=0)
    assert "no transition takes `error.invoke.job`" in lost.reasons[0]


def test_a_function_cannot_leave_a_running_invoke_or_a_timer_without_an_answer() -> None:
    for old in (WORK, TIMED):
        by = by_functions(old, "states: {c: {}, z: {}}\n", states=lambda _: "c")
        assert "continues" in by.carry(living(old), time_ms=0).reasons[0]


def test_a_timer_of_a_state_that_is_left_is_dropped_and_others_stay_as_they_are() -> None:
    old = "states: {p: {type: parallel, states: {x: {states: {x1: {after: {2m: x2}}, x2: {}}}, y: {states: {y1: {after: {3m: y2}}, y2: {}}}, z: {states: {z1: {}}}}}}\n"
    new = old.replace("x: {states: {x1: {after: {2m: x2}}, x2: {}}}, ", "")
    after, result = moved(mapped(old, new, "states: {p.x: {to: []}}\ntimers: {p.x.x1: {2m: drop}}\n"), living(old))

    assert (["after.3m.p.y.y1"], 1) == ([each.event for each in after.timers], after.timers[0].version)
    assert ("the timer `after.2m.p.x.x1`",) == result.dropped


def test_a_running_invoke_is_cancelled_only_if_the_mapping_says_so() -> None:
    unnamed = WORK.replace("id: job, ", "")
    new = "states: {c: {}, z: {}}\n"
    after, result = moved(mapped(WORK, new, "states: {a: c}\ninvokes: {a: {job: cancel}}\n"), living(WORK))

    assert ((), ("the invoke `job`",)) == (after.invokes, result.dropped)
    assert result.step is not None
    assert ["invoke_cancel"] == [each.type for each in result.step.effects]
    assert "no invoke continues `job` of `a`" in problems(WORK, new, "states: {a: c}\n")[0][1]
    assert (
        "`a.0`"
        in problems(unnamed, unnamed.replace("{a: {", "{c: {"), "states: {a: c}\n")[0][1]
        + problems(unnamed, new, "states: {a: c}\n")[0][1]
    )


# Histories, events, data

PAST = "states: {a: {on: {e: b, h: b.past}}, b: {on: {e: a}, initial: x, states: {x: {on: {f: y}}, y: {}, past: {type: history, target: x}}}}\n"


def test_a_history_remembers_the_mapped_state_or_is_dropped() -> None:
    new = PAST.replace("x: {on: {f: y}}, y: {}", "x: {}, w: {}")
    outside = PAST.replace("x: {on: {f: y}}, y: {}", "x: {}")
    kept, _ = moved(mapped(PAST, new, "states: {b.y: b.w}\n"), living(PAST, "e", "f", "e"))
    dropped, result = moved(
        mapped(PAST, outside, "states: {b.y: a}\nhistory: {b.past: drop}\n"), living(PAST, "e", "f", "e")
    )

    assert {"b.past": ("b.w",)} == kept.history
    assert {"b.past": ("b.x",)} == moved(mapped(PAST, new, "states: {b.y: b.w}\n"), living(PAST, "e", "e"))[0].history
    assert (None, ("what `b.past` remembers",)) == (dropped.history, result.dropped)
    for answer in ("a", "{stay: true}", "[{if: '= true', to: b.x}, {to: a}]"):
        stays = mapped(PAST, outside, f"states: {{b.y: {answer}}}\n").carry(living(PAST, "e", "f", "e"), time_ms=0)
        assert "history: {b.past: drop}" in stays.reasons[0]


def test_pending_events_are_dropped_by_name() -> None:
    old = "unhandled: defer\nevents: {e: {}, f: {}, g: {}}\nstates: {a: {entry: [{send: {event: g, delay: 2m}}], on: {g: b}}, b: {on: {e: a, f: a}}}\n"
    new = "unhandled: defer\nevents: {f: {}, g: {}}\nstates: {c: {}, b: {on: {f: c}}}\n"
    snapshot = living(old, "e", "f")
    by = mapped(old, new, "states: {a: c}\nevents: {e: drop, g: drop}\n")
    after, result = moved(by, snapshot)

    assert ((), ()) == (after.deferred, after.timers)
    assert ("the deferred event `e`", "the delayed event `g`") == result.dropped
    assert result.step is not None
    assert ["timer_cancel", "send"] == [
        each.type for each in result.step.effects
    ]  # f returns: the state is another one
    assert mapped(old, new, "states: {a: c}\n").carry(snapshot, time_ms=0).reasons


def test_deferred_events_stay_deferred_while_the_state_is_the_same() -> None:
    old = "unhandled: defer\nstates: {a: {on: {g: b}}, b: {on: {e: a}}}\n"
    after, _ = moved(
        mapped(old, old.replace("b: {on", "c: {on").replace("g: b", "g: c"), "states: {b: c}\n"), living(old, "e")
    )

    assert ["e"] == [each.name for each in after.deferred]


def test_fields_are_computed_from_the_old_context() -> None:
    old = "context: {net: {type: integer, default: 5}, tax: {type: integer, default: 2}}\nstates: {a: {}}\n"
    new = "context: {total: {type: integer, required: true}, note: {type: object, default: {}}}\nstates: {a: {}}\n"
    by = mapped(
        old,
        new,
        "context: {total: '= context.net + context.tax', note: {by: '= entity.id', at: '= event.time_ms', list: [1, \"\\\\=x\"]}}\n",
    )
    after, _ = moved(by, living(old))

    assert {"total": 7, "note": {"by": "k/1", "at": MOVE_MS, "list": [1, "=x"]}} == after.context
    assert "required" in problems(old, new, "")[0][1]
    wrong = mapped(old, new, "context: {total: '= str(context.net)'}\n").carry(living(old), time_ms=0)
    assert "the value of the mapping is invalid" in wrong.reasons[0]
    failing = mapped(old, new, "context: {total: '= context.net / 0'}\n").carry(living(old), time_ms=0)
    assert "the value of `total` of the mapping failed" in failing.reasons[0]


def test_a_narrowed_field_needs_an_answer() -> None:
    old = "context: {n: {type: integer, default: 2, max: 9}}\nstates: {a: {}}\n"
    new = old.replace("max: 9", "max: 3")
    by = mapped(old, new, "context: {n: '= min(context.n, 1)'}\n")

    assert "accepts fewer values" in problems(old, new, "")[0][1]
    assert {"n": 1} == moved(by, living(old))[0].context


def test_late_fields_of_an_entered_state_get_their_first_value() -> None:
    old = "binding: late\nstates: {a: {}}\n"
    new = "binding: late\nstates: {c: {context: {m: {default: 4}}}}\n"
    after, _ = moved(mapped(old, new, "states: {a: c}\n"), living(old))

    assert ({"m": 4}, ("c",)) == (after.context, after.entered)


# Functions in Python


def by_functions(before: str, after: str, **functions: Any) -> MappedCarrier:
    """A carrier with the functions of a mapping in Python."""
    return mapped(before, after, mapping_of({"interlock-mapping": 1, "kind": "k"}, source="m.py", **functions))


@pytest.mark.parametrize(
    ("answer", "configuration"),
    [(["c", "p.y.y1"], None), (["d"], ("d",)), ("d", ("d",)), (None, None), ([1], None), (["zzz"], None)],
)
def test_a_function_names_the_states(answer: Any, configuration: tuple[str, ...] | None) -> None:
    result = by_functions(TWO, ONE, states=lambda _: answer).carry(living(TWO), time_ms=MOVE_MS)

    assert configuration == (None if result.step is None else result.step.snapshot.configuration)
    assert bool(result.reasons) == (configuration is None)


def test_a_function_adds_a_region_or_keeps_states() -> None:
    two = "states: {p: {type: parallel, states: {x: {states: {x1: {on: {e: x2}}, x2: {}}}, y: {states: {y1: {}}}}}}\n"
    three = two.replace("y: {states", "z: {states: {z1: {}}}, y: {states")
    added = by_functions(two, three, states=lambda each: [*each["configuration"], "p.z.z1"])
    swapped = by_functions(two, two.replace("x2", "x3"), states=lambda _: ["p.x.x3", "p.y.y1"])

    assert ("p.x.x1", "p.z.z1", "p.y.y1") == moved(added, living(two))[0].configuration
    assert ("p.x.x3", "p.y.y1") == moved(swapped, living(two, "e"))[0].configuration


def test_a_function_computes_the_context_from_a_copy() -> None:
    old = "context: {n: {default: [1]}}\nstates: {a: {}}\n"
    new = "context: {n: {default: []}, m: {required: true}}\nstates: {a: {}}\n"

    def change(entity: dict[str, Any]) -> dict[str, Any]:
        entity["context"]["n"].append(2)
        return {"m": entity["context"]["n"]}

    after, _ = moved(by_functions(old, new, context=change), living(old))
    assert {"n": [1], "m": [1, 2]} == after.context


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda _: 1 / 0, "raised ZeroDivisionError in "),
        (lambda _: [], "must return a mapping"),
        (lambda _: {"zzz": 1}, "no field `zzz`"),
        (lambda _: {"n": object()}, "plain JSON"),
    ],
)
def test_a_function_that_fails_stops_its_entity_only(function: Any, says: str) -> None:
    result = by_functions(TWO, TWO, context=function).carry(living(TWO), time_ms=0)

    assert any(says in each for each in result.reasons) or "plain" in says
    assert result.step is None
    raising = by_functions(TWO, ONE, states=lambda each: each["nothing"]).carry(living(TWO), time_ms=0)
    assert "raised KeyError" in raising.reasons[0]


# What is wrong with a mapping


def test_what_no_mapping_answers_is_named_and_ended_entities_stay() -> None:
    old = "states: {a: {always: z}, z: {type: final}}\n"
    by = mapped(old, old.replace("{a:", "{c:"), "states: {a: c}\n")

    assert ("the entity has ended (done)",) == by.carry(living(old), time_ms=0).reasons
    assert "no mapping answers it" in problems(TWO, "dialect: scxml\n" + TWO, "")[0][1]


@pytest.mark.parametrize(
    ("mapping", "code", "says"),
    [
        ("states: {aa: c}\n", "mapping.unknown", "did you mean"),
        ("states: {a: cc, b: d}\n", "mapping.unknown", "no state `cc`"),
        ("states: {a: c, b: d}\ntimers: {zz: {1m: drop}}\n", "mapping.unknown", "no state `zz`"),
        ("states: {a: c, b: d}\ntimers: {a: {1m: drop}}\n", "mapping.unknown", "no timer `1m`"),
        ("states: {a: c, b: d}\ninvokes: {zz: {job: cancel}}\n", "mapping.unknown", "no state `zz`"),
        ("states: {a: c, b: d}\ninvokes: {a: {job: cancel}}\n", "mapping.unknown", "no invoke `job`"),
        ("states: {a: c, b: d}\nentered: {zz: {entry: run}}\n", "mapping.unknown", "no state `zz`"),
        (
            "states: {a: c, b: d}\nentered: {c: {timers: {1m: skip}, invokes: {job: skip}}}\n",
            "mapping.unknown",
            "no invoke `job`",
        ),
        ("states: {a: c, b: d}\nhistory: {zz: drop}\n", "mapping.unknown", "no history `zz`"),
        ("states: {a: c, b: d}\ncontext: {zz: 1}\n", "mapping.unknown", "no field `zz`"),
        ("states: {a: c, b: d}\ncontext: {n: '= context.zz'}\n", "mapping.unknown", "no field `zz`"),
        ("states: {a: {if: '= context.zz', to: c}, b: d}\n", "mapping.unknown", "no field `zz`"),
        ("states: {a: c, b: d}\nentered: {c: {entry: run}}\n", "mapping.unused", "no entity needs the answer"),
    ],
)
def test_a_mapping_with_an_unknown_name_or_a_useless_answer_is_refused(mapping: str, code: str, says: str) -> None:
    found = problems(TWO, ONE, mapping)

    assert any(each == code and says in text for each, text in found), found


def test_answers_that_nothing_needs_are_named() -> None:
    new = WORK.replace("{a: {", "{c: {after: {1m: z}, ")
    found = problems(WORK, new, "states: {a: c}\ninvokes: {a: {job: cancel}}\nentered: {c: {invokes: {job: start}}}\n")

    assert ["mapping.unused"] * 2 == [code for code, _ in found]


def test_a_mapping_of_another_kind_is_refused() -> None:
    other = mapping_of({"interlock-mapping": 1, "kind": "other", "states": {"a": "c", "b": "d"}})

    assert "for `other`" in problems(TWO, ONE, other)[0][1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "mapping of keys"),
        ("{", "yaml"),
        ("kind: k\n", "version of the mapping"),
        ("interlock-mapping: 2\nkind: k\n", "version of the mapping"),
        ("interlock-mapping: 1\n", "`kind` is missing"),
        (f"{HEAD}state: {{}}\n", "unknown key `state`"),
        (f"{HEAD}states: []\n", "`states` must be a mapping"),
        (f"{HEAD}states: {{a: 1}}\n", "`states.a` is invalid"),
        (f"{HEAD}states: {{a: []}}\n", "1 to 100 places"),
        (f"{HEAD}states: {{a: {{if: '= true'}}}}\n", "expected `to`"),
        (f"{HEAD}states: {{a: {{to: b, stay: true}}}}\n", "expected `to`"),
        (f"{HEAD}states: {{a: [{{to: b}}, {{to: c}}]}}\n", "must be the last one"),
        (f"{HEAD}states: {{a: {{if: yes, to: c}}}}\n", "must be an expression"),
        (f"{HEAD}states: {{a: {{if: '= (', to: c}}}}\n", "is not an expression"),
        (f"{HEAD}context: {{a: [{{b: '= ('}}]}}\n", "is not an expression"),
        (f"{HEAD}timers: {{a: {{1m: {{to: 2m, count: soon}}}}}}\n", "`timers.a` is invalid"),
        (f"{HEAD}from: 3\n", "`from` is invalid"),
    ],
)
def test_a_mapping_that_is_not_one_is_refused(text: str, says: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        read_mapping(text, source="m.yaml")
    assert any(says in f"{each.code} {each.message}" for each in caught.value.diagnostics), str(caught.value)
    assert "in the mapping" in str(caught.value)


def test_a_mapping_says_for_which_revisions_it_is() -> None:
    assert [None, ("1.0",), ("1.0", "1.1")] == [
        read_mapping(HEAD + each).revisions for each in ("states:\n", "from: '1.0'\n", "from: ['1.0', '1.1']\n")
    ]


# Drafts


def test_a_draft_fills_in_what_is_safe_and_asks_for_the_rest() -> None:
    old = "states: {a: {on: {e: b, f: w}}, b: {after: {2m: a, 3m: w}, on: {e: a}}, w: {invoke: {id: job, src: work, onDone: a, onError: a}}, x: {}, y: {}}\n"
    new = "context: {m: {type: integer, required: true}}\nstates: {a: {on: {e: c, f: a}}, c: {after: {2m: a, 3m: a}, on: {e: a}}, d: {entry: [hello], after: {9m: a}}}\n".replace(
        "3m: a", "'180s': d"
    ).replace("on: {e: c, f: a}", "on: {e: c, f: d}")
    text, questions = draft_mapping(carrier(Pair("", old, new, ())), "1.0.0")
    draft = read_mapping(text)

    assert ("1.0.0",) == draft.revisions
    assert {"b", "w", "x", "y"} >= set(draft.states)
    assert any("`w` have nowhere to go" in each.text for each in questions)
    assert "# x: " in text
    assert '# m: "= …"' in text


def test_a_draft_pairs_states_with_the_same_content() -> None:
    old = "states: {a: {on: {e: late}}, late: {on: {e: a}}}\n"
    new = old.replace("late", "overdue")
    text, questions = draft_mapping(carrier(Pair("", old, new, ())), "1.0")

    assert () == questions
    assert ("overdue",) == moved(mapped(old, new, read_mapping(text)), living(old, "e"))[0].configuration


def test_a_draft_asks_for_entry_invokes_timers_and_what_nothing_answers() -> None:
    old = "states: {p: {after: {1m: z, 2m: z}, invoke: {id: job, src: work, onDone: z, onError: z}}, z: {}}\n"
    new = "dialect: scxml\nstates: {p: {entry: [hello], after: {3m: {target: z, actions: [x]}, 4m: {target: z, actions: [y]}}, invoke: {id: '2', src: work, onDone: z, onError: z}}, z: {}}\n"
    text, _ = draft_mapping(carrier(Pair("", old, new, ())), "1.0")

    assert '# p: {entry: skip, invokes: {"2": start}}' in text
    assert "# p: {1m: drop, 2m: drop}" in text
    assert "# p: {job: cancel}" in text
    assert "# chart.dialect" in text
    read_mapping(text)
