"""The fast tier applies where it should, nowhere else, and is never seen in an answer (P8)."""

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from interlock.errors import CorruptionError, UsageError
from interlock.kernel import fast_path
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart, Descriptor
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.limits import EFFECTS_MAX, VALUE_DEPTH_MAX, VALUES_MAX
from interlock.model.snapshot import Parent, Snapshot
from tests.unit.kernel.charts import ENTITY, chart_of, faults, kernel_of, last_step, started, xstate_kernel
from tests.unit.kernel.plain_charts import GENERAL, PLAIN, WITH_SNAPSHOT

COMPILED = {**PLAIN, **WITH_SNAPSHOT}
ALL = {**COMPILED, **GENERAL}
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 7, -1, 1.5, 1e308, "", "x", "long text " * 300, [], [1, 2, 3], [0] * 2_000,
    2**63 - 2, 2**63 - 1, 2**63, -(2**63), 2**255, 2**256 - 1, 1 - 2**256,
    {}, {"n": 1}, {"n": "1"}, {"n": 2, "note": "x"}, {"n": 2, "other": 1}, {"n": True},
)  # fmt: skip


def nested(depth: int) -> Any:
    """A list in a list, this deep."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


ANSWERS: dict[str, Any] = {
    "None": None,
    "True": {"n": "text"},
    "0": {"n": 1, "other": 2},
    "1": {"n": 5, "tree": [1, {"k": None}]},
    "2": {"tree": nested(VALUE_DEPTH_MAX - 1)},
    "7": {"tree": nested(VALUE_DEPTH_MAX)},
    "-1": {"tree": [0] * (VALUES_MAX - 2)},
    "1.5": {"n": 2, "word": "x", "tree": {1: 2}},
    "x": {"tree": float("nan")},
    "": {"n": True},
    "[]": [("n", 1)],
    "{}": {1: 2},
}
"""What the assign function gives for a payload: fields, nonsense, and trees at the limits."""


def moody(context: Any, event: Any) -> bool:
    """A guard that raises for some events."""
    return bool(event.data) and event.data > 1


FUNCTIONS: dict[str, Any] = {
    "guards": {"moody": moody},
    "assigns": {
        "grow": lambda context, event: ANSWERS.get(str(event.data), {"n": context["n"] + 1}),
        "grow_by": lambda context, event, given: {"n": context["n"] + given["by"]},
    },
}


@cache
def named(name: str) -> Chart:
    """The chart of this name in the tables."""
    return chart_of(ALL[name])


def both(chart: Chart) -> tuple[Kernel, Kernel]:
    """The chart made runnable with the fast tier and without it."""
    return Kernel(chart, **FUNCTIONS, fast=True), Kernel(chart, **FUNCTIONS, fast=False)


def is_fast(kernel: Kernel, snapshot: Snapshot, name: str = "go") -> bool:
    """Whether there is a fast function."""
    configuration = kernel.planner.configuration(snapshot.configuration)
    assert configuration is not None
    step = kernel.planner.compiled_steps[configuration.names].get(name, fast_path.not_compiled)
    return step is not fast_path.not_compiled


def has_parts(kernel: Kernel, snapshot: Snapshot, name: str = "go") -> bool:
    """Whether there is a function for replay."""
    configuration = kernel.planner.configuration(snapshot.configuration)
    assert configuration is not None
    return name in configuration.plain_steps


def warm(kernel: Kernel, snapshot: Snapshot, name: str = "go") -> None:
    """Use a configuration and event as often as it takes."""
    for _ in range(fast_path.COMPILE_AFTER_USES + 1):
        kernel.step(snapshot, Event(name, 1))


def random_event(random: Random) -> Event:
    """An event that tends to be `go`, from a sender, an invoke, a timer, or marked as a forwarded one."""
    name = random.choice(("go", "go", "go", "go", "set", "other"))
    fields: dict[str, Any] = random.choice(
        ({}, {}, {}, {}, {"invokeid": "j"}, {"source": "timer/t/1"}, {"invokeid": "j", "forwarded": True})
    )
    principal = random.choice((None, {"roles": ["clerk"]}))
    return Event(name, random.choice(VALUES), time_ms=random.randrange(9), principal=principal, **fields)


@pytest.mark.parametrize("name", COMPILED)
def test_a_step_is_compiled_after_enough_uses(name: str) -> None:
    """P8: not before, because making one costs as much as hundreds of steps."""
    kernel, _ = both(named(name))
    snapshot = started(kernel)
    for _ in range(fast_path.COMPILE_AFTER_USES):
        kernel.step(snapshot, Event("go", 1))
    assert not is_fast(kernel, snapshot)

    kernel.step(snapshot, Event("go", 1))
    assert is_fast(kernel, snapshot)
    assert (name in PLAIN) is has_parts(kernel, snapshot)


@pytest.mark.parametrize("name", GENERAL)
def test_any_other_step_is_never_compiled(name: str) -> None:
    """It is tried once, and then no more."""
    kernel, _ = both(named(name))
    snapshot = started(kernel)
    warm(kernel, snapshot)
    warm(kernel, snapshot)

    assert not is_fast(kernel, snapshot)


@pytest.mark.parametrize("name", COMPILED)
def test_every_payload_has_the_same_result_on_both_paths(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Numbers at the limits, long operands, wrong types, nothing at all."""
    monkeypatch.setattr(fast_path, "COMPILE_AFTER_USES", 1)
    quick, slow = both(named(name))
    snapshot = started(quick)
    warm(quick, snapshot)
    for _ in range(3):
        quick.step(snapshot, "go", 1)
    for value in VALUES:
        event = Event("go", value)

        expected = encode(slow.step(snapshot, event))
        assert expected == encode(quick.step(snapshot, event)), value
        assert expected == encode(quick.step(snapshot, "go", value)), value


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ALL)
def test_both_paths_have_the_same_results(monkeypatch: pytest.MonkeyPatch, name: str, seed: int) -> None:
    """The same bytes for every step: outcomes, errors, effects, snapshots."""
    monkeypatch.setattr(fast_path, "COMPILE_AFTER_USES", 2)
    quick, slow = both(named(name))
    random = Random(f"{name} {seed}")
    snapshot = started(slow)
    for number in range(80):
        event = random_event(random)
        expected, actual = slow.step(snapshot, event), quick.step(snapshot, event)

        assert encode(expected) == encode(actual), (number, event)
        assert encode(expected) == encode(quick.step(snapshot, event)), (number, event)
        snapshot = started(slow) if expected.snapshot.ended or number % 40 == 39 else expected.snapshot


