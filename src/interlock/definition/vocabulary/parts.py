"""Fields, events, transitions, invokes and sagas of the vocabulary, and the shapes that several places share.

Rule 1: a field of a payload is required unless it says otherwise or has a default; a field of the context is required
only if it says so.
Rule 2: an inline chart that names no kind gets `<outer kind>.<invoke id or state key>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from interlock.definition.codec import LIST_OR_TRUE, Codecs, RecordCodec, read_value, write_list, write_value
from interlock.definition.shapes import (
    Boolean,
    Choice,
    Json,
    Key,
    ListOf,
    MapOf,
    Number,
    OneOf,
    OneOrMore,
    Option,
    Record,
    Ref,
    Scope,
    Shape,
    Text,
    Value,
    list_or_true,
)
from interlock.definition.source.node import Node
from interlock.definition.vocabulary.access import ACCESS_SHAPES, ROLES
from interlock.definition.vocabulary.actions import ACTIONS, ON_RESTORE
from interlock.definition.vocabulary.names import (
    ARCHIVE,
    BACKOFF,
    DAY,
    DELAY,
    DESCRIPTORS,
    DURATION,
    DURATION_PATTERN,
    EVENT,
    EXPRESSION,
    FIELD,
    FIELD_PATH,
    ID,
    KEY,
    NAME,
    NAME_OR_EXPRESSION,
    NAME_VALUE,
    TARGET,
    TEXT,
)
from interlock.model.document.document import (
    Document,
    EventType,
    Expect,
    Invoke,
    Removed,
    Retention,
    Retry,
    Saga,
    SagaCall,
    SagaStep,
    Sensitive,
    Transition,
)
from interlock.model.document.field import FIELD_TYPES, UNSET, Field
from interlock.model.document.formats import FORMATS

TEXTS = ListOf(item=TEXT, what="a list of strings")
TARGETS = OneOrMore(item=TARGET, what="a target or a list of targets", list_what="a list of targets")

EVERYWHERE = frozenset({"scxml", "xstate", "smcat"})
XSTATE_SMCAT = frozenset({"xstate", "smcat"})
SCXML_ONLY = frozenset({"scxml"})

# Transitions

TRANSITION = Record(
    what="a transition",
    makes=Transition,
    short="target",
    keys=(
        Key(
            name="target",
            field="targets",
            shape=TARGETS,
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="The target; without one, actions run and the state stays active.",
        ),
        Key(
            name="guard",
            shape=Ref(name="guard"),
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="Must be true for the transition to be taken.",
        ),
        Key(
            name="reenter",
            shape=Boolean(),
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="Required exactly where the source is a target or an ancestor of one: "
            "true exits and re-enters it.",
        ),
        Key(
            name="actions",
            shape=ACTIONS,
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="One block of actions, run between exit and entry.",
        ),
        Key(name="roles", shape=ROLES, identity="in", order="free", description="Who may cause this transition."),
        replace(ON_RESTORE, native=frozenset()),
        Key(
            name="description",
            shape=TEXT,
            native=XSTATE_SMCAT,
            identity="out",
            order="kept",
            description="A description for readers.",
        ),
        Key(
            name="meta",
            shape=Json(),
            native=XSTATE_SMCAT,
            identity="out",
            order="kept",
            description="Any value; stored and not interpreted.",
        ),
    ),
)
_TRANSITION_NAMES = "target guard reenter actions roles description meta"


def descriptors(text: str) -> tuple[str, ...]:
    """The descriptors of `a, b.*`."""
    return tuple(each.strip() for each in text.split(","))


class _ListedCodec(RecordCodec):
    """A transition of `transitions`, which names its event, delay or completion itself."""

    def read(self, node: Node, scope: Scope, **given: Any) -> Any:
        assert isinstance(node.value, dict)
        event, delay = node.value.get("event"), node.value.get("after")
        given["events"] = () if event is None else descriptors(event.plain())
        given["origin"] = "transitions"
        if delay is not None:
            given["origin"], given["delay"] = "after", read_value(delay)
        elif "onDone" in node.value:
            given["origin"] = "onDone"
        return super().read(node, scope, **given)

    def write(self, value: Any, scope: Scope) -> Any:
        head: dict[str, Any] = {"event": ", ".join(value.events)} if value.events else {}
        if value.origin == "after":
            head = {"after": write_value(value.delay)}
        elif value.origin == "onDone":
            head = {"onDone": True}
        return {**head, **self.tree(value, scope)}


def _listed_codec(codecs: Codecs, shape: OneOf) -> _ListedCodec:
    del shape
    return _ListedCodec(codecs, TRANSITION)


def _transitions(record: str) -> OneOrMore:
    """A target, a transition, or a list of them tried in order."""
    one = OneOf(
        what="a target or a transition",
        options=(Option(kind="text", shape=TARGET), Option(kind="mapping", shape=Ref(name=record))),
    )
    what = "a target, a transition or a list of transitions"
    return OneOrMore(item=one, what=what, list_what="a list of transitions")


TRANSITIONS = _transitions("transition")
AFTER = _transitions("after")
LISTED = ListOf(item=Ref(name="listed"), what="a list of transitions")

_TRANSITION_SHAPES: dict[str, Shape] = {
    "transition": TRANSITION.select("a transition", _TRANSITION_NAMES),
    "after": TRANSITION.select("a delayed transition", f"{_TRANSITION_NAMES} onRestore"),
    "listed": OneOf(
        what="a transition of `transitions`",
        options=(
            Option(kind="mapping", key="after", shape=Ref(name="listed_after")),
            Option(kind="mapping", key="onDone", shape=Ref(name="listed_done")),
            Option(kind="mapping", shape=Ref(name="listed_event")),
        ),
        codec=_listed_codec,
    ),
    "listed_event": TRANSITION.select(
        "a transition of `transitions`",
        _TRANSITION_NAMES,
        Key(
            name="event",
            shape=DESCRIPTORS,
            identity="in",
            order="kept",
            description="`a`, `a.*`, `a, b.*`, `*`; none: eventless.",
        ),
    ),
    "listed_after": TRANSITION.select(
        "a delayed transition of `transitions`",
        f"{_TRANSITION_NAMES} onRestore",
        Key(name="after", shape=DELAY, identity="in", order="kept", description="The delay.", required=True),
    ),
    "listed_done": TRANSITION.select(
        "a transition of `transitions` for the end of the state",
        _TRANSITION_NAMES,
        Key(
            name="onDone",
            shape=Choice(options=(True,)),
            identity="in",
            order="kept",
            description="All children of the state are done.",
            required=True,
        ),
    ),
}

# Fields and events


class _FieldCodec(RecordCodec):
    """What an absent `required` means depends on where the field is (rule 1). Only the field of items has no name."""

    def read(self, node: Node, scope: Scope, **given: Any) -> Any:
        given.setdefault("name", "items")
        made = super().read(node, scope, **given)
        if isinstance(node.value, dict) and "required" in node.value:
            return made
        return replace(made, required=scope.payload and made.default is UNSET)

    def tree(self, value: Any, scope: Scope) -> dict[str, Any]:
        usual = scope.payload and value.default is UNSET
        tree = super().tree(replace(value, required=value.required != usual), scope)
        return {**tree, "required": value.required} if "required" in tree else tree

    def write(self, value: Any, scope: Scope) -> Any:
        return super().write(value, scope) or value.type


FIELDS = MapOf(key=FIELD, value=Ref(name="field"), what="a mapping of fields", name="name")

_FIELD_SHAPES: dict[str, Shape] = {
    "field": OneOf(
        what="a type or a field",
        options=(
            Option(kind="text", shape=Choice(options=FIELD_TYPES)),
            Option(kind="mapping", shape=Ref(name="field_mapping")),
        ),
    ),
    "field_mapping": Record(
        what="a field",
        makes=Field,
        short="type",
        codec=_FieldCodec,
        keys=(
            Key(
                name="type",
                shape=Choice(options=FIELD_TYPES),
                identity="in",
                order="kept",
                description="any by default.",
            ),
            Key(
                name="default",
                shape=Value(),
                identity="in",
                order="kept",
                description="The first value, or an expression giving it.",
            ),
            Key(
                name="required",
                shape=Boolean(),
                identity="in",
                order="kept",
                description="Must be given: at creation, or in the payload.",
            ),
            Key(
                name="nullable",
                shape=Boolean(),
                identity="in",
                order="kept",
                description="May be null; without default it starts so.",
            ),
            Key(
                name="enum",
                shape=ListOf(item=Json(), min=1, what="a list of values"),
                identity="in",
                order="kept",
                description="The values it may have.",
            ),
            Key(name="min", shape=Number(), identity="in", order="kept", description="The smallest number."),
            Key(name="max", shape=Number(), identity="in", order="kept", description="The largest number."),
            Key(
                name="length_max",
                shape=Number(whole=True, min=0),
                identity="in",
                order="kept",
                description="Characters or items at most.",
            ),
            Key(
                name="format",
                shape=Choice(options=FORMATS),
                identity="in",
                order="kept",
                description="How a string is written: a time, a decimal number, base64.",
            ),
            Key(
                name="items",
                shape=Ref(name="field"),
                payload=False,
                identity="in",
                order="kept",
                description="What each item of an array is.",
            ),
            Key(
                name="fields",
                shape=FIELDS,
                identity="in",
                order="free",
                description="The fields of an object; others are refused.",
            ),
            Key(
                name="index",
                shape=Boolean(),
                identity="out",
                order="kept",
                description="Find entities by this field of the root's context.",
            ),
            Key(
                name="personal",
                shape=Boolean(),
                identity="in",
                order="kept",
                description="Its value is stored sealed, and can be erased.",
            ),
            Key(name="description", shape=TEXT, identity="out", order="kept", description="A description for readers."),
        ),
    ),
    "event": Record(
        what="an event",
        makes=EventType,
        keys=(
            Key(
                name="direction",
                shape=Choice(options=("in", "internal", "out")),
                identity="in",
                order="kept",
                description="in (default); internal: only raised, sent or timed by the chart itself; "
                "out: a documented message.",
            ),
            Key(name="roles", shape=ROLES, identity="out", order="free", description="Who may send it."),
            Key(
                name="payload",
                shape=FIELDS,
                payload=True,
                identity="in",
                order="free",
                description="Exactly these fields, required unless `required: false` or a default.",
            ),
            Key(
                name="permit",
                shape=EXPRESSION,
                identity="out",
                order="kept",
                description="A policy that may also read `principal`.",
            ),
            Key(
                name="approvals",
                shape=Ref(name="approvals"),
                identity="in",
                order="kept",
                description="How many other users must have approved it before.",
            ),
            Key(
                name="dedupe",
                shape=Value(),
                identity="in",
                order="kept",
                description="The key that makes a repetition a duplicate.",
            ),
            Key(name="description", shape=TEXT, identity="out", order="kept", description="A description for readers."),
        ),
    ),
}

# Invokes and sagas


class _SourceCodec:
    """A name, an expression, or an inline chart, whose kind depends on its position (rule 2)."""

    def __init__(self, codecs: Codecs, shape: OneOf) -> None:
        del shape
        self.codecs = codecs

    def read(self, node: Node, scope: Scope) -> Any:
        return read_value(node) if isinstance(node.value, str) else self.codecs.named("inline").read(node, scope)

    def write(self, value: Any, scope: Scope) -> Any:
        if not isinstance(value, Document):
            return write_value(value)
        tree = self.codecs.named("inline").write(value, scope)
        is_usual = value.kind == f"{scope.kind}.{scope.key}" and not scope.identity
        return tree if is_usual else {"kind": value.kind, **tree}


class _InvokeCodec(RecordCodec):
    """An inline chart has the type `chart` unless another one is written; every other source is a handler."""

    defaults: ClassVar[Mapping[str, Any]] = {"type": None}

    def read(self, node: Node, scope: Scope, **given: Any) -> Any:
        assert isinstance(node.value, dict)
        name = node.value.get("id")
        made = super().read(node, scope if name is None else replace(scope, key=name.plain()), **given)
        is_chart = isinstance(made.src, Document) and "type" not in node.value
        return replace(made, type="chart") if is_chart else made

    def tree(self, value: Any, scope: Scope) -> dict[str, Any]:
        usual = "chart" if isinstance(value.src, Document) else "handler"
        written = replace(value, type=None if value.type == usual else value.type)
        return super().tree(written, replace(scope, key=value.id or scope.key))


INVOKE = Record(
    what="an invoke",
    makes=Invoke,
    codec=_InvokeCodec,
    keys=(
        Key(
            name="id",
            shape=ID,
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="Names its events: done.invoke.<id>, error.invoke.<id>.",
        ),
        Key(
            name="idLocation",
            field="id_location",
            shape=TEXT,
            native=SCXML_ONLY,
            identity="in",
            order="kept",
            description="The context field that takes the generated id.",
        ),
        Key(
            name="src",
            shape=OneOf(
                what="a name, an expression or an inline chart",
                options=(
                    Option(kind="text", shape=NAME_OR_EXPRESSION),
                    Option(kind="mapping", shape=Ref(name="inline")),
                ),
                codec=_SourceCodec,
            ),
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="The handler or chart; an inline chart; an expression giving one.",
        ),
        Key(
            name="type",
            shape=Choice(options=("handler", "chart"), expression=True),
            native=SCXML_ONLY,
            identity="in",
            order="kept",
            description="handler (default) or chart.",
        ),
        Key(
            name="input",
            shape=Value(),
            native=frozenset({"scxml", "xstate"}),
            identity="in",
            order="kept",
            description="Its input; `event` in it is the last event of the step.",
        ),
        Key(
            name="key",
            shape=Value(),
            scxml="idempotency",
            identity="in",
            order="kept",
            description="The idempotency key; entity/version/ordinal by default.",
        ),
        Key(
            name="autoforward",
            shape=Boolean(),
            native=SCXML_ONLY,
            identity="in",
            order="kept",
            description="Whether external events are forwarded to it.",
        ),
        Key(
            name="finalize",
            shape=ACTIONS,
            native=SCXML_ONLY,
            identity="in",
            order="kept",
            description="Run before its events are processed.",
        ),
        Key(
            name="retry",
            shape=Ref(name="retry"),
            identity="in",
            order="kept",
            description="How the dispatcher retries; the chart sees one result.",
        ),
        Key(name="timeout", shape=DURATION, identity="in", order="kept", description="The time limit of one attempt."),
        Key(
            name="onRestore",
            field="restore",
            shape=Choice(options=("keep", "restart", "fail")),
            default="keep",
            identity="in",
            order="kept",
            description="After a restart: the same key (default), a new key, or error.invoke.",
        ),
        Key(
            name="personal",
            shape=list_or_true(FIELD, "a list of fields"),
            codec=LIST_OR_TRUE,
            identity="in",
            order="free",
            description="The fields of its result that are personal; true: the whole result.",
        ),
        Key(
            name="onDone",
            field="done",
            shape=TRANSITIONS,
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="Its result arrived.",
        ),
        Key(
            name="onError",
            field="error",
            shape=TRANSITIONS,
            native=EVERYWHERE,
            identity="in",
            order="kept",
            description="It failed permanently, or timed out.",
        ),
    ),
)

_SRC = Key(
    name="src", shape=NAME_VALUE, identity="in", order="kept", description="The handler that is called.", required=True
)
_INPUT = Key(name="input", shape=Value(), identity="in", order="kept", description="Its input.")
_CALL = Record(
    what="the call of a saga step",
    makes=SagaCall,
    keys=(
        _SRC,
        _INPUT,
        Key(
            name="output",
            shape=FIELD_PATH,
            identity="in",
            order="kept",
            description="The nullable context field that takes the result.",
        ),
        Key(name="key", shape=Value(), identity="in", order="kept", description="The idempotency key."),
    ),
)

_WORK_SHAPES: dict[str, Shape] = {
    "invoke": INVOKE,
    "retry": Record(
        what="a retry policy",
        makes=Retry,
        keys=(
            Key(
                name="max",
                shape=Number(whole=True, min=0),
                identity="in",
                order="kept",
                description="The number of retries.",
                required=True,
            ),
            Key(
                name="backoff",
                shape=BACKOFF,
                identity="in",
                order="kept",
                description="The pause before the next attempt, growing: 1s..30s.",
            ),
            Key(
                name="jitter",
                shape=Choice(options=("full", "none")),
                identity="in",
                order="kept",
                description="Whether the pause is random.",
            ),
            Key(
                name="on",
                shape=ListOf(item=NAME, what="a list of codes"),
                identity="in",
                order="kept",
                description="Only for these error codes.",
            ),
        ),
    ),
    "saga": Record(
        what="a saga",
        makes=Saga,
        keys=(
            Key(
                name="steps",
                shape=ListOf(item=Ref(name="saga_step"), min=1, what="a list of saga steps"),
                identity="in",
                order="kept",
                description="The plan, in order.",
                required=True,
            ),
            Key(
                name="compensation",
                shape=Choice(options=("reverse", "parallel", "none")),
                identity="in",
                order="kept",
                description="How completed steps are compensated; reverse by default.",
            ),
            Key(
                name="onDone",
                field="done",
                shape=TRANSITIONS,
                identity="in",
                order="kept",
                description="All steps are done.",
            ),
            Key(
                name="onCompensated",
                field="compensated",
                shape=TRANSITIONS,
                identity="in",
                order="kept",
                description="A step failed; the completed ones are compensated.",
            ),
            Key(
                name="onError",
                field="error",
                shape=TRANSITIONS,
                identity="in",
                order="kept",
                description="A compensation failed too, or there is none.",
            ),
        ),
    ),
    "saga_step": Record(
        what="a saga step",
        makes=SagaStep,
        keys=(
            Key(
                name="id",
                shape=KEY,
                identity="in",
                order="kept",
                description="Names the step and its state.",
                required=True,
            ),
            Key(
                name="if",
                field="guard",
                shape=Ref(name="guard"),
                identity="in",
                order="kept",
                description="Skipped unless this is true.",
            ),
            Key(
                name="do",
                shape=Ref(name="saga_call"),
                identity="in",
                order="kept",
                description="The call of this step.",
                required=True,
            ),
            Key(
                name="compensate",
                shape=Ref(name="compensation"),
                identity="in",
                order="kept",
                description="The call that undoes it.",
            ),
            Key(
                name="retry",
                shape=Ref(name="retry"),
                identity="in",
                order="kept",
                description="How the dispatcher retries; the chart sees one result.",
            ),
            Key(
                name="timeout",
                shape=DURATION,
                identity="in",
                order="kept",
                description="The time limit of one attempt.",
            ),
        ),
    ),
    "saga_call": _CALL,
    "compensation": _CALL.select("a compensation", "src input"),
}

# Expectations, sensitive data, and what was removed


class _SensitiveCodec:
    """A list names masked fields; true or a mapping hides the state itself."""

    def __init__(self, codecs: Codecs, shape: OneOf) -> None:
        del shape
        self.codecs = codecs

    def read(self, node: Node, scope: Scope) -> Sensitive:
        if isinstance(node.value, list):
            return Sensitive(fields=tuple(node.plain()))
        if not isinstance(node.value, dict):
            return Sensitive(hidden=True)
        made: Sensitive = self.codecs.named("sensitive").read(node, scope, hidden=True)
        return made

    def write(self, value: Sensitive, scope: Scope) -> Any:
        if not value.hidden:
            return write_list(list(value.fields), scope)
        return self.codecs.named("sensitive").write(value, scope) or True


SENSITIVE = OneOf(
    what="a list of fields, true or a mapping",
    codec=_SensitiveCodec,
    options=(
        Option(kind="list", shape=ListOf(item=FIELD_PATH, min=1, what="a list of fields")),
        Option(kind="mapping", shape=Ref(name="sensitive")),
        Option(kind="scalar", shape=Choice(options=(True,))),
    ),
)

_NOTE_SHAPES: dict[str, Shape] = {
    "removed": Record(
        what="a mapping of what was removed",
        makes=Removed,
        keys=(
            Key(
                name="states",
                shape=MapOf(key=ID, value=DAY, what="a mapping of state ids to days"),
                identity="out",
                order="kept",
                description="State id to the day from which no entity is expected in it.",
            ),
            Key(
                name="events",
                shape=MapOf(key=EVENT, value=DAY, what="a mapping of events to days"),
                identity="out",
                order="kept",
                description="Event to the day from which no sender is expected to send it.",
            ),
        ),
    ),
    "retention": Record(
        what="a mapping of how long entities and entries are kept",
        makes=Retention,
        keys=(
            Key(
                name="ended",
                shape=DURATION,
                identity="out",
                order="kept",
                description="An entity is removed when it ended longer ago than this. Its id is never used again.",
            ),
            Key(
                name="entries",
                shape=DURATION,
                identity="out",
                order="kept",
                description="Entries of a living entity that are older than this are removed: 30d at least.",
            ),
            Key(
                name="archive",
                shape=ARCHIVE,
                identity="out",
                order="kept",
                description="A folder, such as file:///var/archive, that gets a copy before anything is removed.",
            ),
        ),
    ),
    "sensitive": Record(
        what="a mapping of what is sensitive",
        makes=Sensitive,
        keys=(
            Key(
                name="fields",
                shape=ListOf(item=FIELD_PATH, what="a list of fields"),
                identity="in",
                order="free",
                description="Fields masked while in this state.",
            ),
            Key(
                name="as",
                field="neutral",
                shape=NAME,
                identity="in",
                order="kept",
                description="The visible state that others see; the hidden state must always be entered from there.",
            ),
            Key(
                name="roles",
                shape=ROLES,
                identity="in",
                order="free",
                description="Who sees the hidden state, and may enter and leave it.",
            ),
        ),
    ),
    "expect": Record(
        what="an expectation",
        makes=Expect,
        keys=(
            Key(
                name="within",
                shape=Text(
                    what="a duration or forever",
                    pattern=f"forever|{DURATION_PATTERN}",
                    code="duration.invalid",
                    hint="write a whole number with a unit, such as 30s or 1h30m",
                ),
                identity="out",
                order="kept",
                description="Stuck after this long; forever: waiting here is normal.",
                required=True,
            ),
            Key(
                name="then",
                shape=EVENT,
                identity="out",
                order="kept",
                description="alert (default), or an event that the entity gets once it is stuck.",
            ),
        ),
    ),
}

PART_SHAPES: dict[str, Shape] = {**ACCESS_SHAPES, **_TRANSITION_SHAPES, **_FIELD_SHAPES, **_WORK_SHAPES, **_NOTE_SHAPES}
"""The named shapes of this module."""
