"""Documents that go to SCXML and come back: examples, random charts, and documents that make no sense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given, settings

from interlock.definition.scxml.write import write_scxml
from interlock.definition.yaml.format import FORMAT as YAML
from interlock.model.document.actions import (
    Action,
    Assign,
    Block,
    Foreach,
    If,
    Send,
)
from interlock.model.document.document import Document, State, Transition
from interlock.model.document.targets import TargetIndex
from tests.properties.charts import document as random_chart
from tests.unit.definition.documents import documents
from tests.unit.definition.scxml_reading import back

EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.interlock.yaml"))
CHARTS = 60


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_comes_back_equal(path: Path) -> None:
    """YAML to SCXML to YAML gives the same document, so the same revision and the same behaviour."""
    document = YAML.read(path.read_text(), source=path.name).document
    assert document is not None
    again = YAML.read(YAML.write(back(document)).text, source=path.name).document

    assert document == back(document) == again


@pytest.mark.slow
def test_random_charts_come_back_equal() -> None:
    for seed in range(CHARTS):
        document = random_chart(Random(seed))

        assert document == back(document), f"seed {seed}"


@pytest.mark.slow
@settings(max_examples=50)
@given(document=documents())
def test_any_document_comes_back_but_for_what_has_no_meaning(document: Document) -> None:
    """Also one that does not compile: with targets that name nothing, states that hold what they cannot, odd texts."""
    tree = TargetIndex(document)
    assume(not list(tree.duplicate_ids()))
    assume("export.characters" not in {each.code for each in write_scxml(document).diagnostics})

    assert meaningful(document) == meaningful(back(document))


def meaningful(document: Document) -> Document:
    """The document without an initial in a state without children, without empty assigns and blanks around names."""
    return replace(document, root=_meaningful(document.root))


def _meaningful(state: State) -> State:
    def blocks(found: tuple[Block, ...]) -> tuple[Block, ...]:
        return tuple(map(_block, found))

    def transitions(found: tuple[Transition, ...]) -> tuple[Transition, ...]:
        return tuple(replace(each, actions=_block(each.actions)) for each in found)

    initial = state.initial if state.type == "state" and state.states else None
    saga = state.saga
    if saga is not None:
        saga = replace(
            saga,
            done=transitions(saga.done),
            compensated=transitions(saga.compensated),
            error=transitions(saga.error),
        )
    return replace(
        state,
        initial=None if initial is None else replace(initial, actions=_block(initial.actions)),
        states=tuple(map(_meaningful, state.states)),
        transitions=transitions(state.transitions),
        entry=blocks(state.entry),
        exit=blocks(state.exit),
        actions=_block(state.actions),
        invokes=tuple(
            replace(
                each,
                finalize=None if each.finalize is None else _block(each.finalize),
                done=transitions(each.done),
                error=transitions(each.error),
                src=meaningful(each.src) if isinstance(each.src, Document) else each.src,
                id_location=None if each.id_location is None else each.id_location.strip(),
            )
            for each in state.invokes
        ),
        saga=saga,
    )


def _block(block: Block) -> Block:
    made: list[Action] = []
    for action in block:
        match action:
            case Assign(values=()):
                continue
            case Assign():
                made.append(replace(action, values=tuple((path.strip(), value) for path, value in action.values)))
            case Foreach():
                index = None if action.index is None else action.index.strip(" ")
                made.append(replace(action, item=action.item.strip(" "), index=index, block=_block(action.block)))
            case If():
                branches = tuple((guard, _block(inner)) for guard, inner in action.branches)
                made.append(replace(action, branches=branches, otherwise=_block(action.otherwise)))
            case Send(id_location=str() as path):
                made.append(replace(action, id_location=path.strip()))
            case _:
                made.append(action)
    return tuple(made)
