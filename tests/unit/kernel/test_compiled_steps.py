"""A compiled step has exactly the result of the general one, for charts as people write them, and is really used."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.assemble.charts import loads
from interlock.errors import InterlockError
from interlock.kernel import fast_path
from interlock.kernel.compiled import calls, compiler
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.document.field import json_problem
from interlock.model.driver_events import invoke_done, invoke_failed, timer_fired
from interlock.model.effect import Effect
from interlock.model.event import Event
from interlock.model.limits import EFFECTS_MAX
from interlock.model.snapshot import Invocation, Parent, Snapshot, Timer
from tests.unit.kernel.charts import (
    ENTITY,
    CheckedKernel,
    chart_of,
    faults,
    kernel_of,
    last_step,
    payloads,
    xstate_kernel,
)
from tests.unit.kernel.realistic_charts import REALISTIC, SAGA, XSTATE

GUARDS = {"yes": lambda context, event: True}
NAMES = ("go", "go", "go", "go", "set", "set", "stop")
DATA: tuple[Any, ...] = (None, None, 0, 1, 2, 7, {"n": 1}, {"n": 2}, {}, {"n": "text"}, "text", [1])


@cache
def chart(name: str) -> Chart:
    """The chart of this name."""
    if name == "xstate":
        return xstate_kernel(XSTATE, guards=GUARDS).chart
    return loads(SAGA).chart if name == "saga" else chart_of(REALISTIC[name])


ALL = (*REALISTIC, "saga", "xstate")


@dataclass
class Comparison:
    """One chart with compiled steps and without, and how many steps the compiled functions took."""

    name: str
    random: Random
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.quick = Kernel(chart(self.name), guards=GUARDS)
        self.slow = Kernel(chart(self.name), guards=GUARDS, fast=False)
        general = self.quick._general_step

        def counted(*arguments: Any) -> Any:
            self.counts["general"] += 1
            return general(*arguments)

        self.quick._general_step = counted  # type: ignore[method-assign, assignment]  # to see which steps take the general path

    def start(self) -> Snapshot:
        """The first snapshot; sometimes of a child."""
        parent = self.random.choice((None, None, Parent("boss/1", "i", "boss/1/2/0")))
        return self.slow.start(entity=ENTITY, time_ms=self.random.randrange(99), parent=parent).snapshot

    def event(self, snapshot: Snapshot) -> Event:
        """An event of a sender, or of a timer or invoke of the snapshot."""
        random = self.random
        time_ms = random.randrange(10**6)
        if snapshot.timers and random.random() < 0.25:
            return timer_fired(random.choice(snapshot.timers), time_ms=time_ms)
        if snapshot.invokes and random.random() < 0.5:
            each = random.choice(snapshot.invokes)
            if random.random() < 0.7:
                return invoke_done(each.id, each.key, random.choice(("r-1", 1, 2)), time_ms=time_ms)
            return invoke_failed(each.id, each.key, "no", "text", done="no", time_ms=time_ms)
        principal = random.choice((None, {"roles": ["clerk"]}))
        return Event(random.choice(NAMES), random.choice(DATA), principal=principal, time_ms=time_ms)

    def step(self, snapshot: Snapshot, event: Event) -> Snapshot:
        """One step by both paths: as an event, and by its name if it has nothing else."""
        expected = outcome(self.slow, snapshot, event)
        assert expected == outcome(self.quick, snapshot, event), event  # compiles it
        before = self.counts["general"]
        actual = outcome(self.quick, snapshot, event)
        assert expected == actual, event
        assert repr(expected) == repr(actual), event  # the order of the keys of payloads, too
        if not isinstance(expected, tuple) and expected.outcome == "applied":
            self.counts["applied"] += 1
            self.counts["compiled"] += self.counts["general"] == before
        if event == Event(event.name, event.data, time_ms=event.time_ms) and not isinstance(expected, tuple):
            named = self.quick.step(snapshot, event.name, event.data, event.time_ms)
            assert (expected, repr(expected)) == (named, repr(named)), event
        return snapshot if isinstance(expected, tuple) else expected.snapshot


def outcome(kernel: Kernel, snapshot: Snapshot, event: Event) -> Any:
    """The step, or the error that it raises."""
    try:
        return kernel.step(snapshot, event)
    except InterlockError as error:
        return type(error), error.code


@pytest.fixture(autouse=True)
def hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is compiled when it is used for the first time."""
    monkeypatch.setattr(fast_path, "COMPILE_AFTER_USES", 0)


LEAST = {"messages": 75, "paths": 65, "scxml": 50, "saga": 70, "raising": 90, "xstate": 85}
"""Percent of the applied steps that a compiled function takes, where it is less than nearly all of them.

The others are undeliverable sends, names that the chart does not mention, late results of sagas, and failing steps.
"""


