"""The vocabulary `interlock: 1`: states and charts, and the table of all named shapes.

This module and its neighbours `names`, `actions` and `parts` are the only place that names a key. `shapes.py` checks
definitions against these tables, `codec.py` reads and writes documents by them, and `schema.py` prints them as JSON
Schema. The readers and writers of other formats take from them what they carry in their extensions.

Rule 1: a key that is not listed here does not exist.
Rule 2: what depends on other parts of the chart (targets, reserved names, first values of fields) is checked by the
        compiler.
Rule 3: transitions of a state are tried in the order `always`, `after`, `onDone`, `on`, `transitions`. A document whose
        transitions have another order is written with `transitions`, which keeps any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from interlock.definition.codec import LIST_OR_TRUE, Codecs, RecordCodec, text_or_expression, write_value
from interlock.definition.shapes import (
    Choice,
    Json,
    Key,
    ListOf,
    MapOf,
    NoValue,
    OneOf,
    OneOrMore,
    Option,
    Record,
    Ref,
    Scope,
    Shape,
    ShapeChecker,
    Value,
    list_or_true,
)
from interlock.definition.source.node import Node
from interlock.definition.vocabulary.actions import ACTION_SHAPES, ACTIONS
from interlock.definition.vocabulary.names import (
    DELAY,
    DESCRIPTORS,
    EVENT,
    ID,
    KEY,
    KIND,
    NAME,
    TARGET,
    TEXT,
)
from interlock.definition.vocabulary.parts import (
    AFTER,
    EVERYWHERE,
    FIELDS,
    LISTED,
    PART_SHAPES,
    SCXML_ONLY,
    SENSITIVE,
    TARGETS,
    TEXTS,
    TRANSITIONS,
    XSTATE_SMCAT,
    descriptors,
)
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.document import Document, Initial, State, Transition
from interlock.model.document.walk import value_expressions

SCHEMA_LINE = "# yaml-language-server: $schema=interlock.schema.json"
"""The first line of every definition we write, for editors; `interlock schema` prints the content of that file."""

FOREIGN_KEYS = {
    "cond": "guard",
    "onEntry": "entry",
    "onentry": "entry",
    "onExit": "exit",
    "onexit": "exit",
    "activities": "invoke",
    "data": "output",
    "datamodel": "context",
    "donedata": "output",
    "final": "type",
    "name": "kind",
    "parallel": "type",
    "timeout": "after",
    "version": "revision",
}
"""Words of other tools, and frequent mistakes, for keys of the vocabulary."""

# States


class _InitialCodec(RecordCodec):
    """A target, a list of targets, or a mapping with actions."""

    def read(self, node: Node, scope: Scope, **given: Any) -> Any:
        if isinstance(node.value, list):
            node = replace(node, value={"target": node})
        return super().read(node, scope, **given)

    def write(self, value: Any, scope: Scope) -> Any:
        tree = self.tree(value, scope)
        return tree if "actions" in tree else tree["target"]


def _initial_codec(codecs: Codecs, shape: OneOf) -> _InitialCodec:
    del shape
    return _InitialCodec(codecs, _INITIAL)


class _BlocksCodec:
    """`entry` and `exit`: a list of actions is one block, a list of lists is several."""

    def __init__(self, codecs: Codecs, shape: OneOf) -> None:
        del shape
        self.codecs = codecs

    def read(self, node: Node, scope: Scope) -> Any:
        block = self.codecs.of(ACTIONS)
        items = node.value
        assert isinstance(items, list)
        if items and isinstance(items[0].value, list):
            return tuple([block.read(each, scope) for each in items])
        return (block.read(node, scope),) if items else ()

    def write(self, value: Any, scope: Scope) -> Any:
        block = self.codecs.of(ACTIONS)
        if len(value) == 1 and value[0]:
            return block.write(value[0], scope)
        return [block.write(each, scope) for each in value]


_BLOCKS = OneOf(
    what="a list of actions, or a list of such lists",
    codec=_BlocksCodec,
    options=(
        Option(kind="list", first="list", shape=ListOf(item=ACTIONS, what="a list of blocks")),
        Option(kind="list", shape=ACTIONS),
    ),
)
_TYPE = "parallel, final or history; atomic and compound follow from `states`."
_STATES = MapOf(key=KEY, value=Ref(name="state"), min=1, keep=True, what="a mapping of states", name="key")

_INITIAL = Record(
    what="an initial transition",
    makes=Initial,
    short="target",
    keys=(
        Key(
            name="target",
            field="targets",
            shape=TARGETS,
            identity="in",
            order="kept",
            description="Where it starts.",
            required=True,
        ),
        Key(
            name="actions",
            shape=ACTIONS,
            identity="in",
            order="kept",
            description="Run when the state is entered by default.",
        ),
    ),
)


class _StateCodec(RecordCodec):
    """A state; its transitions are written under five keys."""

    def read(self, node: Node, scope: Scope, **given: Any) -> Any:
        assert isinstance(node.value, dict)
        inner = replace(scope, key=given.setdefault("key", ""))
        transitions = tuple(self._read_transitions(node.value, inner))
        return super().read(node, inner, transitions=transitions, **given)

    def _read_transitions(self, parts: dict[str, Node], scope: Scope) -> Iterator[Transition]:
        """All transitions in the order in which they are tried (rule 3)."""
        if "always" in parts:
            yield from self._read_alternatives(parts["always"], scope, origin="always")
        if "after" in parts:
            for text, each in _entries(parts["after"]):
                delay = text_or_expression(text, parts["after"].keys[text])
                yield from self._read_alternatives(each, scope, origin="after", delay=delay)
        if "onDone" in parts:
            yield from self._read_alternatives(parts["onDone"], scope, origin="onDone")
        if "on" in parts:
            for text, each in _entries(parts["on"]):
                yield from self._read_alternatives(each, scope, events=descriptors(text))
        if "transitions" in parts:
            yield from self.codecs.of(LISTED).read(parts["transitions"], scope)

    def _read_alternatives(self, node: Node, scope: Scope, **given: Any) -> Iterator[Transition]:
        codec = self.codecs.named("transition")
        for each in node.value if isinstance(node.value, list) else [node]:
            yield codec.read(each, scope, **given)

    def tree(self, value: Any, scope: Scope) -> dict[str, Any]:
        scope = replace(scope, key=value.key)
        tree = super().tree(value, scope)
        last = {key: tree.pop(key) for key in [*tree] if key in ("states", "output")}
        if scope.identity and any(True for each in value.context for _ in value_expressions(each.default)):
            # A default that is computed may read the fields before it.
            tree["context"] = self.codecs.of(FIELDS).write(value.context, replace(scope, order="kept"))
        return {**tree, **self._write_transitions(value, scope), **last}

    def _write_transitions(self, state: State, scope: Scope) -> dict[str, Any]:
        always: list[Transition] = []
        after: dict[str, list[Transition]] = {}
        done: list[Transition] = []
        on: dict[tuple[str, ...], list[Transition]] = {}
        listed: list[Transition] = []
        for each in state.transitions:
            match each.origin:
                case "always" if all(other.events for other in listed):
                    always.append(each)
                case "after" if not _is_taken("after", [*on, *(other.events for other in listed)]):
                    after.setdefault(write_value(each.delay), []).append(each)
                case "onDone" if not _is_taken("done", [*on, *(other.events for other in listed)]):
                    done.append(each)
                case "on" if each.events and not listed and (each.events not in on or each.events == [*on][-1]):
                    on.setdefault(each.events, []).append(each)
                case _:
                    listed.append(each)
        if scope.identity:
            return {"transitions": self.codecs.of(LISTED).write(state.transitions, scope)} if state.transitions else {}
        codec = self.codecs.of(TRANSITIONS)
        groups = {"always": always, "after": after, "onDone": done, "on": on, "transitions": listed}
        trees = {
            "always": codec.write(always, scope),
            "after": {delay: codec.write(found, scope) for delay, found in after.items()},
            "onDone": codec.write(done, scope),
            "on": {", ".join(events): codec.write(found, scope) for events, found in on.items()},
            "transitions": self.codecs.of(LISTED).write(listed, scope),
        }
        return {key: tree for key, tree in trees.items() if groups[key]}


def _entries(node: Node) -> Iterator[tuple[str, Node]]:
    assert isinstance(node.value, dict)
    yield from node.value.items()


def _is_taken(head: str, earlier: list[tuple[str, ...]]) -> bool:
    """Whether an earlier transition could take the event of a timer or a completion, whose key is tried first."""
    return any(text.split(".", 1)[0] in ("*", head) for events in earlier for text in events)


STATE = Record(
    what="a state",
    makes=State,
    codec=_StateCodec,
    keys=(
        Key(
            name="type",
            shape=Choice(options=("parallel", "final", "history")),
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description=_TYPE,
        ),
        Key(
            name="id",
            shape=ID,
            native=frozenset({"scxml", "xstate"}),
            identity="in",
            order="kept",
            description="The state's id; without one, its dotted path.",
        ),
        Key(
            name="description",
            shape=TEXT,
            native=XSTATE_SMCAT,
            identity="out",
            order="kept",
            description="A description for readers.",
        ),
        Key(
            name="tags",
            shape=TEXTS,
            native=XSTATE_SMCAT,
            identity="out",
            order="kept",
            description="Words that can be queried while the state is active.",
        ),
        Key(
            name="meta",
            shape=Json(),
            native=XSTATE_SMCAT,
            identity="out",
            order="kept",
            description="Any value; stored and not interpreted.",
        ),
        Key(
            name="allow",
            shape=MapOf(key=NAME, value=NAME, what="a mapping of lint codes to reasons"),
            identity="out",
            order="kept",
            description="Silences a lint for this state and the states in it, with a reason.",
        ),
        Key(
            name="expect",
            shape=Ref(name="expect"),
            identity="out",
            order="kept",
            description="When an entity counts as stuck here.",
        ),
        Key(
            name="sensitive",
            shape=SENSITIVE,
            identity="in",
            order="free",
            description="Fields masked while in this state; true or a mapping hides the state itself.",
        ),
        Key(
            name="context",
            shape=FIELDS,
            native=frozenset({"scxml", "smcat"}),
            identity="in",
            order="free",
            description="The entity's data: each field with its type and how it gets its first value.",
        ),
        Key(
            name="history",
            shape=Choice(options=("shallow", "deep")),
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="shallow (default): the children; deep: the atomic descendants.",
        ),
        Key(
            name="target",
            field="targets",
            shape=TARGETS,
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="The target before anything was recorded.",
        ),
        Key(
            name="actions",
            shape=ACTIONS,
            native=frozenset({"scxml", "smcat"}),
            identity="in",
            order="kept",
            description="The actions of the default.",
        ),
        Key(
            name="monotonic",
            shape=list_or_true(TARGET, "a list of states"),
            codec=LIST_OR_TRUE,
            identity="out",
            order="kept",
            description="Once in one of these, never again in an earlier one; true: the children in order.",
        ),
        Key(
            name="entry",
            shape=_BLOCKS,
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="Actions on entry; a list of lists makes several blocks.",
        ),
        Key(
            name="exit",
            shape=_BLOCKS,
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="Actions on exit; a list of lists makes several blocks.",
        ),
        Key(
            name="invoke",
            field="invokes",
            shape=OneOrMore(
                item=Ref(name="invoke"), min=0, what="an invoke or a list of invokes", list_what="a list of invokes"
            ),
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="A handler or child chart that runs while the state is active.",
        ),
        Key(
            name="saga",
            shape=Ref(name="saga"),
            native=SCXML_ONLY,
            identity="in",
            order="kept",
            description="Steps with compensations; compiled to child states.",
        ),
        Key(
            name="initial",
            shape=OneOf(
                what="a state, a list of states or a mapping",
                codec=_initial_codec,
                options=(
                    Option(kind="text", shape=TARGET),
                    Option(kind="list", shape=ListOf(item=TARGET, min=1, what="a list of targets")),
                    Option(kind="mapping", shape=Ref(name="initial")),
                ),
            ),
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="Where it starts; without it, in the first child.",
        ),
        Key(
            name="states",
            shape=_STATES,
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="The child states, in document order.",
        ),
        Key(
            name="output",
            shape=Value(),
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="The value of the done event.",
        ),
    ),
)
_TRANSITION_KEYS = (
    Key(
        name="always",
        shape=TRANSITIONS,
        identity="in",
        order="kept",
        description="Eventless transitions, tried whenever the entity settles.",
    ),
    Key(
        name="after",
        shape=MapOf(key=DELAY, value=AFTER, what="a mapping of delays"),
        identity="in",
        order="kept",
        description="Delay (30s, 1h30m or an expression) to what happens once the state has been active that long.",
    ),
    Key(
        name="onDone", shape=TRANSITIONS, identity="in", order="kept", description="All children of the state are done."
    ),
    Key(
        name="on",
        shape=MapOf(key=DESCRIPTORS, value=TRANSITIONS, what="a mapping of events"),
        identity="in",
        order="kept",
        description="Event (`a`, `a.*`, `a, b.*`, `*`) to what it causes; {} takes the event and does nothing.",
    ),
    Key(
        name="transitions",
        shape=LISTED,
        identity="in",
        order="kept",
        description="Transitions in the order they are tried, after those of `on`.",
    ),
)
_STATE_KEYS = {each.name: each for each in (*STATE.keys[:-2], *_TRANSITION_KEYS, *STATE.keys[-2:])}
_ABOUT = "id description tags meta allow"
_EVENTS = "always after on transitions"
_ACTING = f"{_ABOUT} expect sensitive entry exit {_EVENTS}"
_ACTIVE = f"{_ACTING} context invoke saga onDone states"


def _state(what: str, names: str, kind: Key) -> Record:
    """A state as authors write it, with some of the keys."""
    chosen = (key for name, key in _STATE_KEYS.items() if name in names.split())
    return Record(what=what, makes=State, keys=(kind, *chosen), whole=STATE, codec=_StateCodec)


def _type(option: str) -> Key:
    return Key(
        name="type", shape=Choice(options=(option,)), identity="in", order="kept", description=_TYPE, required=True
    )


_NO_TYPE = Key(
    name="type",
    shape=NoValue(
        options=("parallel", "final", "history"),
        hints=(("atomic", "remove `type`"), ("compound", "remove `type`"), ("state", "remove `type`")),
    ),
    identity="in",
    order="kept",
    description=_TYPE,
)

_STATE_SHAPES: dict[str, Shape] = {
    "state": OneOf(
        what="a state",
        options=(
            *(
                Option(kind="mapping", key="type", equals=each, shape=Ref(name=each))
                for each in ("parallel", "final", "history")
            ),
            Option(kind="mapping", shape=Ref(name="plain_state")),
        ),
    ),
    "plain_state": _state("a state", f"{_ACTIVE} monotonic initial", _NO_TYPE),
    "parallel": _state("a parallel state", _ACTIVE, _type("parallel")),
    "final": _state("a final state", f"{_ACTING} output", _type("final")),
    "history": _state("a history state", f"{_ABOUT} history target actions", _type("history")),
    "initial": _INITIAL,
}

# Charts


class _ChartCodec(RecordCodec):
    """A document: the keys of the chart and its root state, written in one mapping."""

    def read(self, node: Node, scope: Scope, **given: Any) -> Any:
        assert isinstance(node.value, dict)
        named = node.value.get("kind")
        kind = f"{scope.kind}.{scope.key}" if named is None else named.plain()
        inner = Scope(kind=kind, source=scope.source)
        root = self.codecs.of(STATE).read(node, inner)
        return super().read(node, inner, kind=kind, root=root, source=scope.source, **given)

    def write(self, value: Any, scope: Scope) -> Any:
        inner = replace(scope, kind=value.kind, key="", payload=False)
        root = self.codecs.of(STATE).write(value.root, inner)
        tree = self.tree(value, inner)
        context = {"context": root.pop("context")} if "context" in root else {}
        after_context = ("create", "read", "events", "script", "properties", "renamed", "removed", "retention")
        later = {key: tree.pop(key) for key in [*tree] if key in after_context}
        return {**tree, **context, **later, **root}


DOCUMENT = Record(
    what="a chart",
    makes=Document,
    codec=_ChartCodec,
    keys=(
        Key(
            name="revision",
            shape=TEXT,
            native=frozenset({"xstate"}),
            identity="out",
            order="kept",
            description='Label of this edition; quote it when it looks like a number: "3.1".',
        ),
        Key(
            name="compatible",
            shape=TEXT,
            identity="out",
            order="kept",
            description="Revisions whose entities may run on this chart; each is moved to it if it can be carried.",
        ),
        Key(
            name="upgrade",
            shape=Choice(options=("pinned", "safe")),
            identity="out",
            order="kept",
            description="pinned (default): entities stay on their revision; safe: they move to this one if they can.",
        ),
        Key(
            name="dialect",
            shape=Choice(options=("interlock", "scxml", "xstate")),
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="The rules that apply; written by converters.",
        ),
        Key(
            name="unhandled",
            shape=Choice(options=("reject", "ignore", "defer")),
            identity="in",
            order="kept",
            description="What happens to an event that no transition takes; reject by default.",
        ),
        Key(
            name="errors",
            shape=Choice(options=("event", "raise")),
            identity="in",
            order="kept",
            description="An error becomes an event (default), or aborts the step.",
        ),
        Key(
            name="binding",
            shape=Choice(options=("early", "late")),
            native=SCXML_ONLY,
            identity="in",
            order="kept",
            description="early (default): all fields at start; late: a state's own at its first entry.",
        ),
        Key(
            name="create",
            shape=Ref(name="create"),
            identity="out",
            order="kept",
            description="Who may create entities; no principal may if any event has roles and this is missing.",
        ),
        Key(
            name="read",
            shape=Ref(name="read"),
            identity="out",
            order="kept",
            description="Who may read entities; without it, every reader.",
        ),
        Key(
            name="events",
            shape=MapOf(key=EVENT, value=Ref(name="event"), what="a mapping of events", name="name"),
            native=frozenset({"scxml", "smcat"}),
            identity="in",
            order="free",
            description="Every event the entity knows; if present, the list is complete.",
        ),
        Key(
            name="script",
            shape=TEXT,
            native=SCXML_ONLY,
            identity="in",
            order="kept",
            description="Run once after the context is built; trusted only.",
        ),
        Key(
            name="properties",
            shape=Json(),
            identity="out",
            order="kept",
            description="Invariants and leads-to properties. Reserved: it has no effect yet.",
        ),
        Key(
            name="renamed",
            shape=MapOf(key=ID, value=ID, what="a mapping of state ids"),
            identity="out",
            order="kept",
            description="Old state id to new one, for the comparison with an earlier definition.",
        ),
        Key(
            name="removed",
            shape=Ref(name="removed"),
            identity="out",
            order="kept",
            description="States and events that were removed, until it is safe: for the comparison with a store.",
        ),
        Key(
            name="retention",
            shape=Ref(name="retention"),
            identity="out",
            order="kept",
            description="How long ended entities, and entries of living ones, are kept.",
        ),
    ),
)


def _chart(what: str, interlock: Key, kind: Key) -> Record:
    root_type = Key(
        name="type",
        shape=Choice(options=("parallel",)),
        identity="in",
        order="kept",
        description="parallel: every child state is a region.",
    )
    names = f"context {_ABOUT} {_EVENTS} sensitive monotonic initial".split()
    root = (key for name, key in _STATE_KEYS.items() if name in names)
    states = replace(_STATE_KEYS["states"], required=True)
    keys = (interlock, kind, *DOCUMENT.keys, root_type, *root, states)
    return Record(what=what, makes=Document, keys=keys, whole=DOCUMENT, codec=_ChartCodec)


_VERSION = Key(
    name="interlock", shape=Choice(options=(1,)), identity="out", order="kept", description="The vocabulary: 1."
)
_KIND = Key(
    name="kind", shape=KIND, identity="in", order="kept", description="The chart's name, and the type of its entities."
)
_DEFAULT_KIND = f"{_KIND.description} By default `<outer kind>.<invoke id or state key>`."

SHAPES: dict[str, Shape] = {
    "chart": _chart("a chart", replace(_VERSION, required=True), replace(_KIND, required=True)),
    "inline": _chart("an inline chart", _VERSION, replace(_KIND, description=_DEFAULT_KIND)),
    **_STATE_SHAPES,
    **ACTION_SHAPES,
    **PART_SHAPES,
}
"""Every named shape; `chart` is the whole definition."""

CODECS = Codecs(SHAPES)
"""How the values of the vocabulary are read and written."""


def read_definition(node: Node, *, source: str, diagnostics: Diagnostics) -> Document | None:
    """The document of a parsed definition; None if a key is missing without which there is no chart."""
    checked = ShapeChecker(shapes=SHAPES, foreign=FOREIGN_KEYS, diagnostics=diagnostics).check(node, Ref(name="chart"))
    if checked is None:
        return None
    document: Document = CODECS.named("chart").read(checked, Scope(source=source))
    return document


def write_identity(document: Document) -> dict[str, Any]:
    """The part of a definition that makes its revision, as plain JSON in which the order of mappings does not count."""
    tree: dict[str, Any] = CODECS.named("chart").write(document, Scope(identity=True))
    return {"kind": document.kind, **tree}


def write_chart(document: Document) -> dict[str, Any]:
    """The plain value of a definition, its keys in the order of the tables."""
    tree = CODECS.named("chart").write(document, Scope())
    return {"interlock": 1, "kind": document.kind, **tree}