def test_compiled_steps_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison compares something: fast functions are called, and most of them answer."""
    monkeypatch.setattr(fast_path, "COMPILE_AFTER_USES", 2)
    answered = {}
    for name in COMPILED:
        kernel, _ = both(named(name))
        snapshot = started(kernel)
        warm(kernel, snapshot)
        step = kernel.planner.compiled_steps[snapshot.configuration]["go"]
        answered[name] = 0
        for value in VALUES:
            try:
                answered[name] += step(snapshot, Event("go", value)) is not None
            except Exception:  # noqa: BLE001  # what it raises need not be explained, only avoided
                continue

    # No principal has the role here, the version is always 1, and no entity sends the internal event.
    assert ["roles", "the entity in a guard", "an internal event"] == [
        name for name, count in answered.items() if not count
    ]


@pytest.mark.parametrize(
    ("fields", "ended", "deferred"),
    [
        ({"source": "outbox/1"}, None, ()),
        ({"invokeid": "j"}, None, ()),
        ({}, "done", ()),
        ({}, None, (Event("later"),)),
    ],
)
def test_a_compiled_step_falls_back_to_the_general_step(
    fields: dict[str, Any], ended: Any, deferred: tuple[Event, ...]
) -> None:
    """Events of the driver, an ended entity, deferred events."""
    quick, slow = both(named("a target"))
    first = started(quick)
    warm(quick, first)
    assert is_fast(quick, first)

    snapshot = Snapshot(
        "test", ENTITY, 4, first.revision, ("a",), {}, None, (), (), deferred, (), ended, None, Parent("boss/1", "i")
    )
    event = Event("go", **fields)

    assert slow.step(snapshot, event) == quick.step(snapshot, event)


def test_a_compiled_step_keeps_the_other_fields_of_the_snapshot() -> None:
    """History, timers, invokes, states entered and parent; the revision is the chart's own."""
    quick, slow = both(
        chart_of("states: {a: {on: {go: b, t: {actions: [{send: {event: x, delay: 1s, id: i}}]}}}, b: {on: {go: a}}}")
    )
    timed = last_step(slow, "t").snapshot
    snapshot = Snapshot(
        "test", ENTITY, 4, "0", ("a",), {"n": 1}, {"h": ("a",)}, timed.timers, (), (), ("b",), None, None,
        Parent("boss/1", "i"),
    )  # fmt: skip
    warm(quick, snapshot)
    assert is_fast(quick, snapshot)

    assert slow.step(snapshot, Event("go")) == quick.step(snapshot, Event("go"))
    assert slow.chart.revision == quick.step(snapshot, Event("go")).snapshot.revision


