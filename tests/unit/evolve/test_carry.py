# ruff: noqa: E501  # two charts are easier to compare on one line each
"""Entities that are carried to another revision: what they keep, what ends and is listed, and what stops them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from interlock.assemble.charts import loads
from interlock.errors import RejectedError, UsageError
from interlock.evolve.carry import Carrier, CarryResult
from interlock.evolve.diff import diff_documents
from interlock.evolve.patch import apply_patch, make_patch
from interlock.kernel.step import Kernel
from interlock.model.document.field import field_problem
from interlock.model.driver_events import invoke_done, timer_fired
from interlock.model.encoding.codec import decode_snapshot, encode
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from tests.conformance.roundtrip.senders import ChartSender, Vocabulary
from tests.conformance.roundtrip.trips import chart_of
from tests.conformance.roundtrip.twins import made_assigns, made_guards
from tests.properties.charts import document as random_document
from tests.unit.evolve.pair_files import HEAD, Pair, all_pairs
from tests.unit.evolve.test_diff import edited
from tests.unit.evolve.test_identity import ROWS

PAIRS = all_pairs()
START_MS, MOVE_MS = 1_000, 61_000


def kernel_of(text: str) -> Kernel:
    """The kernel of a chart without its first two lines."""
    chart = loads(HEAD + text).chart
    return Kernel(chart, guards=made_guards(chart), assigns=made_assigns(chart, chart))


def carrier(pair: Pair) -> Carrier:
    """A carrier between the charts of a pair."""
    return Carrier(*pair.documents(), kernel_of(pair.after))


def check(before: Snapshot, result: CarryResult, by: Carrier) -> Snapshot:
    """Check what every carried entity keeps, and return its snapshot."""
    assert result.step is not None, result.reasons
    assert result.patch is not None
    after = result.step.snapshot
    assert encode(apply_patch(before, result.patch)) == encode(after)
    assert decode_snapshot(encode(after)) == after
    assert (before.version + 1, by.new.revision) == (after.version, after.revision)
    if after.ended is None:
        assert by.kernel.has(after)
        for name, field in by.new_fields.items():
            if name in after.context and after.context[name] is not None:
                assert field_problem(after.context[name], field) is None
        by.kernel.step(after, Event("unheard.of", time_ms=MOVE_MS))
    left = [each for each in before.configuration if by.names.get(each, each) not in after.configuration]
    if not left and after.ended is None:
        _check_obligations(before, after, result, by)
    return after


def _check_obligations(before: Snapshot, after: Snapshot, result: CarryResult, by: Carrier) -> None:
    """Every invoke, deferred event and timer continues, or is listed as ended."""
    assert {(each.id, each.key) for each in before.invokes} <= {(each.id, each.key) for each in after.invokes}
    assert before.deferred == after.deferred
    sends = [each for each in before.timers if each.state is None]
    assert all(each in after.timers for each in sends)
    ended = sum(each.startswith("the timer") for each in result.dropped)
    states = [by.names.get(each.state or "", each.state) for each in before.timers if each.state is not None]
    kept = [each.state for each in after.timers if each.state is not None]
    assert len(states) - ended <= len(kept)


# Every pair of charts, with random entities


def snapshots(kernel: Kernel, seeds: int) -> list[Snapshot]:
    """Snapshots of random lives on a chart, without those that it refuses to start."""
    found = []
    for seed in range(seeds):
        sender = ChartSender(Vocabulary(kernel.chart), Random(seed))
        try:
            step = kernel.start(sender.context(), entity="k/1", time_ms=START_MS)
        except RejectedError:
            continue
        for _ in range(Random(seed).randrange(5)):
            step = kernel.step(step.snapshot, sender.event(step.snapshot))
        found.append(step.snapshot)
    return found


@pytest.mark.parametrize("name", PAIRS)
def test_an_entity_is_carried_whole_or_not_at_all(name: str) -> None:
    """A safe change stops no living entity."""
    pair = PAIRS[name]
    by = carrier(pair)
    for each in snapshots(kernel_of(pair.before), 8):
        result = by.carry(each, time_ms=MOVE_MS)
        if result.step is not None:
            check(each, result, by)
        else:
            assert result.reasons
            assert each.ended is not None or by.diff.review not in ("none", "safe"), (
                each.configuration,
                result.reasons,
            )


# Conditions one by one: the same change with an entity that it stops, and one that it does not

SAGA = "{a: {saga: {steps: [{id: s1, do: {src: x}, compensate: {src: u}}, {id: s2, do: {src: y}}], onDone: b, onError: c}}, b: {on: {e: d}}, c: {}, d: {}}"
WAITS = "{a: {invoke: {id: job, src: work, onDone: b, onError: b}, on: {e: b}}, b: {}}"

CONDITIONS: list[tuple[str, str, str, list[str], list[str]]] = [
    # what, old, new, events to an entity that stays, events to one that is carried
    ("state.removed", "{a: {on: {e: b, f: c}}, b: {on: {f: c}}, c: {}}", "{a: {on: {e: c, f: c}}, c: {}}", ["e"], ["f"]),
    ("state.final", "{a: {on: {e: b, f: c}}, b: {on: {e: c}}, c: {}}", "{a: {on: {e: b, f: c}}, b: {type: final}, c: {}}", ["e"], ["f"]),
    ("state.entry", "{a: {on: {e: b}}, b: {on: {e: a}}}", "{a: {on: {e: b}}, b: {entry: [x], on: {e: a}}}", ["e"], []),
    ("invoke.added", "{a: {on: {e: b}}, b: {on: {e: a}}}", "{a: {on: {e: b}}, b: {invoke: {id: i, src: x}, on: {e: a}}}", ["e"], []),
    ("region.added", "{a: {on: {e: b}}, b: {type: parallel, states: {x: {}, y: {}}}}", "{a: {on: {e: b}}, b: {type: parallel, states: {x: {}, y: {}, z: {}}}}", ["e"], []),
    ("region.removed", "{a: {on: {e: b}}, b: {type: parallel, states: {x: {}, y: {}, z: {}}}}", "{a: {on: {e: b}}, b: {type: parallel, states: {x: {}, y: {}}}}", ["e"], []),
    ("state.parallel", "{a: {on: {e: b}}, b: {states: {x: {}, y: {}}}}", "{a: {on: {e: b}}, b: {type: parallel, states: {x: {}, y: {}}}}", ["e"], []),
    ("state.flattened", "{a: {on: {e: b}}, b: {states: {x: {}, y: {}}}}", "{a: {on: {e: b}}, b: {}}", ["e"], []),
    ("state.moved", "{a: {on: {e: b}}, b: {id: b}, c: {states: {x: {}}}}", "{a: {on: {e: '#b'}}, c: {states: {x: {}, b: {id: b}}}}", ["e"], []),
    ("timer.ambiguous", "{a: {on: {e: b}}, b: {after: {2s: a, 3s: c}}, c: {}}", "{a: {on: {e: b}}, b: {after: {4s: {target: a, actions: [x]}, 5s: {target: c, actions: [x]}}}, c: {}}", ["e"], []),
    ("saga.added", "{a: {on: {e: b}}, b: {on: {e: a}}}", "{a: {on: {e: b}}, b: {on: {e: a}, saga: {steps: [{id: s, do: {src: x}}], onDone: a, onError: a}}}", ["e"], []),
    ("saga.step_inserted", SAGA, SAGA.replace("[{id: s1", "[{id: s0, do: {src: w}, compensate: {src: u}}, {id: s1"), [], []),
    ("saga.call", SAGA, SAGA.replace("src: y", "src: z"), [], []),
    ("does something on entry", "{a: {on: {e: b}}, b: {on: {e: a}}}", "{a: {on: {e: b}}, b: {on: {e: a}, states: {x: {entry: [y]}}}}", ["e"], []),
    ("no equal one", WAITS, WAITS.replace("src: work", "src: toil"), [], ["e"]),
    ("no equal one", WAITS, "{a: {on: {e: b}}, b: {}}", [], ["e"]),
    ("no transition takes", WAITS, WAITS.replace(", onError: b", ""), [], ["e"]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "old", "new", "stays", "goes"), CONDITIONS, ids=[each[0] for each in CONDITIONS])
def test_a_change_stops_exactly_the_entities_it_concerns(
    what: str, old: str, new: str, stays: list[str], goes: list[str]
) -> None:
    before, after = f"states: {old}\n", f"states: {new}\n"
    by = carrier(Pair(what, before, after, ()))
    stopped = by.carry(living(before, *stays), time_ms=MOVE_MS)

    assert stopped.step is None
    assert any(what in each for each in stopped.reasons), stopped.reasons
    if goes != stays:
        snapshot = living(before, *goes)
        check(snapshot, by.carry(snapshot, time_ms=MOVE_MS), by)


def living(text: str, *events: str | Event, context: dict[str, Any] | None = None) -> Snapshot:
    """An entity of a chart after some events."""
    kernel = kernel_of(text)
    snapshot = kernel.start(context or {}, entity="k/1", time_ms=START_MS).snapshot
    for each in events:
        snapshot = kernel.step(snapshot, each if isinstance(each, Event) else Event(each, time_ms=START_MS)).snapshot
    return snapshot


def carried(before: str, after: str, snapshot: Snapshot, **options: Any) -> tuple[Snapshot, CarryResult]:
    """An entity carried from one chart to another."""
    by = carrier(Pair("", before, after, ()))
    result = by.carry(snapshot, time_ms=MOVE_MS, **options)
    return check(snapshot, result, by), result


def refused(before: str, after: str, snapshot: Snapshot) -> tuple[str, ...]:
    """Why an entity cannot be carried."""
    result = carrier(Pair("", before, after, ())).carry(snapshot, time_ms=MOVE_MS)
    assert (None, None) == (result.step, result.patch)
    return result.reasons


# Timers


def test_an_unchanged_timer_stays_as_it_is() -> None:
    before, after = "states: {a: {after: {2m: b}}, b: {}}\n", "states: {a: {after: {2m: b}, on: {e: b}}, b: {}}\n"
    snapshot = living(before)
    moved, result = carried(before, after, snapshot)

    assert snapshot.timers == moved.timers
    assert result.step is not None
    assert () == result.step.effects


@pytest.mark.parametrize(("delay", "due"), [("3m", START_MS + 180_000), ("90s", START_MS + 90_000), ("10s", MOVE_MS)])
def test_a_changed_delay_counts_from_entry(delay: str, due: int) -> None:
    """One that is over by then is due immediately; the timer of the move is fired as any other."""
    before, after = "states: {a: {after: {2m: b}}, b: {}}\n", f"states: {{a: {{after: {{{delay}: b}}}}, b: {{}}}}\n"
    moved, result = carried(before, after, living(before))

    assert [(due, moved.version, START_MS)] == [(each.due_ms, each.version, each.since_ms) for each in moved.timers]
    assert result.step is not None
    assert ["timer_cancel", "timer"] == [each.type for each in result.step.effects]
    fired = kernel_of(after).step(moved, timer_fired(moved.timers[0], time_ms=due))
    assert ("b",) == fired.snapshot.configuration


def test_a_new_timer_counts_from_entry_if_that_is_known() -> None:
    before, after = "states: {a: {on: {e: b}}, b: {}}\n", "states: {a: {on: {e: b}, after: {2m: b}}, b: {}}\n"
    known, _ = carried(before, after, living(before), entered_ms={"a": 31_000})
    unknown, _ = carried(before, after, living(before))

    assert (151_000, MOVE_MS + 120_000) == (known.timers[0].due_ms, unknown.timers[0].due_ms)


def test_the_root_has_timers_too() -> None:
    before = "after: {2m: b}\nstates: {a: {}, b: {}}\n"
    moved, _ = carried(before, before.replace("2m", "3m"), living(before))

    assert [START_MS + 180_000] == [each.due_ms for each in moved.timers]


def test_a_removed_timer_is_cancelled_and_listed() -> None:
    before, after = "states: {a: {on: {e: b}, after: {2m: b}}, b: {}}\n", "states: {a: {on: {e: b}}, b: {}}\n"
    moved, result = carried(before, after, living(before))

    assert ((), ("the timer `after.2m.a`",)) == (moved.timers, result.dropped)


def test_a_computed_delay_moves_only_if_its_length_is_known() -> None:
    computed = "context: {n: {type: integer, default: 5000}}\nstates: {a: {after: {'= context.n': b}}, b: {}}\n"
    constant = "context: {n: {type: integer, default: 5000}}\nstates: {a: {after: {2m: b}}, b: {}}\n"

    assert refused(computed, constant, living(computed))
    moved, _ = carried(constant, computed, living(constant))
    assert START_MS + 5_000 < MOVE_MS == moved.timers[0].due_ms
    spelled, _ = carried(computed, computed.replace("= context.n", "=  context.n"), living(computed))
    assert START_MS + 5_000 == spelled.timers[0].due_ms


def test_a_delayed_send_stays_and_needs_a_taker() -> None:
    before = "states: {a: {entry: [{send: {event: e, delay: 2m}}], on: {e: b, f: b}}, b: {}}\n"
    kept = before.replace("b: {}", "b: {}, c: {}")
    snapshot = living(before)

    assert snapshot.timers == carried(before, kept, snapshot)[0].timers
    assert refused(before, before.replace("e: b, f: b", "f: b"), snapshot)


def test_a_delayed_send_that_is_refused_stops_the_entity() -> None:
    before = "context: {n: {default: x}}\nevents: {e: {}, f: {}}\nstates: {a: {entry: [{send: {event: e, delay: 2m, data: {n: '= context.n'}}}], on: {e: b, f: b}}, b: {}}\n"
    after = before.replace("e: {}, f", "e: {payload: {n: integer}}, f")

    assert refused(before, after, living(before))
    carried(before, after, living(before, context={"n": 1}))


# States, histories, invokes


def test_a_renamed_state_takes_its_timers_and_history_with_it() -> None:
    old = "states: {a: {on: {e: b, h: b.past}}, b: {after: {2m: a}, on: {e: a}, states: {x: {on: {f: y}}, y: {}, past: {type: history, target: x}}}}\n"
    new = "renamed: {b: c}\n" + old.replace("b: {after", "c: {after").replace("e: b, h: b.past", "e: c, h: c.past")
    inside, _ = carried(old, new, living(old, "e", "f"))
    outside, _ = carried(old, new, living(old, "e", "f", "e"))

    assert ("c.y",) == inside.configuration
    assert [("after.2m.c", "c", START_MS + 120_000)] == [
        (each.event, each.state, each.due_ms) for each in inside.timers
    ]
    assert {"c.past": ("c.y",)} == outside.history
    assert ("c.y",) == kernel_of(new).step(outside, "h").snapshot.configuration


def test_a_renamed_state_with_an_unnamed_invoke_waits_for_it() -> None:
    """The id of the invoke contains the name of the state, and its result would not be recognised."""
    old = "states: {a: {invoke: {src: work, onDone: b, onError: b}, on: {e: b}}, b: {}}\n"
    new = "renamed: {a: c}\n" + old.replace("{a: {inv", "{c: {inv")
    named = old.replace("src: work", "id: job, src: work")

    assert refused(old, new, living(old))
    moved, _ = carried(named, "renamed: {a: c}\n" + named.replace("{a: {inv", "{c: {inv"), living(named))
    assert [("job", "c")] == [(each.id, each.state) for each in moved.invokes]


def test_a_running_invoke_follows_its_id_to_another_position() -> None:
    old = "states: {a: {invoke: {id: job, src: work, onDone: b, onError: b}}, b: {}}\n"
    new = "states: {a: {invoke: [{id: job, src: work, onDone: b, onError: b}, {id: k, src: x}]}, b: {}}\n"
    two = "states: {a: {invoke: [{id: i, src: x}, {id: job, src: work}], on: {e: b}}, b: {}}\n"
    swapped = "states: {a: {invoke: [{id: job, src: work}, {id: i, src: x}], on: {e: b}}, b: {}}\n"

    assert refused(old, new, living(old))  # the added invoke would be skipped
    moved, _ = carried(two, swapped, living(two))
    assert {"i": 1, "job": 0} == {each.id: each.position for each in moved.invokes}


def test_a_history_that_remembers_a_removed_state_stops_the_entity() -> None:
    old = "states: {a: {on: {e: b}}, b: {on: {e: a}, states: {x: {on: {f: y}}, y: {}, past: {type: history, target: x}}}}\n"
    new = old.replace("x: {on: {f: y}}, y: {}", "x: {}")

    assert refused(old, new, living(old, "e", "f", "e"))
    assert {"b.past": ("b.x",)} == carried(old, new, living(old, "e", "e"))[0].history
    moved, result = carried(old, old.replace(", past: {type: history, target: x}", ""), living(old, "e", "f", "e"))
    assert (None, ("what `b.past` remembers",)) == (moved.history, result.dropped)


def test_a_state_with_new_children_enters_the_initial_one() -> None:
    before, after = (
        "states: {a: {on: {e: a2}}, a2: {}}\n",
        "states: {a: {on: {e: a2}, states: {x: {}, y: {}}}, a2: {}}\n",
    )

    assert ("a.x",) == carried(before, after, living(before))[0].configuration


def test_a_completed_step_of_a_saga_stops_the_entity_outside_too() -> None:
    """Its compensation may still be asked for."""
    old = f"states: {SAGA}\n"
    kernel = kernel_of(old)
    snapshot = kernel.start({}, entity="k/1", time_ms=START_MS).snapshot
    for _ in range(2):
        running = snapshot.invokes[0]
        snapshot = kernel.step(snapshot, invoke_done(running.id, running.key, None, time_ms=START_MS)).snapshot
    assert ("b",) == snapshot.configuration

    assert refused(old, old.replace(", compensate: {src: u}", ""), snapshot)
    carried(old, old.replace("compensate: {src: u}", "compensate: {src: v}"), snapshot)


def test_a_step_that_is_added_at_the_end_of_a_saga_stops_nobody() -> None:
    old = f"states: {SAGA}\n"
    new = old.replace(
        "{id: s2, do: {src: y}}]", "{id: s2, do: {src: y}, compensate: {src: u}}, {id: s3, do: {src: z}}]"
    )
    moved, _ = carried(old, new, living(old))
    kernel = kernel_of(new)
    for expected in ("a.s2", "a.s3", "b"):
        running = moved.invokes[0]
        moved = kernel.step(moved, invoke_done(running.id, running.key, None, time_ms=MOVE_MS)).snapshot
        assert (expected,) == moved.configuration


def test_a_state_that_is_done_already_would_miss_a_new_on_done() -> None:
    old = "states: {a: {on: {f: b}, states: {x: {on: {e: y}}, y: {type: final}}}, b: {}}\n"
    new = old.replace("a: {on", "a: {onDone: b, on")

    assert refused(old, new, living(old, "e"))
    carried(old, new, living(old))


# Data and events


def test_fields_are_filled_checked_and_dropped() -> None:
    before = "context: {a: {type: integer, default: 3}, old: {default: 1}}\nstates: {s: {on: {e: t}}, t: {}}\n"
    after = before.replace(
        "old: {default: 1}",
        "n: {type: array, default: [1]}, m: {type: integer, default: '= context.a + 1'}, z: {type: string, nullable: true}",
    )
    moved, result = carried(before, after, living(before))

    assert {"a": 3, "n": [1], "m": 4, "z": None} == moved.context
    assert ("the field `old`",) == result.dropped
    assert result.patch is not None
    assert {"set": {"n": [1], "m": 4, "z": None}, "unset": ["old"]} == result.patch["context"]


def test_a_name_that_no_chart_declares_is_kept() -> None:
    """Such as the variable of a loop: a later guard may read it. A name that the new chart declares is checked."""
    loop = "{foreach: {in: '= context.xs', item: last, do: []}}"
    before = (
        "dialect: scxml\ncontext: {xs: {type: array, default: [1, 2]}}\n"
        f"states: {{s: {{entry: [{loop}], on: {{e: t}}}}, t: {{}}}}\n"
    )
    snapshot = living(before)
    moved, result = carried(before, before.replace("e: t", "e: t, f: t"), snapshot)
    declared = before.replace("context: {", "context: {last: {type: string, default: ''}, ").replace(
        "e: t", "e: t, f: t"
    )

    assert 2 == snapshot.context["last"]
    assert snapshot.context == moved.context
    assert () == result.dropped
    assert refused(before, declared, snapshot)


def test_a_value_decides_whether_a_narrower_field_stops_the_entity() -> None:
    before = "context: {a: {type: integer, default: 3}}\nstates: {s: {on: {e: t}}, t: {}}\n"
    after = before.replace("type: integer", "type: integer, max: 5")

    assert refused(before, after, living(before, context={"a": 6}))
    assert {"a": 5} == carried(before, after, living(before, context={"a": 5}))[0].context
    assert refused(before, before.replace("{a:", "{must: {type: string, required: true}, a:"), living(before))


def test_late_fields_belong_to_states_that_were_entered() -> None:
    before = "binding: late\nstates: {s: {on: {e: t}}, t: {on: {e: s}}}\n"
    after = "binding: late\nstates: {s: {on: {e: t}}, t: {context: {n: {type: integer, default: 1}}, on: {e: s}}}\n"

    assert {} == carried(before, after, living(before))[0].context


def test_fields_bound_early_do_not_start_again_under_late_binding() -> None:
    early = "states: {s: {on: {e: t}}, t: {context: {n: {type: integer, default: 1}}, on: {g: {actions: [{assign: {n: 2}}]}, e: s}}}\n"
    moved, _ = carried(early, "binding: late\n" + early, living(early, "e", "g", "e"))
    again = kernel_of("binding: late\n" + early).step(moved, "e").snapshot

    assert (("t",), {"n": 2}) == (again.configuration, again.context)
    late = living("binding: late\n" + early)
    assert ({}, {"n": 1}) == (late.context, carried("binding: late\n" + early, early, late)[0].context)


def test_deferred_events_stay_in_order_or_stop_the_entity() -> None:
    before = "unhandled: defer\nstates: {s: {on: {e: t}}, t: {on: {f: {}, g: {}}}}\n"
    snapshot = living(before, "f", "g")
    assert ["f", "g"] == [each.name for each in snapshot.deferred]

    assert snapshot.deferred == carried(before, before.replace("e: t", "e: t, h: t"), snapshot)[0].deferred
    assert refused(before, before.replace("unhandled: defer\n", ""), snapshot)
    assert refused(before, "events: {e: {}, f: {}}\n" + before.replace(", g: {}", ""), snapshot)
    assert refused(before, "events: {e: {}, f: {payload: {n: integer}}, g: {}}\n" + before, snapshot)
    moved, result = carried(before, before.replace("s: {on", "s: {always: t, on"), snapshot)
    assert (("t",), ()) == (moved.configuration, moved.deferred)
    assert result.step is not None
    assert ["send", "send"] == [each.type for each in result.step.effects]


# Settling and the end


def test_an_entity_settles_on_the_new_chart() -> None:
    """An eventless transition runs in the move, not with the next event, and what it starts is in the same step."""
    before = "states: {a: {on: {e: b}}, b: {}}\n"
    after = (
        "states: {a: {always: {target: b, guard: '= true'}, on: {e: b}}, b: {invoke: {id: i, src: x}, on: {e: a}}}\n"
    )
    moved, result = carried(before, after, living(before))

    assert ("b",) == moved.configuration
    assert result.step is not None
    assert ["invoke"] == [each.type for each in result.step.effects]
    assert "rejected" == kernel_of(after).step(moved, "unheard.of").outcome


def test_settling_may_end_the_entity() -> None:
    before, after = (
        "states: {a: {on: {e: b}}, b: {type: final}}\n",
        "states: {a: {always: b}, b: {type: final, output: 7}}\n",
    )
    moved, _ = carried(before, after, living(before))

    assert ("done", 7) == (moved.ended, moved.output)


def test_an_entity_stays_if_settling_fails() -> None:
    before = "states: {a: {on: {e: b}}, b: {on: {e: a}}}\n"
    after = "states: {a: {always: {target: b, guard: '= 1 > 0'}, on: {e: b}}, b: {always: {target: a, guard: '= 1 > 0'}, on: {e: a}}}\n"

    assert refused(before, after, living(before))


def test_the_kernel_must_be_that_of_the_new_definition() -> None:
    pair = PAIRS["timers: another delay"]
    with pytest.raises(UsageError) as caught:
        Carrier(*pair.documents(), kernel_of(pair.before))

    assert "carry.kernel" == caught.value.code


def test_an_ended_entity_stays() -> None:
    before = "states: {a: {on: {e: b}}, b: {type: final}}\n"

    assert refused(before, before.replace("a: {on", "a: {description: d, on"), living(before, "e"))


def test_a_patch_says_only_what_changed() -> None:
    before = living("states: {a: {on: {e: b}}, b: {}}\n")

    assert {"from": before.revision, "to": before.revision} == make_patch(before, before)


# Random charts with one key edited


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 24, 6))
def test_random_entities_are_carried_whole_or_not_at_all(first: int) -> None:
    """Whatever changed: what is carried keeps its obligations, and a safe change stops no living entity."""
    carried_count = 0
    for seed in range(first, first + 6):
        before = random_document(Random(seed))
        chart = chart_of(before)
        lives = snapshots(Kernel(chart, guards=made_guards(chart), assigns=made_assigns(chart, chart)), 4)
        for makes, key in Random(seed).sample(ROWS, 25):
            after = edited(before, makes, key)
            if after is None:
                continue
            new = chart_of(after)
            by = Carrier(before, after, Kernel(new, guards=made_guards(new), assigns=made_assigns(new, new)))
            for each in lives:
                result = by.carry(each, time_ms=MOVE_MS)
                if result.step is not None:
                    carried_count += 1
                    check(each, result, by)
                elif each.ended is None:
                    assert by.diff.review not in ("none", "safe"), (seed, makes, key.name, result.reasons)
    assert carried_count > 20


# Renames over several revisions


def test_a_name_that_was_renamed_away_and_used_again_means_the_old_state() -> None:
    """The state a is b from the second revision on. The third has another a, and declares no rename any more."""
    first = "states: {a: {on: {e: z}}, z: {}}\n"
    second = "renamed: {a: b}\nstates: {b: {on: {e: z}}, z: {}}\n"
    third = "states: {a: {on: {f: z}}, b: {on: {e: z}}, z: {}}\n"
    documents = [Pair("", each, each, ()).documents()[0] for each in (first, second, third)]
    direct = Carrier(documents[0], documents[2], kernel_of(third))
    over = Carrier(documents[0], documents[2], kernel_of(third), between=[documents[1]])

    for by, state in ((direct, "a"), (over, "b")):
        step = by.carry(living(first), time_ms=MOVE_MS).step
        assert step is not None
        assert (state,) == step.snapshot.configuration


def test_renames_are_composed_and_the_last_revision_may_rename_what_another_removed() -> None:
    first = "states: {a: {}, c: {on: {e: a}}}\n"
    second = "renamed: {a: b}\nstates: {b: {}, d: {on: {e: b}}}\n"
    third = "renamed: {b: x, c: y}\nstates: {x: {}, y: {on: {e: x}}}\n"
    documents = [Pair("", each, each, ()).documents()[0] for each in (first, second, third)]
    both, clashing = "states: {a: {}, b: {on: {e: a}}}\n", "renamed: {a: b}\nstates: {b: {}}\n"
    kept = [Pair("", each, each, ()).documents()[0] for each in (both, clashing)]

    assert {"a": "x", "c": "y"} == diff_documents(documents[0], documents[2], [documents[1]]).names
    assert {} == diff_documents(kept[0], kept[1], [kept[1]]).names


def test_a_mapping_gives_a_personal_field_no_plain_value_and_others_no_sealed_one() -> None:
    text = "context: {a: {nullable: true, personal: true}, b: {nullable: true}}\nstates: {s: {}, t: {}}\n"
    by = Carrier(
        *Pair("x", text, text.replace("t: {}", "u: {}"), ()).documents(), kernel_of(text.replace("t: {}", "u: {}"))
    )
    before = kernel_of(text).start({"_personal": "00" * 8}, entity="test/1", time_ms=START_MS).snapshot
    token = {"$personal": "AUxx"}
    for values, count in (({"a": "plain"}, 1), ({"b": [token]}, 1), ({"a": token, "b": "plain"}, 0), ({"a": None}, 0)):
        draft = by.draft(before, MOVE_MS, {}, 0, 0)
        assert not isinstance(draft, CarryResult)
        draft.values.update(values)
        by.map_context(draft)

        assert count == len(draft.reasons)
        assert "00" * 8 == draft.after.context["_personal"]
