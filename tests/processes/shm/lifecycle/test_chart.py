"""Charts in a word: a chart that fits behaves as in the kernel; others are refused with every reason."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import interlock
from interlock.errors import ConflictError, DefinitionError, RejectedError, UsageError
from interlock.shm.lifecycle.chart import LIFECYCLE_YAML, AtomicChart, word_diagnostics
from interlock.shm.memory.region import MemoryRegion
from tests.processes.shm.processes import Child, Line, Work
from tests.support.eventually import PATIENCE_SECONDS

Start = Callable[[Work], Child]

HEAD = "interlock: 1\nkind: job\nrevision: 1.0.0\n"
TURNSTILE = (
    HEAD
    + """\
initial: shut
states:
  shut:   {exit: [unlock], on: {coin.paid: open, coin.refused: {}}}
  open:   {entry: [light], tags: [admits], on: {"closing.*": emptying}}
  emptying: {tags: [drains], on: {hall.emptied: {target: dark, actions: [sweep]}}}
  dark:   {entry: [{log: dark}], on: {day.ended: over}}
  over:   {type: final}
"""
)


def reasons(text: str) -> list[str]:
    """Return the codes of the reasons against a definition."""
    return [each.code for each in word_diagnostics(interlock.loads(HEAD + text).chart)]


def test_the_lifecycle_chart_behaves_like_a_gate(shared: MemoryRegion) -> None:
    """INIT, RUNNING, DRAINING, CLOSED."""
    life = AtomicChart(interlock.loads(LIFECYCLE_YAML), shared)
    assert life.try_enter() is None
    assert "applied" == life.send("lifecycle.started").outcome
    permit = life.enter()
    assert "applied" == life.send("drain.requested").outcome
    assert ("draining", 1) == (life.state, life.permits)
    assert life.try_enter() is None
    assert life.exit(permit)

    assert "closed" == life.state
    assert life.wait_ended(timeout=0)
    assert "rejected" == life.send("lifecycle.started").outcome


def test_a_drain_without_permits_skips_the_draining_state(shared: MemoryRegion) -> None:
    """One swap moves two states."""
    done: list[str | None] = []
    hall = AtomicChart(interlock.loads(TURNSTILE), shared, perform=lambda effect: done.append(effect.name))
    hall.send("coin.paid")
    receipt = hall.send("closing.announced")

    assert ("applied", "dark") == (receipt.outcome, hall.state)
    assert ["unlock", "light", "sweep", None] == done
    assert ["call", "log"] == [effect.type for effect in receipt.effects]


def test_the_last_exit_moves_the_chart_and_performs_its_effects(shared: MemoryRegion) -> None:
    """In the process of that exit."""
    done: list[str | None] = []
    hall = AtomicChart(interlock.loads(TURNSTILE), shared, perform=lambda effect: done.append(effect.name))
    hall.send("coin.paid")
    one, two = hall.enter(), hall.enter()
    hall.send("closing")
    del done[:]

    assert not hall.exit(one)
    assert [] == done
    with two:
        assert "emptying" == hall.state
    assert ["sweep", None] == done
    assert "dark" == hall.state


def test_draining_is_not_left_while_permits_are_in_use(shared: MemoryRegion) -> None:
    """Not even by its own event."""
    hall = AtomicChart(interlock.loads(TURNSTILE), shared)
    hall.send("coin.paid")
    with hall.enter():
        hall.send("closing")
        receipt = hall.send("hall.emptied")

        assert ("rejected", "permits") == (receipt.outcome, receipt.reason)
        assert "emptying" == hall.state
    with pytest.raises(RejectedError) as caught:
        hall.enter()
    assert "gate.not_running" == caught.value.code


def test_outcomes_are_those_of_the_kernel(shared: MemoryRegion) -> None:
    """Applied, ignored and rejected; an event that the chart does not know raises, as it does for an entity."""
    hall = AtomicChart(interlock.loads(TURNSTILE), shared)

    assert "ignored" == hall.send("coin.refused").outcome
    with pytest.raises(UsageError) as unknown:
        hall.send("no.such.event")
    assert "event.unknown" == unknown.value.code
    assert "shut" == hall.state
    assert "applied" == hall.send("coin.paid").outcome
    assert "rejected" == hall.send("coin.paid").outcome


def test_an_unexpected_state_is_a_conflict(shared: MemoryRegion) -> None:
    """The chart does not move."""
    hall = AtomicChart(interlock.loads(TURNSTILE), shared)
    with pytest.raises(ConflictError) as caught:
        hall.send("coin.paid", expected="open")
    with pytest.raises(UsageError) as unknown:
        hall.send("coin.paid", expected="opened")

    assert ("conflict.state", "state.unknown") == (caught.value.code, unknown.value.code)
    assert "shut" == hall.state
    assert "applied" == hall.send("coin.paid", expected="shut").outcome


def test_one_process_wins_each_transition(child: Start, shared: MemoryRegion) -> None:
    """It performs the effects, once."""
    performed = shared.word("performed")
    chart = interlock.loads(TURNSTILE)

    def work(line: Line) -> None:
        hall = AtomicChart(chart, shared, perform=lambda effect: performed.add(1))
        line.recv()
        line.send(hall.send("coin.paid").outcome)

    started = [child(work) for _ in range(4)]
    for each in started:
        each.send()

    assert ["applied", "rejected", "rejected", "rejected"] == sorted(each.receive() for each in started)
    assert [0, 0, 0, 0] == [each.wait() for each in started]
    assert 2 == performed.load()
    assert "open" == AtomicChart(chart, shared).state


def test_another_revision_is_refused(shared: MemoryRegion) -> None:
    """The same number would mean another state."""
    AtomicChart(interlock.loads(TURNSTILE), shared)
    with pytest.raises(UsageError) as caught:
        AtomicChart(interlock.loads(TURNSTILE.replace("dark", "night")), shared)

    assert "chart.revision" == caught.value.code


def test_waiters_are_woken_at_the_end(shared: MemoryRegion) -> None:
    """In a thread and in an event loop."""
    life = AtomicChart(interlock.loads(LIFECYCLE_YAML), shared)
    assert not life.wait_ended(timeout=0.01)
    threading.Timer(0.01, lambda: life.send("lifecycle.aborted")).start()
    assert life.wait_ended(timeout=PATIENCE_SECONDS)

    async def wait() -> None:
        await life.ended()
        with pytest.raises(UsageError):
            life.wait_ended(timeout=1)

    asyncio.run(wait())


async def test_async_with_returns_a_permit_of_a_chart(shared: MemoryRegion) -> None:
    life = AtomicChart(interlock.loads(LIFECYCLE_YAML), shared)
    life.send("lifecycle.started")
    async with life.enter():
        assert 1 == life.permits

    assert 0 == life.permits
    assert "running" in repr(life)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("a: {on: {go: b}}, b: {on: {back: a}}, c: {type: final}", "word.backward"),
        ("a: {on: {go: b, again: {target: a, reenter: true}}}, b: {type: final}", "word.backward"),
        ("a: {on: {go: b}}, b: {}", "word.final"),
        ("a: {initial: x, states: {x: {}}, on: {go: b}}, b: {type: final}", "word.flat"),
        ("a: {after: {1s: b}}, b: {type: final}", "word.timer"),
        ("a: {invoke: {src: x, onDone: b}}, b: {type: final}", "word.invoke"),
        ("a: {always: b}, b: {type: final}", "word.eventless"),
        ('a: {on: {go: {target: b, guard: "= event.data.x"}}}, b: {type: final}', "word.guard"),
        ("a: {on: {go: {target: b, guard: is_late}}}, b: {type: final}", "word.guard"),
        ("a: {on: {go: {target: b, roles: [x]}}}, b: {type: final}", "word.roles"),
        ("a: {on: {go: {actions: [x]}, end: b}}, b: {type: final}", "word.targetless"),
        ("a: {entry: [x], on: {go: b}}, b: {type: final}", "word.entry"),
        ("a: {on: {go: {target: b, actions: [{raise: more}]}}}, b: {type: final}", "word.action"),
        ("a: {tags: [admits], on: {go: b}}, b: {type: final}", "word.tags"),
        ("a: {on: {go: b}}, b: {tags: [drains], on: {go: c}}, c: {type: final}", "word.tags"),
        (
            "a: {tags: [admits], on: {go: b, stop: c}}, b: {tags: [drains], on: {go: c}}, c: {type: final}",
            "word.undrained",
        ),
        (
            "a: {tags: [admits], on: {go: b}}, b: {tags: [drains], on: {go: c, stop: c}}, c: {type: final}",
            "word.drains",
        ),
        ('a: {tags: [admits], on: {go: b}}, b: {tags: [drains], on: {"*": c}}, c: {type: final}', "word.drains"),
    ],
)
def test_states_that_do_not_fit_are_refused(states: str, expected: str) -> None:
    """Each reason has its code, and there is no other."""
    assert [expected] == reasons(f"initial: a\nstates: {{{states}}}")


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("initial: b", "word.initial"),
        ("initial: a\nunhandled: defer", "word.defer"),
        ("initial: a\ncontext: {n: {type: integer, default: 0}}", "word.context"),
        ("initial: a\non: {stop: c}", "word.root_transition"),
        ("initial: {target: a, actions: [x]}", "word.root_actions"),
        ("initial: a\nevents: {go: {roles: [x]}}", "word.roles"),
    ],
)
def test_settings_of_the_whole_chart_must_fit(root: str, expected: str) -> None:
    """A word has no context, no queue and no principals."""
    assert [expected] == reasons(f"{root}\nstates: {{a: {{on: {{go: c}}}}, b: {{on: {{go: c}}}}, c: {{type: final}}}}")


def test_all_reasons_are_reported_together_with_their_places(shared: MemoryRegion) -> None:
    text = """\