@pytest.mark.parametrize("name", ALL)
def test_random_sequences_have_the_same_results(name: str) -> None:
    """Every step, by event and by name; and most of them are compiled, so that the comparison compares something."""
    comparison = Comparison(name, Random(f"compiled {name}"))
    for _ in range(12):
        snapshot = first = comparison.start()
        events = []
        for _ in range(40):
            event = comparison.event(snapshot)
            events.append(event)
            snapshot = comparison.step(snapshot, event)
            if snapshot.ended is not None:
                break
        assert comparison.slow.fold(first, events) == comparison.quick.fold(first, events) == snapshot

    counts = comparison.counts
    assert counts["compiled"] * 100 >= LEAST.get(name, 98) * counts["applied"], counts


def damaged(snapshot: Snapshot, random: Random) -> Iterator[Snapshot]:
    """The snapshot as another revision, a migration or a defect might have left it."""
    timers, invokes = snapshot.timers, snapshot.invokes
    foreign = Timer("foreign", "go", 5, 1, 0, "foreign")
    yield replace(snapshot, timers=timers[1:], invokes=invokes[1:])
    yield replace(snapshot, timers=timers[::-1], invokes=invokes[::-1])
    yield replace(snapshot, timers=(*timers, *map(replace, timers)), invokes=(*invokes, *map(replace, invokes)))
    yield replace(snapshot, timers=(foreign, *timers))
    yield replace(snapshot, timers=(*timers, replace(foreign, to="other/1"), replace(foreign, state="elsewhere")))
    yield replace(snapshot, timers=(*timers, *(replace(foreign, name=f"t{number}") for number in range(70))))
    states = [state.id for state in chart_states(snapshot)]
    names = [after.event for state in chart_states(snapshot) for after in state.after]
    yield replace(snapshot, timers=(*timers, *(replace(foreign, name=name) for name in names)))
    yield replace(snapshot, timers=tuple(replace(each, name="other") for each in timers))
    yield replace(snapshot, timers=tuple(replace(each, id=None, version=77) for each in timers))
    yield replace(snapshot, timers=tuple(replace(each, to="other/1") for each in timers))
    yield replace(snapshot, timers=tuple(replace(each, event="stop") for each in timers))
    yield replace(snapshot, invokes=tuple(replace(each, position=5) for each in invokes))
    yield replace(snapshot, invokes=(*invokes, *(Invocation("new", state, 0, "k") for state in states)))
    yield replace(snapshot, invokes=tuple(replace(each, id="other") for each in invokes))
    yield replace(snapshot, invokes=tuple(Invocation(f"i{number}", "elsewhere", 0, "k") for number in range(200)))
    yield replace(snapshot, history={state: (random.choice(states),) for state in states})
    yield replace(snapshot, context={}, kind="test")
    yield replace(snapshot, context=dict.fromkeys(snapshot.context, "text"))
    yield replace(snapshot, kind="other")
    yield replace(snapshot, deferred=(Event("set"),), entered=("a",), revision="0")
    yield replace(snapshot, ended="done")
    yield replace(snapshot, configuration=("nowhere",))


def chart_states(snapshot: Snapshot) -> Any:
    """The states of the chart that a snapshot belongs to."""
    return next(chart(name).states for name in ALL if chart(name).revision == snapshot.revision)


@pytest.mark.parametrize("name", ALL)
def test_a_damaged_snapshot_has_the_same_result(name: str) -> None:
    """Missing, foreign, repeated or renamed timers and invokes; values of other types; another kind; an end."""
    comparison = Comparison(name, Random(f"damaged {name}"))
    for _ in range(3):
        snapshot = comparison.start()
        for _ in range(8):
            event = comparison.event(snapshot)
            for each in damaged(snapshot, comparison.random):
                comparison.step(each, event)
                comparison.step(each, comparison.event(each))
            snapshot = comparison.step(snapshot, event)
            if snapshot.ended is not None:
                break


@pytest.mark.parametrize("name", ALL)
def test_an_event_with_other_fields_has_the_same_result(name: str) -> None:
    """Forwarded, from another driver, with the names of results, with a clock that is behind, with a wrong source."""
    comparison = Comparison(name, Random(f"event {name}"))
    for _ in range(4):
        snapshot = comparison.start()
        for _ in range(20):
            event = comparison.event(snapshot)
            for fields in (
                {"forwarded": True},
                {"invokeid": "job"},
                {"invokeid": None},
                {"source": "outbox/1"},
                {"source": None},
                {"source": "invoke/none"},
                {"source": (event.source or "").replace("timer/", "")},
                {"type": "platform"},
                {"type": "external"},
                {"clock_ms": 7},
                {"origin": f"#_scxml_{ENTITY}"},
                {"name": "inner", "origin": f"#_scxml_{ENTITY}"},
            ):
                comparison.step(snapshot, replace(event, **fields))
            snapshot = comparison.step(snapshot, event)
            if snapshot.ended is not None:
                break


QUOTED = """
context: {n: {type: integer, default: 0}}
states:
  a: {after: {48h: b}, on: {go: {target: b, actions: [{assign: {n: "= context.n + 1"}}]}}}
  b: {after: {48h: a}}
"""


