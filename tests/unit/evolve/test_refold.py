# ruff: noqa: E501  # two charts are easier to compare on one line each
"""The fold of a whole life through a corrected chart: what is equal, what is corrected, and what a person must decide."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.compiler.build import compile_document
from interlock.evolve.carry import Carrier
from interlock.evolve.move import MoveReason, move_event, repeat_move
from interlock.evolve.patch import make_patch
from interlock.evolve.refold import CHANGED, LifeFold, RefoldAnswer, RefoldTally
from interlock.evolve.step_comparison import Difference, StepComparer
from interlock.model.document.document import Document
from interlock.model.journal.entry import Entry
from interlock.model.limits import SHADOW_GROUPS_MAX
from interlock.model.snapshot import Snapshot
from tests.properties.charts import document as random_document
from tests.unit.evolve.pair_files import all_pairs
from tests.unit.evolve.test_shadow import SHOP, Recorded, document_of, kernel_of, random_life, record

COUNTER = "context: {n: {type: integer, default: 0}}\nstates: {a: {on: {add: {actions: [{assign: {n: '= context.n + 1'}}]}, go: b}}, b: {on: {back: a}}}\n"
FIXED = COUNTER.replace("n + 1", "n + 2")
WITH_FIELD = COUNTER.replace("default: 0}}", "default: 0}, m: {type: integer, default: 7}}")
PAIRS = all_pairs()


class Life(Recorded):
    """A recorded life that may move to another chart."""

    def move(self, text: str, *, why: MoveReason = "upgrade", context: dict[str, Any] | None = None) -> Life:
        """Move the entity to another chart; `context` are values that a migration computes."""
        document = document_of(text)
        carrier = Carrier(_document(self), document, kernel_of(document))
        result = carrier.carry(self.now, time_ms=self.time_ms)
        assert result.step is not None, result.reasons
        after = result.step.snapshot
        return self._moved(replace(after, context=after.context | (context or {})), why, carrier.kernel)

    def refolded(self, context: dict[str, Any]) -> Life:
        """Correct the context, as an earlier refold did."""
        version = self.now.version + 1
        after = replace(self.now, version=version, moved=version, context=context)
        return self._moved(after, "refold", self.kernel)

    def undo(self, to: Snapshot) -> Life:
        """Take the last move back."""
        version = self.now.version
        after = replace(to, version=version + 1, moved=version + 1)
        return self._moved(after, "undo", self.kernel, undoes=version)

    def undo_of(self, undoes: int, after: Snapshot) -> Life:
        """Take an older move back."""
        version = self.now.version + 1
        return self._moved(replace(after, version=version, moved=version), "undo", self.kernel, undoes=undoes)

    def _moved(self, after: Snapshot, why: MoveReason, kernel: Any, undoes: int | None = None) -> Life:
        before = self.now
        event = move_event(make_patch(before, after), why=why, time_ms=self.time_ms, undoes=undoes)
        entry = Entry(
            after.version, event, "applied", before.configuration, after.configuration, after.revision, "", why
        )
        self.before.append(before)
        self.entries.append(entry)
        self.steps.append(repeat_move(self.entity, before, entry))
        self.kernel = kernel
        return self


def life_of(text: str) -> Life:
    """A new life."""
    found = Life(kernel_of(document_of(text)))
    found.create()
    return found


def _document(life: Recorded) -> Document:
    found = life.kernel.chart.document
    assert found is not None
    return found


def folded(life: Recorded, fixed: Document, *charts: Document) -> tuple[LifeFold, StepComparer]:
    """The fold of a life that these charts wrote, and the comparer of its last revision."""
    kernel = kernel_of(fixed)
    known: dict[str, StepComparer] = {}
    for each in charts:
        chart = compile_document(each).chart
        assert chart is not None
        known[chart.revision] = StepComparer(Carrier(each, fixed, kernel))
    fold = LifeFold()
    for before, entry, step in zip(life.before, life.entries, life.steps, strict=True):
        fold.add(known[entry.revision], before, entry, step)
    return fold, known[life.entries[-1].revision]


def answer(life: Recorded, fixed: str, *charts: str, **options: Any) -> RefoldAnswer:
    """The answer for a life that these charts wrote."""
    fold, comparer = folded(life, document_of(fixed), *map(document_of, charts))
    return fold.answer(comparer, life.now, written="b1.fixed", time_ms=life.time_ms, **options)


def corrected(found: RefoldAnswer) -> Snapshot:
    """The snapshot of the correction."""
    assert found.carrier is not None, found.reasons
    result = found.carrier.carry(found.snapshot, time_ms=10**9)
    assert result.step is not None, result.reasons
    return result.step.snapshot


# The same chart, and safe changes


def test_a_chart_folds_its_own_journals_to_the_same() -> None:
    folds = 0
    for seed in range(16):
        document = random_document(Random(seed))
        if compile_document(document).chart is None:
            continue
        life = random_life(kernel_of(document), seed)
        if not life.entries:  # the chart refuses to start
            continue
        fold, comparer = folded(life, document, document)
        found = fold.answer(comparer, life.now, written="b1.fixed", time_ms=life.time_ms)
        assert (None, True) == (found.first, found.is_same), seed
        folds += 1
    assert folds > 8


def test_a_change_of_no_behaviour_folds_to_the_same() -> None:
    folds = 0
    for pair in PAIRS.values():
        if pair.changes and not all(each.startswith("none") for each in pair.changes):
            continue
        old, new = pair.documents()
        for seed in range(4):
            life = random_life(kernel_of(old), seed)
            if life.entries:
                fold, comparer = folded(life, new, old)
                assert fold.answer(comparer, life.now, written="x", time_ms=life.time_ms).is_same, pair.title
                folds += 1
    assert folds > 0


def test_a_renamed_chart_folds_to_the_same() -> None:
    new = "renamed: {cart: basket, paying: charging}\n" + SHOP.replace("cart", "basket").replace("paying", "charging")
    lives = [
        record(SHOP).send("add", {"price": 15}).send("pay"),
        record(SHOP).send("add", {"price": 5}),
        record(SHOP).fire().send("add", {"price": 1}).send("add", {"price": 30}).send("pay").finish().send("ship"),
    ]

    assert [True] * 3 == [answer(each, new, SHOP).is_same for each in lives]


# Corrections


def test_an_accumulated_error_is_corrected() -> None:
    life = life_of(COUNTER).send("add").send("add").send("go")
    found = answer(life, FIXED, COUNTER)
    after = corrected(found)

    assert ((Difference("context.n", 2, 4),), ()) == (found.differences, found.reasons)
    assert found.first is not None
    assert (2, "add") == (found.first.version, found.first.event)
    assert (("b",), {"n": 4}, 5, 5, "b1.fixed") == (
        after.configuration,
        after.context,
        after.version,
        after.moved,
        after.revision,
    )


def test_an_entity_that_has_changed_is_not_overwritten() -> None:
    found = answer(life_of(COUNTER).send("add"), FIXED, COUNTER)
    assert found.carrier is not None
    later = replace(found.snapshot, version=9)

    assert (CHANGED,) == found.carrier.carry(later, time_ms=0).reasons
    assert (CHANGED,) == found.carrier.carry(replace(found.snapshot, context={"n": 9}), time_ms=0).reasons


def test_an_entity_on_the_corrected_chart_keeps_everything_else() -> None:
    """Its own revision: nothing is carried, and its timers stay as they are."""
    text = SHOP
    life = Life(kernel_of(document_of(text)))
    life.create()
    life.send("add", {"price": 5})
    wrong = replace(life.now, context={"total": 6, "n": 1})
    life.steps[-1] = replace(life.steps[-1], snapshot=wrong)
    found = answer(life, text, text)
    after = corrected(found)

    assert ({"total": 5, "n": 1}, wrong.timers) == (after.context, after.timers)
    assert found.carrier is not None
    assert () == found.carrier.states_with_new_timers(wrong)


def test_a_correction_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.evolve.refold.ENTRY_BYTES_MAX", 10)
    found = answer(life_of(COUNTER).send("add"), FIXED, COUNTER)
    assert found.carrier is not None
    result = found.carrier.carry(found.snapshot, time_ms=0)

    assert (None, 1) == (result.step, len(result.reasons))


def test_carrying_that_would_perform_an_effect_is_refused() -> None:
    """The corrected chart exits the state immediately when it is settled; that would call a handler now."""
    fixed = FIXED.replace(
        "go: b}}, b: {", "go: b}, always: {guard: '= context.n == 1', target: b, actions: [{do: call}]}}, b: {"
    )
    found = answer(life_of(COUNTER).send("add"), fixed, COUNTER)

    assert found.reasons or (found.carrier is not None and found.carrier.carry(found.snapshot, time_ms=0).reasons)


# What a person must decide


@pytest.mark.parametrize(
    ("what", "fixed", "events", "reason"),
    [
        ("outcome", FIXED.replace("go: b", "go: {guard: '= context.n > 5', target: b}"), ["add", "go"], "another outcome"),
        ("state", COUNTER.replace("go: b", "go: {actions: [{log: x}]}"), ["add", "go"], "configuration would be different"),
        ("gone", "context: {n: {type: integer, default: 1}}\nstates: {a: {on: {add: {actions: [{log: x}]}, go: {actions: [{log: x}]}}}}\n", ["go"], "cannot be carried"),
    ],
)  # fmt: skip
def test_more_than_the_context_is_reported(what: str, fixed: str, events: list[str], reason: str) -> None:
    life = life_of(COUNTER)
    for each in events:
        life.send(each)
    found = answer(life, fixed, COUNTER)

    assert found.carrier is None, what
    assert any(reason in each for each in found.reasons), found.reasons


@pytest.mark.parametrize(
    ("effect", "is_corrected"), [("do: call, with: {n: '= context.n'}", False), ("log: '= context.n'", True)]
)
def test_an_effect_that_was_performed_with_another_value_forbids_it(effect: str, is_corrected: bool) -> None:
    wrong, fixed = (each.replace("go: b", f"go: {{target: b, actions: [{{{effect}}}]}}") for each in (COUNTER, FIXED))
    found = answer(life_of(wrong).send("add").send("go"), fixed, wrong)

    assert is_corrected == (found.carrier is not None), found.reasons


def test_an_ended_entity_is_reported() -> None:
    wrong, fixed = (each.replace("b: {on: {back: a}}", "b: {type: final}") for each in (COUNTER, FIXED))
    found = answer(life_of(wrong).send("add").send("go"), fixed, wrong)
    same = answer(life_of(wrong).send("go"), fixed, wrong)

    assert (("the entity has ended (done)",), None) == (found.reasons, found.carrier)
    assert same.is_same


def test_a_result_without_counterpart_stops_the_fold() -> None:
    life = record(SHOP).send("add", {"price": 15}).send("pay").finish()
    found = answer(life, SHOP.replace("{id: charge, src: charge", "{id: other, src: other"), SHOP)

    assert found.carrier is None
    assert found.reasons


def test_a_creation_that_the_corrected_chart_refuses_stops_the_fold() -> None:
    life = Life(kernel_of(document_of(COUNTER)))
    life.create({"n": 50})
    life.send("add")
    found = answer(life, COUNTER.replace("default: 0", "default: 0, max: 9"), COUNTER)

    assert ((), True) == (found.differences, "cannot be folded" in found.reasons[0])


def test_a_later_revision_is_not_taken_back() -> None:
    found = answer(life_of(COUNTER).send("add"), FIXED, COUNTER, is_forward=False)

    assert any("saved later" in each for each in found.reasons)


# Moves


def test_a_move_with_defaults_is_applied_again() -> None:
    life = life_of(COUNTER).send("add")
    assert isinstance(life, Life)
    life.move(WITH_FIELD).send("add")
    found = answer(life, WITH_FIELD.replace("n + 1", "n + 2"), COUNTER, WITH_FIELD)

    assert {"n": 4, "m": 7} == corrected(found).context


def test_values_that_a_migration_computed_from_a_wrong_context_stop_the_fold() -> None:
    life = life_of(COUNTER).send("add")
    assert isinstance(life, Life)
    life.move(WITH_FIELD, why="migrate", context={"m": 100})
    found = answer(life, WITH_FIELD.replace("n + 1", "n + 2"), COUNTER, WITH_FIELD)
    untouched = life_of(COUNTER).send("go")
    assert isinstance(untouched, Life)
    untouched.move(WITH_FIELD, why="migrate", context={"m": 100})
    same = answer(untouched, WITH_FIELD.replace("n + 1", "n + 2"), COUNTER, WITH_FIELD)

    assert any("migration computed" in each for each in found.reasons)
    assert same.is_same  # nothing differed before it


def test_a_move_from_other_states_stops_the_fold() -> None:
    life = life_of(COUNTER).send("add").send("go")
    assert isinstance(life, Life)
    life.move(WITH_FIELD).send("back")
    found = answer(life, WITH_FIELD.replace("go: b", "go: {guard: '= context.n > 99', target: b}"), COUNTER, WITH_FIELD)

    assert any("other configuration" in each for each in found.reasons), found.reasons


def test_an_earlier_refold_is_left_out_and_so_is_its_undo() -> None:
    life = life_of(COUNTER).send("add")
    assert isinstance(life, Life)
    before = life.now
    life.refolded({"n": 50}).send("add")
    found = answer(life, FIXED, COUNTER)
    undone = life_of(COUNTER).send("add")
    assert isinstance(undone, Life)
    undone.refolded({"n": 50}).undo(before).send("add")

    assert (Difference("context.n", 51, 4),) == found.differences
    assert {"n": 4} == corrected(found).context
    assert {"n": 4} == corrected(answer(undone, FIXED, COUNTER)).context


def test_a_move_that_was_taken_back_at_once_is_folded() -> None:
    life = life_of(COUNTER).send("add")
    assert isinstance(life, Life)
    before, kernel = life.now, life.kernel
    life.move(WITH_FIELD).undo(before)
    life.kernel = kernel
    life.send("add")
    found = answer(life, FIXED, COUNTER, WITH_FIELD)

    assert {"n": 4} == corrected(found).context


def test_a_move_that_was_taken_back_later_stops_the_fold() -> None:
    life = life_of(COUNTER).send("add")
    assert isinstance(life, Life)
    before, kernel = life.now, life.kernel
    life.move(WITH_FIELD)
    at = life.now.version
    life.send("add")
    life.kernel = kernel
    life.undo_of(at, replace(before, context={"n": 2}))
    found = answer(life, FIXED, COUNTER, WITH_FIELD)

    assert any("taken back after further steps" in each for each in found.reasons)


# The report


def test_the_report_is_bounded() -> None:
    fold_answer = answer(life_of(COUNTER).send("add"), FIXED, COUNTER)
    tally = RefoldTally("k", "b1.fixed")
    many = tuple(Difference(f"context.f{number}", 1, 2) for number in range(30))
    for number in range(SHADOW_GROUPS_MAX + 5):
        tally.add(RefoldAnswer(snapshot=fold_answer.snapshot, differences=many, reasons=(f"r{number}",)), entries=1)
        tally.add_gap(f"c{number}", "x", "k/1")
    tally.add(fold_answer, entries=2, is_corrected=True)
    report = tally.report()
    tally.add(fold_answer.refused(("too large",)), entries=2)
    tally.add_gap("c0", "x", "k/2")
    again = tally.report()

    assert (SHADOW_GROUPS_MAX, 6, 1) == (len(report.groups), report.other, report.corrected)
    assert 13 == len(report.groups[0].parts)
    assert SHADOW_GROUPS_MAX >= len(report.gaps) - 1
    assert not report.is_complete
    assert (report.entities + 1, report.blocked + 1) == (again.entities, again.blocked)
    assert 2 == next(each.count for each in again.gaps if each.code == "c0")