@pytest.mark.parametrize("value", [True, "7", None, 1.5, [1]])
def test_an_invalid_value_in_a_snapshot_has_the_same_result_on_both_paths(value: object) -> None:
    """One of another revision: declared types are not taken for granted."""
    quick, slow = both(
        chart_of("""
        context: {n: {type: integer, default: 0}, m: {type: integer, default: 0}, s: {type: string, default: ''}}
        states:
          a:
            on: {go: {actions: [{assign: {m: "= context.n + 1"}}]}, copy: {actions: [{assign: {m: "= context.n"}}]}}
    """)
    )
    for name in ("go", "copy"):
        warm(quick, started(quick), name)
        snapshot = Snapshot("test", ENTITY, 1, "0", ("a",), {"n": value, "m": 0, "s": ""})

        assert is_fast(quick, snapshot, name)
        assert slow.step(snapshot, Event(name)) == quick.step(snapshot, Event(name))


def test_a_missing_field_has_the_same_result_on_both_paths() -> None:
    """One whose first value failed (S5)."""
    quick, slow = both(
        chart_of("""
        context: {n: {type: integer, default: "= 1 // 0"}}
        states: {a: {on: {go: {actions: [{assign: {n: "= context.n + 1"}}]}}}}
    """)
    )
    snapshot = started(quick)
    warm(quick, snapshot)

    assert slow.step(snapshot, Event("go")) == quick.step(snapshot, Event("go"))
    assert ["expression.missing_key"] == faults(quick.step(snapshot, Event("go")))


def test_more_effects_than_a_step_may_have_are_refused_by_both() -> None:
    """The limit holds however often the step is tried."""
    actions = ", ".join(["x"] * (EFFECTS_MAX + 1))
    quick, slow = both(chart_of(f"states: {{a: {{on: {{go: {{actions: [{actions}]}}}}}}}}"))
    snapshot = started(quick)
    warm(quick, snapshot)

    assert not is_fast(quick, snapshot)
    assert slow.step(snapshot, Event("go")) == quick.step(snapshot, Event("go"))


def test_a_declared_event_without_transition_is_rejected_at_once() -> None:
    """It is known by name, and has no transition, so no guard has to be explained."""
    quick, slow = both(chart_of("events: {go: {}, other: {}}\nstates: {a: {on: {other: {actions: [x]}}}}"))
    snapshot = started(quick)
    warm(quick, snapshot)

    assert is_fast(quick, snapshot)
    assert slow.step(snapshot, Event("go")) == quick.step(snapshot, Event("go"))
    assert "no_transition" == quick.step(snapshot, Event("go")).reason


def test_a_name_that_is_written_but_not_declared_is_not_fast() -> None:
    """The general path refuses it each time."""
    kernel = kernel_of("dialect: scxml\nevents: {other: {}}\nstates: {a: {on: {go: {actions: [x]}}}}")
    warm(kernel, started(kernel))

    assert not is_fast(kernel, started(kernel))
    assert "undeclared" == kernel.step(started(kernel), Event("go")).reason


def test_xstate_charts_have_fast_steps_too() -> None:
    """The flags of the dialect are in the plan already."""
    text = '{"id": "m", "initial": "a", "states": {"a": {"on": {"GO": "b"}, "exit": "x"}, "b": {"on": {"GO": "a"}}}}'
    quick, slow = xstate_kernel(text), xstate_kernel(text, fast=False)
    first = started(quick)
    warm(quick, first, "GO")

    assert is_fast(quick, first, "GO")
    assert slow.step(first, Event("GO")) == quick.step(first, Event("GO"))


def test_without_the_fast_path_nothing_is_compiled() -> None:
    """A kernel can be asked to do without, to compare."""
    _, slow = both(named("a target"))
    warm(slow, started(slow))

    assert not is_fast(slow, started(slow))


def test_a_configuration_that_is_dropped_warms_up_again() -> None:
    """P6: a full table takes its fast functions with it."""
    kernel, _ = both(named("a target"))
    snapshot = started(kernel)
    warm(kernel, snapshot)
    kernel.planner.clear()
    assert not is_fast(kernel, snapshot)

    warm(kernel, snapshot)
    assert is_fast(kernel, snapshot)


# Replay


def folded(kernel: Kernel, snapshot: Snapshot, events: list[Event]) -> Snapshot:
    """The snapshot after stepping through all events."""
    for event in events:
        snapshot = kernel.step(snapshot, event).snapshot
    return snapshot


