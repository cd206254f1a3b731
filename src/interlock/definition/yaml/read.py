"""YAML text to a document: parse, check against the vocabulary, build, and check what no shape can say.

Rule 1: all problems at once. A part that does not fit is told and left out; the rest still makes a document.
Rule 2: targets, expressions and everything else that needs the whole chart is the compiler's work; texts are kept.
"""

from __future__ import annotations

from interlock.definition.format import Reading, Resolver
from interlock.definition.shapes import Checker, Ref
from interlock.definition.source.node import Located
from interlock.definition.vocabulary.chart import FOREIGN, SHAPES
from interlock.definition.yaml.check import check_names, check_values
from interlock.definition.yaml.parse import parse_yaml
from interlock.definition.yaml.read_actions import block_of, items_of, mapping_of, plain_of, texts_of, value_of
from interlock.definition.yaml.read_blocks import (
    context_fields,
    events_of,
    expect_of,
    invokes_of,
    saga_of,
    sensitive_of,
    targets_of,
    tried_of,
)
from interlock.errors import Place
from interlock.model.diagnostics import Findings
from interlock.model.document.actions import Block
from interlock.model.document.document import Document, Initial, State


def read_yaml(text: str | bytes, /, *, source: str, resolver: Resolver | None = None) -> Reading:
    """The document of a YAML definition, with all findings. YAML refers to no other texts, so no resolver is asked."""
    del resolver
    findings = Findings()
    node = parse_yaml(text, source=source, findings=findings)
    document = None if node is None else document_of(node, source=source, findings=findings)
    return Reading(document=document, diagnostics=findings.sorted())


def document_of(node: Located, *, source: str, findings: Findings) -> Document | None:
    """The document of a parsed definition; None, with findings, when it is not even the frame of one."""
    checked = Checker(shapes=SHAPES, foreign=FOREIGN, findings=findings).check(node, Ref(name="chart"))
    if checked is None:
        return None
    document = _document(checked, mapping_of(checked)["kind"].plain(), source)
    if not findings.failed:
        check_values(document, findings)
    check_names(document, findings)
    return document


def _document(node: Located, kind: str, source: str) -> Document:
    parts = mapping_of(node)
    renamed = parts.get("renamed")
    return Document(
        kind=kind,
        root=_state("", node, node.place, kind=kind, source=source),
        revision=plain_of(parts.get("revision")),
        compatible=plain_of(parts.get("compatible")),
        dialect=plain_of(parts.get("dialect")) or "interlock",
        unhandled=plain_of(parts.get("unhandled")),
        errors=plain_of(parts.get("errors")),
        binding=plain_of(parts.get("binding")) or "early",
        events=events_of(parts.get("events")),
        script=plain_of(parts.get("script")),
        properties=plain_of(parts.get("properties")),
        renamed=() if renamed is None else tuple(renamed.plain().items()),
        source=source,
    )


def _state(key: str, node: Located, place: Place, *, kind: str, source: str) -> State:
    """A state, or the root of a document; `kind` is the document's, for the charts inside it."""
    parts = mapping_of(node)
    states = parts.get("states")

    def inline(chart: Located, name: str) -> Document:
        own = plain_of(mapping_of(chart).get("kind"))
        return _document(chart, own or f"{kind}.{name}", source)

    def child(name: str, written: Located, keys: dict[str, Place]) -> State:
        return _state(name, written, keys[name], kind=kind, source=source)

    allow = parts.get("allow")
    monotonic = parts.get("monotonic")
    return State(
        key=key,
        id=plain_of(parts.get("id")),
        type=plain_of(parts.get("type")) or "state",
        initial=_initial(parts.get("initial")),
        states=() if states is None else tuple(child(*each, states.keys) for each in mapping_of(states).items()),
        transitions=tried_of(parts),
        entry=_blocks(parts.get("entry")),
        exit=_blocks(parts.get("exit")),
        invokes=invokes_of(parts.get("invoke"), key, inline),
        context=context_fields(parts.get("context")),
        history=plain_of(parts.get("history")) or "shallow",
        targets=targets_of(parts.get("target")),
        actions=block_of(parts.get("actions")),
        output=value_of(parts.get("output")),
        saga=saga_of(parts.get("saga")),
        expect=expect_of(parts.get("expect")),
        sensitive=sensitive_of(parts.get("sensitive")),
        monotonic=None if monotonic is None else True if monotonic.value is True else texts_of(monotonic),
        allow=() if allow is None else tuple(allow.plain().items()),
        description=plain_of(parts.get("description")),
        tags=texts_of(parts.get("tags")) or (),
        meta=plain_of(parts.get("meta")),
        place=place,
    )


def _initial(node: Located | None) -> Initial | None:
    if node is None:
        return None
    if not isinstance(node.value, dict):
        return Initial(targets=targets_of(node), place=node.place)
    return Initial(
        targets=targets_of(node.value.get("target")), actions=block_of(node.value.get("actions")), place=node.place
    )


def _blocks(node: Located | None) -> tuple[Block, ...]:
    """The blocks of `entry` or `exit`: a list of actions is one, a list of lists is several."""
    items = items_of(node)
    if items and isinstance(items[0].value, list):
        return tuple(block_of(each) for each in items)
    return (block_of(node),) if items else ()
