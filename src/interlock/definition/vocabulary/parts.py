"""Blocks of the vocabulary: fields, events, invokes, sagas, and the shapes that several places share."""

from __future__ import annotations

from interlock.definition.shapes import (
    Anything,
    Boolean,
    Case,
    Cases,
    Choice,
    Key,
    ListOf,
    MapOf,
    Number,
    Record,
    Ref,
    Shape,
    Text,
)
from interlock.definition.vocabulary.actions import ACTIONS
from interlock.definition.vocabulary.names import (
    BACKOFF,
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
    TARGET,
    TEXT,
)
from interlock.model.document.field import FIELD_TYPES

TEXTS = ListOf(item=TEXT, what="a list of strings")
ROLES = ListOf(item=NAME, what="a list of roles")
TARGETS = Cases(
    what="a target or a list of targets",
    cases=(
        Case(kind="text", shape=TARGET),
        Case(kind="list", shape=ListOf(item=TARGET, min=1, what="a list of targets")),
    ),
)


def _transitions(record: str, what: str) -> Shape:
    """A target, a transition, or a list of them tried in order."""
    one = (Case(kind="text", shape=TARGET), Case(kind="mapping", shape=Ref(name=record)))
    many = ListOf(item=Cases(what="a target or a transition", cases=one), min=1, what="a list of transitions")
    return Cases(what=what, cases=(*one, Case(kind="list", shape=many)))


TRANSITIONS = _transitions("transition", "a target, a transition or a list of transitions")
AFTER = _transitions("after", "a target, a transition or a list of transitions")

_CALL_KEYS = (
    Key(name="src", shape=NAME, description="The handler that is asked.", required=True),
    Key(name="input", shape=Anything(), description="Its input."),
)
_RETRY_KEYS = (
    Key(
        name="retry", shape=Ref(name="retry"), description="How the dispatcher tries again; the chart sees one result."
    ),
    Key(name="timeout", shape=DURATION, description="How long one try may take."),
)

BLOCK_SHAPES: dict[str, Shape] = {
    "sensitive": Record(
        what="a mapping of what is sensitive",
        keys=(
            Key(
                name="fields",
                shape=ListOf(item=FIELD_PATH, what="a list of fields"),
                description="Fields masked while here.",
            ),
            Key(name="as", shape=NAME, description="The neutral name shown instead of the state's."),
            Key(name="roles", shape=ROLES, description="Who sees through."),
        ),
    ),
    "expect": Record(
        what="an expectation",
        keys=(
            Key(
                name="within",
                shape=Text(
                    what="a duration or forever",
                    pattern=f"forever|{DURATION_PATTERN}",
                    code="duration.invalid",
                    hint="write a whole number with a unit, such as 30s or 1h30m",
                ),
                description="Stuck after this long; forever: resting here is normal.",
                required=True,
            ),
            Key(name="then", shape=EVENT, description="alert (default), or an event, which nobody sends yet."),
        ),
    ),
    "invoke": Record(
        what="an invoke",
        keys=(
            Key(name="id", shape=ID, description="Names its events: done.invoke.<id>, error.invoke.<id>."),
            Key(name="idLocation", shape=TEXT, description="The context field that takes the generated id."),
            Key(
                name="src",
                shape=Cases(
                    what="a name, an expression or an inline chart",
                    cases=(
                        Case(kind="text", shape=NAME_OR_EXPRESSION),
                        Case(kind="mapping", shape=Ref(name="inline")),
                    ),
                ),
                description="The handler or chart; an inline chart; an expression giving one.",
            ),
            Key(
                name="type",
                shape=Choice(options=("handler", "chart"), expression=True),
                description="handler (default) or chart.",
            ),
            Key(name="input", shape=Anything(), description="Its input; `event` in it is the last event of the step."),
            Key(name="autoforward", shape=Boolean(), description="Whether external events are passed on to it."),
            Key(name="finalize", shape=ACTIONS, description="Run before its events are taken."),
            Key(name="onDone", shape=TRANSITIONS, description="Its result arrived."),
            Key(name="onError", shape=TRANSITIONS, description="It failed for good, or timed out."),
            *_RETRY_KEYS,
            Key(name="key", shape=Anything(), description="The idempotency key; entity/version/ordinal by default."),
            Key(
                name="onRestore",
                shape=Choice(options=("keep", "restart", "fail")),
                description="After a restart: the same key (default), a new key, or error.invoke.",
            ),
        ),
    ),
    "retry": Record(
        what="a retry policy",
        keys=(
            Key(
                name="max",
                shape=Number(whole=True, min=0),
                description="How many times it is tried again.",
                required=True,
            ),
            Key(name="backoff", shape=BACKOFF, description="The pause before the next try, growing: 1s..30s."),
            Key(name="jitter", shape=Choice(options=("full", "none")), description="Chance in the pause."),
            Key(name="on", shape=ListOf(item=NAME, what="a list of codes"), description="Only for these error codes."),
        ),
    ),
    "saga": Record(
        what="a saga",
        keys=(
            Key(
                name="steps",
                shape=ListOf(item=Ref(name="saga_step"), min=1, what="a list of saga steps"),
                description="The plan, in order.",
                required=True,
            ),
            Key(
                name="compensation",
                shape=Choice(options=("reverse", "parallel", "none")),
                description="How done steps are compensated; reverse by default.",
            ),
            Key(name="onDone", shape=TRANSITIONS, description="Every step is done."),
            Key(name="onCompensated", shape=TRANSITIONS, description="A step failed; the done ones are compensated."),
            Key(name="onError", shape=TRANSITIONS, description="A compensation failed too, or there is none."),
        ),
    ),
    "saga_step": Record(
        what="a saga step",
        keys=(
            Key(name="id", shape=KEY, description="Names the step and its state.", required=True),
            Key(name="if", shape=Ref(name="guard"), description="Skipped unless this holds."),
            Key(name="do", shape=Ref(name="saga_call"), description="What is asked.", required=True),
            Key(name="compensate", shape=Ref(name="compensation"), description="What answers it once done."),
            *_RETRY_KEYS,
        ),
    ),
    "saga_call": Record(
        what="the call of a saga step",
        keys=(
            *_CALL_KEYS,
            Key(name="output", shape=FIELD_PATH, description="The nullable context field that takes the result."),
            Key(name="key", shape=Anything(), description="The idempotency key."),
        ),
    ),
    "compensation": Record(what="a compensation", keys=_CALL_KEYS),
}

