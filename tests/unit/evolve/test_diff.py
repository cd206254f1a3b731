"""The differences between two definitions: about a hundred pairs, their classification, and what that promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from interlock.assemble.charts import get_format, read_file
from interlock.compiler.build import compile_document
from interlock.definition.shapes import Choice, Key
from interlock.errors import RejectedError, UsageError
from interlock.evolve.changes import RULES
from interlock.evolve.diff import diff_documents
from interlock.evolve.identity import behaviour_name
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.document.document import Document, State
from interlock.model.step import Step
from tests.conformance.roundtrip.senders import ChartSender, Vocabulary
from tests.conformance.roundtrip.twins import made_assigns, made_guards
from tests.properties.charts import document as random_document
from tests.unit.evolve.pair_files import FOLDER, Pair, all_pairs, line, read_pairs
from tests.unit.evolve.test_identity import ROWS, another, edit, find

FILES = sorted(FOLDER.glob("*.txt"))
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PAIRS = all_pairs()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_pair_has_its_classification(path: Path, rewrite: bool) -> None:
    heading, pairs = read_pairs(path)
    found = [
        Pair(each.title, each.before, each.after, tuple(map(line, diff_documents(*each.documents()).changes)))
        for each in pairs
    ]
    if rewrite:
        path.write_text(heading + "\n\n" + "\n".join(each.text() for each in found), encoding="utf-8")

    assert [each.text() for each in found] == [each.text() for each in pairs] or rewrite


def test_the_pairs_show_every_kind_of_change() -> None:
    """All but a script, which only a trusted language compiles."""
    shown = {each.split()[1] for pair in PAIRS.values() for each in pair.changes}

    # a script needs a trusted chart; retention is not part of a behaviour, and has a separate test
    assert {"chart.script", "retention.shorter", "retention.longer"} == RULES.keys() - shown
    assert shown <= RULES.keys()


def test_the_reference_lists_every_kind_of_change() -> None:
    page = (EXAMPLES.parent / "docs" / "reference" / "changes.md").read_text(encoding="utf-8")
    words = {"none": "same", "safe": "safe", "care": "with care", "breaking": "breaking"}
    rows = [f"| `{code}` | {words[rule.review]} | {rule.reason} | {rule.carry}" for code, rule in RULES.items()]

    assert [] == [row for row in rows if row not in page]
    assert len(RULES) == page.count("\n| `")


def test_a_definition_does_not_differ_from_itself() -> None:
    for path in sorted(EXAMPLES.glob("*.interlock.yaml")):
        found = read_file(path).document
        assert found is not None
        assert ((), "none") == (diff_documents(found, found).changes, diff_documents(found, found).review)


def test_a_rename_that_is_not_declared_is_proposed() -> None:
    found = diff_documents(*PAIRS["states: rename a state, not declared"].documents()).changes

    assert ["renamed: {b: c}" in (each.hint or "") for each in found if each.code == "state.removed"] == [True]


def test_affected_states_have_their_old_ids() -> None:
    """Removed states are listed with everything in them, renamed ones under the name that entities have."""
    removed = diff_documents(*PAIRS["states: remove a state with everything in it"].documents()).changes
    renamed = diff_documents(*PAIRS["states: rename a state, declared"].documents()).changes

    assert ("b", "b.x", "b.y") == removed[0].states
    assert ("b",) == renamed[0].states


def test_names_that_programs_must_register_first_are_listed() -> None:
    found = diff_documents(*PAIRS["invokes: another handler"].documents())

    assert ("toil",) == found.new_names


def test_definitions_that_cannot_be_compared_are_refused() -> None:
    one = Document(kind="one", root=State(states=(State(key="a"),)))
    other = Document(kind="other", root=State(states=(State(key="a"),)))
    broken = Document(kind="one", root=State())
    for before, after, code in ((one, other, "diff.kind"), (one, broken, "diff.definition")):
        with pytest.raises(UsageError) as caught:
            diff_documents(before, after)
        assert code == caught.value.code


# What the classes promise


def kernels(pair: Pair) -> tuple[Kernel, Kernel, Chart]:
    """Kernels of both charts, with guards that are made from the name alone."""
    found = diff_documents(*pair.documents())
    old, new = found.old, found.new
    made = [Kernel(each, guards=made_guards(each), assigns=made_assigns(each, each)) for each in (old, new)]
    return made[0], made[1], old


def seen(step: Step, fields: frozenset[str]) -> dict[str, Any]:
    """The part of a step that a journal or an observer sees; of the context only these fields."""
    snapshot = step.snapshot
    return {
        "outcome": step.outcome,
        "configuration": snapshot.configuration,
        "ended": snapshot.ended,
        "context": {name: value for name, value in snapshot.context.items() if name in fields},
        "timers": [(each.event, each.due_ms) for each in snapshot.timers],
        "effects": [(each.type, each.name, each.payload) for each in step.effects],
    }


def lives(pair: Pair, seeds: int) -> Iterator[tuple[list[str], bool]]:
    """Random lives of one entity on both charts: the events so far, and whether the last step differed.

    Events that the old chart rejects are not part of a life: no journal has them.
    """
    old, new, chart = kernels(pair)
    words = Vocabulary(chart)
    fields = frozenset(each.name for state in chart.states for each in state.context)
    for seed in range(seeds):
        sender, trail = ChartSender(words, Random(seed)), list[str]()
        context = sender.context()
        before = old.start(context, entity="k/1", time_ms=1_000)
        try:
            after = new.start(context, entity="k/1", time_ms=1_000)
        except RejectedError:
            yield trail, True
            continue
        for _ in range(8):
            yield trail, seen(before, fields) != seen(after, fields)
            event = sender.event(before.snapshot)
            stepped = old.step(before.snapshot, event)
            if stepped.outcome in ("rejected", "denied"):
                continue
            trail.append(event.name)
            before, after = stepped, new.step(after.snapshot, event)
        yield trail, seen(before, fields) != seen(after, fields)


def reviews(pair: Pair) -> set[str]:
    """The classes of a pair's changes."""
    return {each.split()[0] for each in pair.changes}


