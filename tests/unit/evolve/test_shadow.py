# ruff: noqa: E501  # two charts are easier to compare on one line each
"""Recorded steps next to those of another definition: what is equal, what differs, and the evidence of the report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from interlock.assemble.charts import compile_reading, loads, read_text
from interlock.compiler.build import compile_document
from interlock.errors import RejectedError
from interlock.evolve.carry import Carrier
from interlock.evolve.shadow import ShadowTally, difference_text
from interlock.evolve.step_comparison import CARRY, ERROR, EVENT, Comparison, Difference, StepComparer
from interlock.kernel.step import Kernel
from interlock.model.document.document import Document
from interlock.model.driver_events import invoke_done, invoke_failed, timer_fired, timer_moved
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, Entry
from interlock.model.limits import SHADOW_GROUPS_MAX, SHADOW_VALUE_LENGTH_MAX
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from tests.conformance.roundtrip.senders import ChartSender, Vocabulary
from tests.conformance.roundtrip.twins import made_assigns, made_guards
from tests.properties.charts import document as random_document
from tests.unit.evolve.pair_files import HEAD, all_pairs

PAIRS = all_pairs()
START_MS = 1_000


@dataclass
class Recorded:
    """The life of an entity: each entry with its step and the snapshot before."""

    kernel: Kernel
    entity: str = "k/1"
    before: list[Snapshot | None] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    time_ms: int = START_MS

    @property
    def now(self) -> Snapshot:
        """The entity as it is."""
        return self.steps[-1].snapshot

    def create(self, context: dict[str, Any] | None = None) -> Recorded:
        """Create the entity."""
        event = Event(CREATE, {"context": context or {}}, time_ms=self.time_ms)
        return self._record(event, None, self.kernel.start(context, entity=self.entity, time_ms=self.time_ms))

    def send(self, event: Event | str, data: Any = None) -> Recorded:
        """Send one event; as in a journal, a step that changes nothing is not recorded."""
        self.time_ms += 1_000
        made = event if isinstance(event, Event) else Event(event, data, time_ms=self.time_ms)
        step = self.kernel.step(self.now, made)
        return self if step.snapshot is self.now else self._record(made, self.now, step)

    def fire(self, index: int = 0) -> Recorded:
        """Fire a pending timer."""
        return self.send(timer_fired(self.now.timers[index], time_ms=self.time_ms + 1_000))

    def finish(self, data: Any = None, *, index: int = 0) -> Recorded:
        """Finish a running invoke."""
        found = self.now.invokes[index]
        return self.send(invoke_done(found.id, found.key, data, time_ms=self.time_ms + 1_000))

    def fail(self) -> Recorded:
        """Let a running invoke fail."""
        found = self.now.invokes[0]
        return self.send(invoke_failed(found.id, found.key, "broken", "x", done="no", time_ms=self.time_ms + 1_000))

    def _record(self, event: Event, before: Snapshot | None, step: Step) -> Recorded:
        after = step.snapshot
        states = () if before is None else before.configuration
        self.before.append(before)
        self.steps.append(step)
        revision = self.kernel.chart.revision
        entry = Entry(
            after.version, event, step.outcome, states, after.configuration, revision, "", effects=step.effects
        )
        self.entries.append(entry)
        return self


def document_of(text: str) -> Document:
    """The document of a chart without its first two lines."""
    found = read_text(HEAD + text, format="yaml", source="text")
    assert [] == [str(each) for each in compile_reading(found).diagnostics if each.severity == "error"], text
    assert found.document is not None
    return found.document


def kernel_of(document: Document) -> Kernel:
    """A kernel with functions for every name of the chart."""
    chart = compile_document(document).chart
    assert chart is not None
    return Kernel(chart, guards=made_guards(chart), assigns=made_assigns(chart, chart))


def comparer_of(old: str, new: str) -> StepComparer:
    """A comparer between two charts without their first two lines."""
    after = document_of(new)
    return StepComparer(Carrier(document_of(old), after, kernel_of(after)))


def compare(comparer: StepComparer, life: Recorded, *, always_carry: bool = False) -> list[Comparison]:
    """The comparison of each entry of a life."""
    found: list[Comparison] = []
    new: Snapshot | None = None
    for before, entry, step in zip(life.before, life.entries, life.steps, strict=True):
        found.append(comparer.compare(None if always_carry else new, before, entry.event, step))
        new = found[-1].next
    return found


def parts(comparisons: Iterable[Comparison]) -> list[list[str]]:
    """What differs in each comparison that differs."""
    return [[each.part for each in found.differences] for found in comparisons if found.differences]


def record(text: str) -> Recorded:
    """A new recorded entity of a chart."""
    return Recorded(kernel_of(document_of(text))).create()


# A change that keeps behaviour has no difference


@pytest.mark.parametrize(
    "name", [name for name, pair in PAIRS.items() if all(each.startswith(("safe", "none")) for each in pair.changes)]
)
def test_a_safe_change_has_no_difference_but_in_what_it_adds(name: str) -> None:
    """A safe change replays every journal with the same entries."""
    old, new = PAIRS[name].documents()
    comparer, kernel = StepComparer(Carrier(old, new, kernel_of(new))), kernel_of(old)
    for seed in range(8):
        assert [] == parts(compare(comparer, random_life(kernel, seed)))


def random_life(kernel: Kernel, seed: int, length: int = 12) -> Recorded:
    """A random life; empty if the chart refuses to start."""
    sender, life = ChartSender(Vocabulary(kernel.chart), Random(seed)), Recorded(kernel, "random/1")
    try:
        life.create(sender.context())
    except RejectedError:
        return life
    for _ in range(length):
        life.send(sender.event(life.now))
    return life


@pytest.mark.slow
def test_a_chart_does_not_differ_from_itself() -> None:
    """Also if every snapshot is carried; an entity that ended cannot be, and is not compared then."""
    compared = 0
    for seed in range(20):
        document = random_document(Random(seed))
        chart = compile_document(document).chart
        if chart is None:
            continue
        kernel = kernel_of(document)
        comparer = StepComparer(Carrier(document, document, kernel))
        life = random_life(kernel, seed)
        assert [] == parts(compare(comparer, life))
        for each in compare(comparer, life, always_carry=True):
            reasons = [one for one in each.differences if one.part != CARRY]
            assert [] == reasons, seed
            compared += each.is_compared
    assert compared > 80


REFACTORED = (
    ("context: {total: {type: integer, default: 0}}\nevents: {add: {payload: {n: integer}}, go: {}, back: {}, stop: {}}\n"
    "states: {a: {after: {60s: late}, on: {add: {actions: [{assign: {total: '= context.total + event.data.n'}}]}, go: b}},"
    " late: {description: overdue, entry: [{log: was late}], on: {go: b}},"
    " b: {invoke: {src: work, onDone: c, onError: late}, states: {x: {on: {back: y}}, y: {on: {back: x}}, h: {type: history, target: x}}, on: {stop: d}},"
    " c: {type: final}, d: {on: {back: b.h}, after: {2m: c}}}\n"),
    ("renamed: {late: overdue, b: busy}\ncontext: {total: {type: integer, default: 0}, note: {type: string, default: new}}\n"
    "events: {add: {payload: {n: integer}}, back: {}, go: {}, stop: {}, extra: {}}\n"
    "states: {a: {on: {go: busy, add: {actions: [{assign: {note: \"= 'added'\", total: '= event.data.n + context.total'}}]}}, after: {1m: overdue}},"
    " overdue: {description: after a minute, entry: [{log: was late}], on: {extra: c, go: busy}},"
    " busy: {invoke: {src: work, onDone: c, onError: overdue}, states: {x: {on: {back: y}}, y: {on: {back: x}}, h: {type: history, target: x}}, on: {stop: d}},"
    " c: {type: final}, d: {on: {back: busy.h}, after: {120s: c}}}\n"),
)  # fmt: skip


def refactored_lives() -> list[Recorded]:
    """Lives through every part of the chart that is refactored."""
    old = REFACTORED[0]
    return [
        record(old).send("add", {"n": 3}).send("go").finish(),
        record(old).fire().send("go").fail(),
        record(old).send("go").send("back").send("stop").send("back").send("back").send("stop").fire(),
    ]


@pytest.mark.parametrize("always_carry", [False, True])
def test_a_refactoring_has_no_difference(*, always_carry: bool) -> None:
    """States, timers and invokes without id have new names; a field and an event were added."""
    comparer = comparer_of(*REFACTORED)
    for life in refactored_lives():
        found = compare(comparer, life, always_carry=always_carry)
        reasons = [one for one in found if one.differences and one.differences[0].part != CARRY]
        assert [] == parts(reasons)
        assert always_carry or [] == parts(found)
    assert (frozenset(), frozenset({"note"})) == (comparer.only_old, comparer.only_new)


def test_the_record_of_a_renamed_saga_is_the_same() -> None:
    saga = "states: {a: {on: {e: s}}, s: {saga: {steps: [{id: one, do: {src: x}, compensate: {src: u}}, {id: two, do: {src: y}}], onDone: d, onError: f}}, d: {}, f: {}}\n"
    renamed = "renamed: {s: t}\n" + saga.replace("e: s}}, s:", "e: t}}, t:")
    comparer = comparer_of(saga, renamed)
    undone, ended = record(saga).send("e").finish().fail().finish(), record(saga).send("e").finish()
    for each in (undone, ended):
        each.send(Event("_cancel", time_ms=90_000, type="platform"))

    assert ["x", "y", "u"] == [each.name for step in undone.steps for each in step.effects if each.type == "invoke"]
    assert [] == parts([*compare(comparer, undone), *compare(comparer, ended)])
    assert [] == parts(compare(comparer_of(saga, saga), ended))


def test_a_given_id_stays_in_a_renamed_state() -> None:
    old = "states: {a: {on: {e: b}}, b: {invoke: {id: job, src: x, onDone: c}}, c: {}}\n"
    new = "renamed: {b: d}\n" + old.replace("e: b}}, b:", "e: d}}, d:")

    assert [] == parts(compare(comparer_of(old, new), record(old).send("e").finish()))


def test_a_step_that_a_renamed_saga_lost_is_a_difference() -> None:
    old = "states: {a: {on: {e: s}}, s: {saga: {steps: [{id: one, do: {src: x}}, {id: two, do: {src: y}}], onDone: d, onError: d}}, d: {}}\n"
    new = "renamed: {s: t}\n" + old.replace("e: s}}, s:", "e: t}}, t:").replace(", {id: two, do: {src: y}}", "")
    found = compare(comparer_of(old, new), record(old).send("e").finish())

    assert [["configuration", "effects.invoke y"]] == parts(found)


# Planted differences

SHOP = (
    "context: {total: {type: integer, default: 0}, n: {type: integer, default: 0}}\n"
    "events: {add: {payload: {price: integer}}, pay: {}, ship: {}, undo: {}, note: {}}\n"
    "states: {cart: {after: {2d: left}, on: {add: {actions: [{assign: {total: '= context.total + event.data.price', n: '= context.n + 1'}}]}, pay: [{guard: '= context.total > 10', target: paying}, {actions: [{log: too small}]}]}},"
    " left: {entry: [{do: remind, with: {n: '= context.n'}}], on: {add: cart}},"
    " paying: {invoke: {id: charge, src: charge, input: {amount: '= context.total'}, onDone: paid, onError: cart}},"
    " paid: {exit: [{emit: {type: left.paid}}], on: {ship: sent, undo: {target: cart, actions: [{send: {event: note, delay: 5s}}]}}},"
    " sent: {type: final, output: {total: '= context.total'}}}\n"
)  # fmt: skip

PLANTED: list[tuple[str, str, str, str, str]] = [
    # what, old text, new text, event, part
    ("wrong sign", "context.total + event", "context.total - event", "add", "context.total"),
    ("guard", "context.total > 10", "context.total > 20", "pay", "configuration"),
    ("target", "ship: sent", "ship: cart", "ship", "configuration"),
    ("delay of a timer", "{2d: left}", "{3d: left}", CREATE, "effects.timer after.3d.cart"),
    ("target of a timer", "{2d: left}", "{2d: sent}", "after.2d.cart", "configuration"),
    ("name of an effect", "do: remind", "do: remind2", "after.2d.cart", "effects.call remind2"),
    ("input of an effect", "{n: '= context.n'}", "{n: '= context.total'}", "after.2d.cart", "effects.call remind"),
    ("input of an invoke", "{amount: '= context.total'}", "{amount: '= context.n'}", "pay", "effects.invoke charge"),
    ("default of a field", "n: {type: integer, default: 0}", "n: {type: integer, default: 1}", CREATE, "context.n"),
    ("exit action", "exit: [{emit: {type: left.paid}}], ", "", "ship", "effects.message left.paid"),
    ("order of actions", "[{log: too small}]", "[{log: small}]", "pay", "effects.log"),
    ("delayed send", "delay: 5s", "delay: 6s", "undo", "effects.timer note"),
    ("result", "{total: '= context.total'}", "{total: '= context.n'}", "ship", "output"),
    ("payload", "{price: integer}", "{price: {type: integer, max: 15}}", "add", "outcome"),
    ("failure", "onError: cart", "onError: left", "error.invoke.charge", "configuration"),
]  # fmt: skip


def shop_lives() -> list[Recorded]:
    """Lives through the whole chart."""
    lives = [
        record(SHOP).send("add", {"price": 15}).send("pay").finish().send("ship"),
        record(SHOP).send("add", {"price": 5}).send("pay").send("add", {"price": 20}).send("pay").fail(),
        record(SHOP)
        .fire()
        .send("add", {"price": 1})
        .send("add", {"price": 30})
        .send("pay")
        .finish()
        .send("undo")
        .fire(1),
    ]
    for number, life in enumerate(lives, start=1):
        life.entity = f"k/{number}"
    return lives


def report_of(comparer: StepComparer, lives: Iterable[Recorded]) -> Any:
    """The report over some lives."""
    tally = ShadowTally(comparer.kernel.chart)
    for life in lives:
        for entry, found in zip(life.entries, compare(comparer, life), strict=True):
            tally.add(comparer, life.entity, entry, found)
        is_ended = life.now.ended is not None
        tally.add_entity(is_ended=is_ended)
        tally.add_life(life.time_ms - START_MS, is_ended=is_ended)
    return tally.report()


@pytest.mark.parametrize(("what", "old", "new", "event", "part"), PLANTED, ids=[each[0] for each in PLANTED])
def test_a_planted_difference_is_found_with_a_sample(what: str, old: str, new: str, event: str, part: str) -> None:
    assert old in SHOP, what
    report = report_of(comparer_of(SHOP, SHOP.replace(old, new)), shop_lives())
    group = next(each for each in report.groups if each.event == event and part in each.parts)

    assert "divergent" == report.verdict
    assert [each for each in group.samples[0].differences if each.startswith(f"{part}: ")]
    assert group.samples[0].entity in {"k/1", "k/2", "k/3"}
    assert 1 <= len(group.samples) <= 3


def test_without_a_difference_the_verdict_names_its_evidence() -> None:
    report = report_of(comparer_of(SHOP, SHOP), shop_lives())

    assert ("none", 0, (), 0) == (report.verdict, report.divergences, report.groups, report.other)
    assert report.is_window_full
    evidence = report.evidence
    assert (("add", "pay", "ship", "undo"), ("note",)) == (evidence.events_seen, evidence.events_missing)
    assert (9, ()) == (evidence.transitions, evidence.never_taken)
    assert (3, 1, 4_000) == (evidence.entities, evidence.ended, evidence.longest_ms)
    assert sum(len(each.entries) for each in shop_lives()) == evidence.entries == sum(evidence.revisions.values())


def test_without_a_completed_life_there_is_no_verdict() -> None:
    report = report_of(comparer_of(SHOP, SHOP), [shop_lives()[1]])

    assert ("unknown", False) == (report.verdict, report.is_window_full)
    assert ("ship", "undo", "note") == report.evidence.events_missing
    assert ("cart: after 2d → left", "left: add → cart", "paid: ship → sent", "paid: undo → cart") == tuple(
        each
        for each in report.evidence.never_taken
        if "invoke" not in each and "done" not in each and "error" not in each
    )
    assert "unknown" == report_of(comparer_of(SHOP, SHOP), []).verdict


def test_a_window_shorter_than_the_longest_life_gives_no_verdict() -> None:
    comparer, life = comparer_of(SHOP, SHOP), shop_lives()[0]
    tally = ShadowTally(comparer.kernel.chart)
    for entry, found in zip(life.entries, compare(comparer, life), strict=True):
        tally.add(comparer, life.entity, entry, found)
    tally.add_entity(is_ended=True)
    tally.add_life(5_000, is_ended=True)
    tally.add_life(99_000, is_ended=False)
    report = tally.report()

    assert ("unknown", 4_000, 5_000, 99_000) == (
        report.verdict,
        report.evidence.window_ms,
        report.evidence.longest_ms,
        report.evidence.oldest_ms,
    )


def test_a_gap_gives_no_verdict() -> None:
    comparer, life = comparer_of(SHOP, SHOP), shop_lives()[0]
    tally = ShadowTally(comparer.kernel.chart)
    for entry, found in zip(life.entries, compare(comparer, life), strict=True):
        tally.add(comparer, life.entity, entry, found)
    tally.add_entity(is_ended=True)
    tally.add_life(4_000, is_ended=True)
    assert "none" == tally.report().verdict
    tally.add_gap("revision.unknown", "missing", "k/8", about="r1")
    tally.add_gap("revision.unknown", "missing", "k/9", about="r1")
    report = tally.report()

    assert ("unknown", [("revision.unknown", 2, "k/8")]) == (
        report.verdict,
        [(each.code, each.count, each.entity) for each in report.gaps],
    )


# One difference does not become many


def test_after_a_difference_the_comparison_goes_on_from_the_recorded_snapshot() -> None:
    life = record(SHOP).send("add", {"price": 15}).send("add", {"price": 1}).send("pay").finish()
    found = compare(comparer_of(SHOP, SHOP.replace("context.total + event", "context.total - event")), life)

    assert [["context.total"], ["context.total"]] == parts(found)
    assert ["context.total: 15 -> -15", "context.total: 16 -> 14"] == [
        difference_text(each.differences[0]) for each in found if each.differences
    ]


def test_a_timer_that_was_carried_with_another_delay_is_the_same_timer() -> None:
    """The creation differs once; the timer then fires, and is moved and cancelled, under its new name."""
    old = "states: {a: {after: {2m: b}, on: {e: b}}, b: {}}\n"
    comparer = comparer_of(old, old.replace("2m", "3m"))
    fired, cancelled, moved = record(old).fire(), record(old).send("e"), record(old)
    moved.send(timer_moved(moved.now.timers[0], due_ms=500_000, since_ms=0)).fire()

    for life in (fired, cancelled, moved):
        assert [["effects.timer after.3m.a"]] == parts(compare(comparer, life)), life.entries


def test_a_timer_without_counterpart_is_a_difference_of_its_own() -> None:
    old = "states: {a: {after: {2m: b}, on: {e: b}}, b: {}}\n"
    comparer = comparer_of(old, "states: {a: {on: {e: b}}, b: {}}\n")
    moved = record(old)
    moved.send(timer_moved(moved.now.timers[0], due_ms=500_000, since_ms=0))

    assert [["effects.timer after.2m.a"], [EVENT]] == parts(compare(comparer, record(old).fire()))
    assert [["effects.timer after.2m.a"], [EVENT]] == parts(compare(comparer, moved))


def test_a_stale_timer_or_result_is_given_to_both() -> None:
    """A timer that fires twice is ignored by both, and so is the move of one that no longer exists."""
    old = "states: {a: {after: {2m: b}, invoke: {id: i, src: x}, on: {e: b}}, b: {}}\n"
    comparer, life = comparer_of(old, old), record(old)
    timer, invoke = life.now.timers[0], life.now.invokes[0]
    life.send("e")
    for event in (
        timer_fired(timer, time_ms=5_000),
        timer_moved(timer, due_ms=1, since_ms=0),
        invoke_done(invoke.id, invoke.key, None, time_ms=5_000),
    ):
        step = life.kernel.step(life.now, event)
        found = comparer.compare(None, life.now, event, step)
        assert ((), True) == (found.differences, found.new is not None)


def test_the_result_of_an_invoke_that_only_one_started_is_a_difference_of_its_own() -> None:
    """Here the invoke was replaced in the state that both entered."""
    old = "states: {a: {on: {e: b}}, b: {invoke: {id: i, src: x, onDone: c}}, c: {}}\n"
    new = "states: {a: {on: {e: b}}, b: {}, c: {}}\n"
    life = record(old).send("e").finish()
    found = compare(comparer_of(old, new), life)

    assert [["effects.invoke x"], [CARRY]] == parts(found)
    started = compare(comparer_of(old, old), record(old).send("e"))[-1].next
    assert started is not None
    stopped = started.__class__(
        **{**{name: getattr(started, name) for name in started.__struct_fields__}, "invokes": ()}
    )
    alone = comparer_of(old, old).compare(stopped, life.before[-1], life.entries[-1].event, life.steps[-1])
    assert [[EVENT]] == parts([alone])


def test_an_event_of_a_running_invoke_that_is_not_its_result_keeps_its_name() -> None:
    old = "states: {a: {invoke: {src: x, onDone: c}, on: {tick: {actions: [{log: t}]}}}, c: {}}\n"
    new = "renamed: {a: b}\nstates: {b: {invoke: {src: x, onDone: c}, on: {tick: {actions: [{log: t}]}}}, c: {}}\n"
    life = record(old)
    found = life.now.invokes[0]
    life.send(Event("tick", time_ms=3_000, invokeid=found.id, source=f"invoke/{found.key}"))

    assert [] == parts(compare(comparer_of(old, new), life))


def test_a_state_that_is_gone_stops_the_entity_until_it_leaves_it() -> None:
    old = "states: {a: {on: {e: b}}, b: {on: {e: c}}, c: {on: {e: d}}, d: {}}\n"
    new = "states: {a: {on: {e: c}}, c: {on: {e: d}}, d: {}}\n"
    life = record(old).send("e").send("e").send("e")
    found = compare(comparer_of(old, new), life)

    assert [["configuration"], [CARRY]] == parts(found)
    assert None is found[2].new
    assert () == found[3].differences


def test_an_entity_that_only_one_ended_is_not_compared_any_further() -> None:
    old = "states: {a: {on: {e: b}}, b: {saga: {steps: [{id: s, do: {src: x}, compensate: {src: u}}], onDone: c, onError: c}}, c: {type: final}}\n"
    life = record(old).send("e")
    (running,) = life.now.invokes
    life.send(Event("_cancel", time_ms=4_000, type="platform"))
    life.send(invoke_done(running.id, running.key, None, time_ms=5_000))
    same = compare(comparer_of(old, old), life)
    alone = comparer_of(old, old).compare(None, life.before[-1], life.entries[-1].event, life.steps[-1])

    assert [] == parts(same)
    assert (False, (), None) == (alone.is_compared, alone.differences, alone.new)
    tally = ShadowTally(life.kernel.chart)
    tally.add(comparer_of(old, old), "k/1", life.entries[-1], alone)
    assert (0, 1) == (tally.entries, tally.skipped)


def test_a_context_that_is_refused_is_an_error_of_the_creation() -> None:
    old = "context: {n: {type: integer, required: true}}\nstates: {a: {}}\n"
    life = Recorded(kernel_of(document_of(old))).create({"n": 30})

    assert [[ERROR]] == parts(compare(comparer_of(old, old.replace("required: true", "required: true, max: 20")), life))


def test_a_child_is_created_with_its_parent() -> None:
    text = "states: {a: {on: {e: b}}, b: {type: final, output: 3}}\n"
    life = Recorded(kernel_of(document_of(text)))
    event = Event(CREATE, {"parent": {"entity": "p/1", "invokeid": "i", "key": "p/1/2/0"}}, time_ms=START_MS)
    from interlock.model.snapshot import Parent

    life._record(
        event, None, life.kernel.start(None, entity="k/1", time_ms=START_MS, parent=Parent("p/1", "i", "p/1/2/0"))
    )
    life.send("e")

    assert "done" in [each.type for each in life.steps[-1].effects]
    assert [] == parts(compare(comparer_of(text, text), life))


def test_a_step_that_raises_is_an_error() -> None:
    """Here the snapshot of the new definition is damaged."""
    text = "states: {a: {on: {e: b}}, b: {}}\n"
    life, comparer = record(text).send("e"), comparer_of(text, text)
    bad = compare(comparer, life)[0].next
    assert bad is not None
    broken = bad.__class__(**{**{name: getattr(bad, name) for name in bad.__struct_fields__}, "configuration": ("z",)})

    assert [[ERROR]] == parts([comparer.compare(broken, life.before[1], life.entries[1].event, life.steps[1])])


def test_what_effects_do_not_show_is_compared_too() -> None:
    """The data of a delayed send, the memory of a history, the reason, the order of effects."""
    base = "states: {a: {on: {e: {target: b, actions: [{send: {event: x, delay: 5s, data: {n: 1}}}]}}}, b: {}}\n"
    assert [["timers"]] == parts(compare(comparer_of(base, base.replace("n: 1", "n: 2")), record(base).send("e")))

    memory = "states: {a: {states: {x: {on: {e: y}}, y: {states: {p: {on: {f: q}}, q: {}}}, h: {type: history, history: deep, target: x}}, on: {out: b}}, b: {on: {e: a.h}}}\n"
    flat = memory.replace("history: deep", "history: shallow")
    life = record(memory).send("e").send("f").send("out")
    assert [["history.a.h"]] == parts(compare(comparer_of(memory, flat), life))
    assert [] == parts(compare(comparer_of(memory, memory), life))

    order = "states: {a: {on: {e: {actions: [x, y]}}}}\n"
    assert [["effects.order"]] == parts(
        compare(comparer_of(order, order.replace("[x, y]", "[y, x]")), record(order).send("e"))
    )

    twice = "states: {a: {on: {e: {actions: [x]}}}}\n"
    assert [["effects.call x"]] == parts(
        compare(comparer_of(twice, twice.replace("[x]", "[x, x]")), record(twice).send("e"))
    )

    defers = "unhandled: defer\nstates: {a: {on: {go: b}}, b: {}}\n"
    assert [["reason"]] == parts(
        compare(
            comparer_of(defers, "unhandled: defer\nstates: {a: {on: {go: b, e: {target: a, reenter: true}}}, b: {}}\n"),
            record(defers).send("e"),
        )
    )


def test_an_end_that_only_one_reaches_is_a_difference() -> None:
    old = "states: {a: {on: {e: b}}, b: {}}\n"
    new = "states: {a: {on: {e: b}}, b: {type: final}}\n"

    assert [["ended"]] == parts(compare(comparer_of(old, new), record(old).send("e")))


def test_a_step_that_only_the_new_definition_counts_keeps_the_recorded_version() -> None:
    """A step may leave the version as it is; the next comparison starts from the recorded version in any case."""
    text = "states: {a: {on: {e: b}}, b: {on: {f: a}}}\n"
    life, comparer = record(text).send("e").send("f"), comparer_of(text, text)
    early = compare(comparer, life)[0].next
    assert early is not None
    late = early.__class__(**{**{name: getattr(early, name) for name in early.__struct_fields__}, "version": 7})
    found = comparer.compare(late, life.before[1], life.entries[1].event, life.steps[1])

    assert ((), 2) == (found.differences, found.next.version if found.next is not None else None)


# The report


def test_groups_are_limited_and_further_differences_counted() -> None:
    comparer, life = comparer_of(SHOP, SHOP), shop_lives()[0]
    step, tally = life.steps[0], ShadowTally(comparer.kernel.chart)
    for number in range(SHADOW_GROUPS_MAX + 5):
        entry = Entry(1, Event(f"e{number}", time_ms=9_000 - number), "applied", (), (), f"r{number}", "")
        tally.add(comparer, "k/1", entry, Comparison(recorded=step, differences=(Difference("outcome", "a", "b"),)))
        tally.add_gap("x", "y", "k/1", about=str(number))
    report = tally.report()

    assert (SHADOW_GROUPS_MAX, 5, SHADOW_GROUPS_MAX + 5) == (len(report.groups), report.other, report.divergences)
    assert SHADOW_GROUPS_MAX == len(report.evidence.revisions)
    assert (SHADOW_GROUPS_MAX + 1, 5) == (len(report.gaps), report.gaps[-1].count)


def test_a_group_has_the_first_the_last_and_three_samples_of_different_entities() -> None:
    comparer, step = comparer_of(SHOP, SHOP), shop_lives()[0].steps[0]
    tally = ShadowTally(comparer.kernel.chart)
    for number, time_ms in enumerate((5_000, 3_000, 9_000, 4_000, 4_000)):
        entry = Entry(2, Event("e", time_ms=time_ms), "applied", ("a",), ("b",), "r", "")
        found = Comparison(recorded=step, differences=(Difference("outcome", "a", "b"),))
        for _ in range(2):
            tally.add(comparer, f"k/{number}", entry, found)
    (group,) = tally.report().groups

    assert (10, 3_000, 9_000, None) == (group.count, group.first.time_ms, group.last.time_ms, group.new)
    assert ["k/0", "k/1", "k/2"] == [each.entity for each in group.samples]


def test_long_values_and_long_lists_of_parts_are_cut() -> None:
    text = difference_text(Difference("context.x", "a" * 500, {"b": "c" * 500}))
    assert len(text) == len("context.x: ") + 2 * SHADOW_VALUE_LENGTH_MAX + len(" -> ")
    comparer, tally = comparer_of(SHOP, SHOP), ShadowTally(loads(HEAD + SHOP).chart)
    many = tuple(Difference(f"context.{number}", 0, 1) for number in range(40))
    entry = Entry(2, Event("e"), "applied", (), (), "r", "")
    tally.add(comparer, "k/1", entry, Comparison(recorded=shop_lives()[0].steps[0], differences=many))

    assert tally.report().groups[0].parts[-1] == "…"


def test_a_chart_without_declared_events_says_so() -> None:
    text = "states: {a: {on: {e: b}}, b: {type: final}}\n"
    evidence = report_of(comparer_of(text, text), [record(text).send("e")]).evidence

    assert (False, (), ()) == (evidence.declares_events, evidence.events_seen, evidence.events_missing)