FIELD_SHAPES: dict[str, Shape] = {
    "field": Cases(
        what="a type or a field",
        cases=(
            Case(kind="text", shape=Choice(options=FIELD_TYPES)),
            Case(kind="mapping", shape=Ref(name="field_mapping")),
        ),
    ),
    "field_mapping": Record(
        what="a field",
        keys=(
            Key(name="type", shape=Choice(options=FIELD_TYPES), description="any by default."),
            Key(name="default", shape=Anything(), description="The first value, or an expression giving it."),
            Key(name="required", shape=Boolean(), description="Must be given: at creation, or in the payload."),
            Key(name="nullable", shape=Boolean(), description="May be null; without default it starts so."),
            Key(
                name="enum",
                shape=ListOf(item=Anything(), min=1, what="a list of values"),
                description="The values it may have.",
            ),
            Key(name="min", shape=Number(), description="The least number."),
            Key(name="max", shape=Number(), description="The greatest number."),
            Key(name="length_max", shape=Number(whole=True, min=0), description="Characters or items at most."),
            Key(name="items", shape=Ref(name="field"), description="What each item of an array is."),
            Key(
                name="fields",
                shape=MapOf(key=FIELD, value=Ref(name="field"), what="a mapping of fields"),
                description="The fields of an object; others are refused.",
            ),
            Key(name="description", shape=TEXT, description="For people."),
        ),
    ),
    "event": Record(
        what="an event",
        keys=(
            Key(
                name="payload",
                shape=MapOf(key=FIELD, value=Ref(name="field"), what="a mapping of fields"),
                description="Exactly these fields, required unless `required: false` or a default.",
            ),
            Key(name="roles", shape=ROLES, description="Who may send it."),
            Key(name="permit", shape=EXPRESSION, description="A policy that may also read `principal`."),
            Key(name="dedupe", shape=Anything(), description="The key that makes a repetition a duplicate."),
            Key(
                name="direction",
                shape=Choice(options=("in", "internal", "out")),
                description="in (default); internal: only raised, sent or timed by itself; out: a documented message.",
            ),
            Key(name="description", shape=TEXT, description="For people."),
        ),
    ),
}