@pytest.mark.parametrize("name", [name for name, pair in PAIRS.items() if reviews(pair) <= {"none", "safe"}])
def test_a_safe_change_gives_the_same_answers_to_old_events(name: str) -> None:
    assert [] == [trail for trail, differs in lives(PAIRS[name], 30) if differs]


BREAKING = [
    "chart: the order of monotonic states",
    "data: declare events",
    "data: remove an event",
    "data: remove a field from a payload",
    "data: add a required field to a payload",
    "data: a narrower payload",
    "data: add a required field",
    "invokes: another handler",
    "invokes: an unnamed invoke in front of another one",
    "invokes: remove an invoke",
    "sagas: add a step in front",
    "sagas: reorder steps",
    "sagas: another call",
    "states: add a region",
    "states: compound to parallel",
    "states: final to atomic",
    "states: remove a state",
    "transitions: remove the last transition for an event",
]


@pytest.mark.parametrize("name", BREAKING)
def test_a_breaking_change_gives_another_answer_to_some_old_events(name: str) -> None:
    assert "breaking" in reviews(PAIRS[name])
    assert any(differs for _, differs in lives(PAIRS[name], 200))


def edited(before: Document, makes: type[Any], key: Key) -> Document | None:
    """The document with one key edited; None if it has no such key, or the result does not compile."""
    path = find(before, makes, key.attribute)
    if path is None or key.name in ("kind", "dialect", "monotonic"):
        return None
    shape = key.shape
    options = shape.options if isinstance(shape, Choice) else ()
    made: Document = edit(before, path, lambda value: next((each for each in options if each != value), another(value)))
    form = get_format("json")
    reading = form.read(form.write(made).text, source="edited")
    if any(each.severity == "error" for each in reading.diagnostics) or compile_document(made).chart is None:
        return None
    return made


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 16, 4))
def test_every_change_of_behaviour_is_reported(first: int) -> None:
    """Random charts and the examples with one key edited: another name of the behaviour means at least one change."""
    examples = [read_file(path).document for path in sorted(EXAMPLES.glob("*.interlock.yaml"))]
    charts = [*(each for each in examples if each is not None), *(random_document(Random(each)) for each in range(40))]
    quiet = {"text.changed", "event.roles", "event.permit", "event.approvals", "chart.create", "chart.read"}
    quiet |= {"monotonic.order", "retention.shorter", "retention.longer"}
    wrong, compared = [], 0
    for before in charts[first : first + 4]:
        for makes, key in Random(before.kind).sample(ROWS, 60):
            after = edited(before, makes, key)
            if after is None:
                continue
            compared += 1
            codes = {each.code for each in diff_documents(before, after).changes}
            is_same = behaviour_name(before) == behaviour_name(after)
            if not codes <= quiet if is_same else not codes - {"text.changed"}:
                wrong.append((before.kind, makes.__name__, key.name, codes))

    assert [] == wrong
    assert compared > 5
