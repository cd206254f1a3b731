"""Document to canonical YAML text.

Rule 1: `read(write(document)) == document`, for every document whose transitions stand in the order in which YAML tries
them.
Rule 2: order is meaning. Transitions that `on` cannot say in their order are written under `transitions`, which keeps
it; where even that cannot (a wildcard tried before a timer of the same state), a finding `export.order` tells so.
Rule 3: keys stand in one order, defaults are left out, and white space around expressions is not kept.
"""

from __future__ import annotations

from typing import Any

from interlock.definition.format import Writing
from interlock.definition.vocabulary.chart import SCHEMA_LINE
from interlock.definition.yaml.print import print_yaml
from interlock.definition.yaml.write_actions import block_tree, told, value_tree
from interlock.definition.yaml.write_blocks import (
    events_tree,
    expect_tree,
    fields_tree,
    invoke_tree,
    saga_tree,
    sensitive_tree,
    targets_tree,
    transition_tree,
    transitions_tree,
)
from interlock.model.diagnostics import Findings
from interlock.model.document.actions import Block
from interlock.model.document.document import Document, Initial, State, Transition


def write_yaml(document: Document) -> Writing:
    """The canonical text of a document."""
    findings = Findings()
    tree = document_tree(document, findings=findings)
    return Writing(text=f"{SCHEMA_LINE}\n{print_yaml(tree)}", diagnostics=findings.sorted())


def document_tree(document: Document, *, findings: Findings) -> dict[str, Any]:
    """The plain value that a canonical text says."""
    return {"interlock": 1, "kind": document.kind, **_chart(document, findings)}


def _chart(document: Document, findings: Findings) -> dict[str, Any]:
    root = _state(document.root, document, findings)
    head = told(
        revision=document.revision,
        compatible=document.compatible,
        dialect=None if document.dialect == "interlock" else document.dialect,
        unhandled=document.unhandled,
        errors=document.errors,
        binding=None if document.binding == "early" else document.binding,
    )
    context = told(context=root.pop("context", None))
    body = told(
        events=None if document.events is None else events_tree(document.events),
        script=document.script,
        properties=document.properties,
        renamed=dict(document.renamed) or None,
    )
    return {**head, **context, **body, **root}


def _state(state: State, document: Document, findings: Findings) -> dict[str, Any]:
    def inline(chart: Document, default: str) -> dict[str, Any]:
        tree = _chart(chart, findings)
        return tree if chart.kind == f"{document.kind}.{default}" else {"kind": chart.kind, **tree}

    invokes = [invoke_tree(each, each.id or state.key, inline) for each in state.invokes]
    return {
        **told(
            type=None if state.type == "state" else state.type,
            id=state.id,
            description=state.description,
            tags=list(state.tags) or None,
            meta=state.meta,
            allow=dict(state.allow) or None,
            expect=expect_tree(state.expect),
            sensitive=sensitive_tree(state.sensitive),
            context=fields_tree(state.context) if state.context else None,
            history=None if state.history == "shallow" else state.history,
            target=targets_tree(state.targets),
            actions=block_tree(state.actions) or None,
            monotonic=list(state.monotonic) if isinstance(state.monotonic, tuple) else state.monotonic,
            entry=_blocks(state.entry),
            exit=_blocks(state.exit),
            invoke=(invokes[0] if len(invokes) == 1 else invokes) if invokes else None,
            saga=saga_tree(state.saga),
            initial=_initial(state.initial),
        ),
        **_transitions(state, findings),
        **told(
            states={each.key: _state(each, document, findings) for each in state.states} or None,
            output=value_tree(state.output),
        ),
    }


def _blocks(blocks: tuple[Block, ...]) -> list[Any] | None:
    """`entry` or `exit`: one block as a list of actions, several (or an empty one) as a list of lists."""
    if len(blocks) == 1 and blocks[0]:
        return block_tree(blocks[0])
    return [block_tree(each) for each in blocks] or None


def _initial(initial: Initial | None) -> Any:
    if initial is None:
        return None
    targets = targets_tree(initial.targets)
    return {"target": targets, "actions": block_tree(initial.actions)} if initial.actions else targets


def _transitions(state: State, findings: Findings) -> dict[str, Any]:
    """The transitions of a state under `always after onDone on transitions`, in the order they are tried."""
    always: list[Transition] = []
    after: dict[str, list[Transition]] = {}
    done: list[Transition] = []
    on: dict[tuple[str, ...], list[Transition]] = {}
    listed: list[Transition] = []
    for each in state.transitions:
        match each.origin:
            case "always" if all(other.events for other in listed):
                always.append(each)
            case "after":
                _check_order("after", each, [*on, *(other.events for other in listed)], findings)
                after.setdefault(value_tree(each.delay), []).append(each)
            case "onDone":
                _check_order("done", each, [*on, *(other.events for other in listed)], findings)
                done.append(each)
            case "on" if each.events and not listed and (each.events not in on or each.events == [*on][-1]):
                on.setdefault(each.events, []).append(each)
            case _:
                listed.append(each)
    return told(
        always=transitions_tree(always),
        after={delay: transitions_tree(found) for delay, found in after.items()} or None,
        onDone=transitions_tree(done),
        on={", ".join(events): transitions_tree(found) for events, found in on.items()} or None,
        transitions=[_listed(each) for each in listed] or None,
    )


def _listed(transition: Transition) -> dict[str, Any]:
    return {**told(event=", ".join(transition.events) or None), **transition_tree(transition)}


def _check_order(head: str, transition: Transition, earlier: list[tuple[str, ...]], findings: Findings) -> None:
    """Tells when a transition tried earlier could take the event of this one: YAML always tries this one first."""
    if any(text.split(".", 1)[0] in ("*", head) for events in earlier for text in events):
        message = f"a wildcard is tried before this {transition.origin}, which YAML cannot say: it is written first"
        findings.warning("export.order", message, transition.place)