initial: draft
states:
  draft: {on: {go: paid}, after: {1s: paid}}
  paid:
    tags: [admits]
    on: {refund: draft, end: over}
  over: {}
"""
    with pytest.raises(DefinitionError) as caught:
        AtomicChart(interlock.loads(HEAD + text, source="order.yaml"), shared)
    found = {each.code: each for each in caught.value.diagnostics}

    assert {"word.timer", "word.backward", "word.final", "word.tags"} <= set(found)
    assert "targets an earlier state (`draft`): a word only moves forward" in str(found["word.backward"])
    assert str(found["word.backward"]).startswith("order.yaml:9:")


def test_an_event_of_the_last_exit_that_needs_a_payload_is_refused(shared: MemoryRegion) -> None:
    others = ("drain.requested", "lifecycle.started", "lifecycle.aborted")
    declared = "{work.emptied: {payload: {n: integer}}, " + ", ".join(f"{name}: {{}}" for name in others) + "}"
    text = LIFECYCLE_YAML.replace("initial: init", f"events: {declared}\ninitial: init")
    with pytest.raises(DefinitionError) as caught:
        AtomicChart(interlock.loads(text), shared)

    assert "word.drains" == caught.value.diagnostics[0].code


def test_a_tag_on_two_states_is_refused() -> None:
    states = "a: {tags: [admits], on: {go: b}}, b: {tags: [admits], on: {go: c}}, c: {tags: [drains], on: {go: d}}"

    assert {"word.tags", "word.undrained"} == set(reasons(f"initial: a\nstates: {{{states}, d: {{type: final}}}}"))


def test_a_parallel_chart_is_refused() -> None:
    assert "word.root" in reasons("type: parallel\nstates: {a: {}, b: {}}")


@pytest.mark.parametrize("name", ["done", "error.x", "_x"])
def test_a_reserved_name_is_refused(shared: MemoryRegion, name: str) -> None:
    hall = AtomicChart(interlock.loads(TURNSTILE), shared)
    with pytest.raises(UsageError) as caught:
        hall.send(name)

    assert "event.reserved" == caught.value.code


@settings(max_examples=30)
@given(events=st.lists(st.sampled_from(["coin.paid", "coin.refused", "closing", "hall.emptied", "day.ended"])))
def test_a_word_handles_events_like_an_entity(events: list[str]) -> None:
    """Except that a drain without permits needs no `hall.emptied`."""
    chart = interlock.loads(TURNSTILE)
    snapshot = chart.start(entity="e").snapshot
    with MemoryRegion.create(slots=1) as region:
        hall = AtomicChart(chart, region)
        for event in events:
            step = chart.step(snapshot, event)
            assert step.outcome == hall.send(event).outcome
            snapshot = step.snapshot
            if snapshot.configuration == ("emptying",):
                snapshot = chart.step(snapshot, "hall.emptied").snapshot
            assert snapshot.configuration == (hall.state,)