@pytest.mark.parametrize("hits", [2, 1_000])
@pytest.mark.parametrize("name", ALL)
def test_folding_equals_stepping(monkeypatch: pytest.MonkeyPatch, name: str, hits: int) -> None:
    """Replay: with the fast tier and without, through effects, refusals, errors and ends."""
    monkeypatch.setattr(fast_path, "COMPILE_AFTER_USES", hits)
    quick, slow = both(named(name))
    random = Random(name)
    first = started(slow)
    for length in (1, 60):
        events = [random_event(random) for _ in range(length)]
        expected = folded(slow, first, events)

        assert expected == slow.fold(first, events)
        assert expected == quick.fold(first, events)
        assert expected == quick.fold(first, iter(events))


@pytest.mark.parametrize(
    ("name", "data"), [("division", 0), ("a payload", {"n": "x"}), ("guards", 9), ("guards", None)]
)
def test_folding_takes_the_general_step_where_the_compiled_one_does_not_apply(name: str, data: object) -> None:
    kernel, general = both(named(name))
    snapshot = started(kernel)
    warm(kernel, snapshot)
    events = [Event("go", data), Event("go", 1)]

    assert is_fast(kernel, snapshot)
    assert folded(general, snapshot, events) == kernel.fold(snapshot, events)


LIFE = """
context: {n: {type: integer, default: 0}}
unhandled: defer
states:
  a: {on: {go: {target: b, actions: [x, {assign: {n: "= context.n + 1"}}]}, end: f}}
  b: {on: {go: {target: a, actions: [y]}, wait: {actions: [{send: {event: due, id: t, delay: 1s}}]}}}
  f: {type: final}
"""


def test_folding_keeps_what_is_between_fast_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain steps, then one with a timer, an event kept back that comes back, and the end."""
    monkeypatch.setattr(fast_path, "COMPILE_AFTER_USES", 1)
    quick, slow = both(chart_of(LIFE))
    first = started(slow)
    names = ["go"] * 9 + ["wait", "go", "go", "later", "go", "go", "go", "end", "go", "go"]
    events = [Event(name) for name in names]
    for length in range(len(names) + 1):
        assert folded(slow, first, events[:length]) == quick.fold(first, events[:length])

    assert ("done", ("f",)) == (quick.fold(first, events).ended, quick.fold(first, events).configuration)


def test_folding_uses_compiled_steps() -> None:
    kernel, _ = both(named("entry and exit"))
    snapshot = started(kernel)
    warm(kernel, snapshot)
    lookups = kernel.planner.lookups
    kernel.fold(snapshot, [Event("go", 1)])

    assert lookups == kernel.planner.lookups


def test_folding_nothing_gives_the_snapshot_itself() -> None:
    kernel = kernel_of(LIFE)
    first = started(kernel)

    assert first is kernel.fold(first, [])


def test_folding_from_states_that_do_not_fit_is_corruption() -> None:
    kernel = kernel_of(LIFE)

    with pytest.raises(CorruptionError):
        kernel.fold(Snapshot("test", ENTITY, 1, "0", ("gone",), {}), [Event("go")])


def test_an_entity_of_another_kind_is_refused_however_often_the_step_was_made() -> None:
    """The short way asks for the kind as the long one does; so does replay."""
    kernel = kernel_of("states: {a: {on: {go: b}}, b: {on: {go: a}}}")
    snapshot = last_step(kernel, *["go"] * (4 * fast_path.COMPILE_AFTER_USES)).snapshot
    foreign = Snapshot("other", ENTITY, 1, snapshot.revision, snapshot.configuration, {})

    assert "go" in kernel.planner.compiled_steps[snapshot.configuration]
    with pytest.raises(UsageError) as stepped:
        kernel.step(foreign, Event("go"))
    with pytest.raises(UsageError) as folded:
        kernel.fold(foreign, [Event("go")])
    assert ("snapshot.kind", "snapshot.kind") == (stepped.value.code, folded.value.code)


def test_a_reserved_name_stays_refused_however_often_it_comes() -> None:
    """A descriptor in SCXML may name `_x`; such events are the kernel's all the same."""
    chart = chart_of("dialect: scxml\nstates: {a: {on: {go: b}}, b: {}}")
    go = chart.transitions[0]
    reserved = replace(chart, transitions=(replace(go, descriptors=(Descriptor("_go", ("_go",)),)),))
    kernel = Kernel(reserved)
    snapshot = started(kernel)

    assert {("rejected", "reserved")} == {
        (step.outcome, step.reason)
        for step in (kernel.step(snapshot, Event("_go")) for _ in range(4 * fast_path.COMPILE_AFTER_USES))
    }