def test_the_source_that_the_documentation_quotes_is_the_real_one() -> None:
    kernel = kernel_of(QUOTED)
    configuration = kernel.planner.configuration(("a",))
    assert configuration is not None
    source = kernel.accelerator.compiler.compile(configuration, "go", by_name=True).source
    function = source[source.index("def named") : source.index("def counted")]

    assert "".join(function.split()) in "".join((compiler.__doc__ or "").split())


PAYLOADS: tuple[Any, ...] = (
    None, True, 1, 2**63, 2**300, 1.5, float("nan"), "x", "x" * 1_000, "\xe4", "\ud800", [1], [object()], object(), {},
    {"n": 1}, {"\xe4": 1}, {"\ud800": 1}, {1: 2}, {"n": "\ud800"}, {"n": {"m": object()}}, {"n": 2**300}, {"n": 1.5},
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(PAYLOADS)))
def test_a_payload_by_name_is_checked(number: int) -> None:
    """The quick check accepts exactly what the full one accepts."""
    value = PAYLOADS[number]
    assert calls.is_plain(value) is (json_problem(value) is None)


def test_a_nested_write_that_the_field_refuses_falls_back() -> None:
    kernel = kernel_of("""
        context:
          order: {type: object, default: {n: 1}, fields: {n: integer}}
        states: {a: {on: {go: {actions: [{assign: {order.n: "= event.data"}}]}}}}
    """)

    assert {"order": {"n": 5}} == last_step(kernel, Event("go", 5)).snapshot.context
    assert ["assign.refused"] == faults(last_step(kernel, Event("go", "text")))


@pytest.mark.parametrize("item", [1, True, None, 1.5, "x", "x" * 1_000, [1], {"k": 1}])
def test_a_new_mapping_has_the_values_of_the_general_step(item: Any) -> None:
    """Scalars are stored immediately; anything else falls back."""
    kernel = kernel_of("""
        context: {record: {type: object, default: {n: 1}}, item: any}
        states: {a: {on: {go: {actions: [{assign: {record.last: "= {'item': context.item, 'id': entity.id}"}}]}}}}
    """)
    snapshot = kernel.start({"item": item}, entity=ENTITY, time_ms=0).snapshot
    for _ in range(2):
        snapshot = kernel.step(snapshot, Event("go")).snapshot

    assert {"n": 1, "last": {"item": item, "id": ENTITY}} == snapshot.context["record"]


def test_more_effects_than_allowed_fall_back() -> None:
    effects: list[Effect] = []
    for _ in range(EFFECTS_MAX):
        calls.add_effect(effects, "test/1/2/", "log", {})
    assert "test/1/2/999" == effects[-1].key

    with pytest.raises(calls.FallBack):
        calls.add_effect(effects, "test/1/2/", "log", {})


def test_an_invoke_of_the_same_step_is_not_cancelled() -> None:
    """The general step withdraws it."""
    started = Invocation("j", "a", 0, "test/1/2/0")
    assert () == calls.cancel_invokes((started,), [], "test/1/3/", "a")

    with pytest.raises(calls.FallBack):
        calls.cancel_invokes((started,), [], "test/1/2/", "a")


def test_an_invoke_without_source_has_none_in_its_effect() -> None:
    """The text of its chart is then its input."""
    made = chart_of("states: {a: {on: {go: b}}, b: {invoke: {id: j, src: f}}}")
    states = tuple(
        dataclasses.replace(state, invokes=tuple(dataclasses.replace(each, src=None) for each in state.invokes))
        for state in made.states
    )
    step = last_step(CheckedKernel(dataclasses.replace(made, states=states)), "go")

    assert [{"id": "j", "state": "b", "type": "handler"}] == payloads(step, "invoke")


DELAYED = """
    context:
      big: any
      at: any
      taken: {type: boolean, default: false}
      items: {type: array, default: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}
    states:
      a:
        on:
          many: {actions: [{foreach: {in: "= context.items", item: at, do: [
            {send: {event: later, to: self, delay: 1h, data: "= context.big if context.at < 11 else 1"}}]}}]}
          one: {actions: [
            {if: "= context.taken", then: [{send: {event: later, to: self, delay: 1h, data: "= context.big"}}]},
            {send: {event: x, to: other/1, data: {a: "= context.big", b: "= context.big", c: "= context.big"}}},
            {send: {event: x, to: other/1, data: {a: "= context.big", b: "= context.big", c: "= context.big"}}},
            {send: {event: x, to: other/1, data: {a: "= context.big", b: "= context.big", c: "= context.big"}}}]}
"""


@pytest.mark.parametrize(("name", "big"), [("many", "x" * 999_000), ("many", "short"), ("one", "short")])
def test_data_of_delayed_sends_in_loops_and_branches_is_measured_each_time(name: str, big: str) -> None:
    quick, general = (Kernel(chart_of(DELAYED), fast=fast) for fast in (True, False))
    snapshot = general.start({"big": big}, entity=ENTITY, time_ms=0).snapshot
    expected = outcome(general, snapshot, Event(name, time_ms=1))

    assert [expected] * 2 == [outcome(quick, snapshot, Event(name, time_ms=1)) for _ in range(2)]
    assert (big == "short") is (
        not isinstance(expected, tuple) and expected.outcome == "applied" and not expected.faults
    )
