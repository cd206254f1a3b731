"""The vocabulary `interlock: 1`: every key, where it may stand, what it takes, and what editors say about it.

This is the one place for key names and types. `shape.py` checks definitions against it, `schema.py` prints it as JSON Schema,
`yaml_read.py` relies on it. See `vocabulary_names.py` for names and durations, `vocabulary_actions.py` for actions and guards.

Rule 1: a key that is not here does not exist. Rule 2: what depends on other parts of the chart (targets, reserved names,
whether a field gets a first value) is not a shape.
"""

from __future__ import annotations

from interlock.definition.shape import Anything, Boolean, Case, Cases, Choice, Key, ListOf, MapOf, Never, Number, Record, Ref, Shape, Text
from interlock.definition.vocabulary_actions import ACTION_SHAPES, ACTIONS
from interlock.definition.vocabulary_names import (
    BACKOFF,
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
    KIND,
    NAME,
    NAME_OR_EXPRESSION,
    TARGET,
    TEXT,
)
from interlock.model.field import FIELD_TYPES

SCHEMA_LINE = "# yaml-language-server: $schema=interlock.schema.json"
"""The first line of every definition we write. Editors read it; `interlock schema > interlock.schema.json` makes the file."""

FOREIGN = {
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
"""Words of other tools, and of slips seen often, for keys of ours."""

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

_TRANSITION_KEYS = (
    Key(name="target", shape=TARGETS, description="Where it leads; without one, actions run and the state stays."),
    Key(name="guard", shape=Ref(name="guard"), description="Must hold for the transition to be chosen."),
    Key(name="actions", shape=ACTIONS, description="One block of actions, run between exit and entry."),
    Key(
        name="reenter",
        shape=Boolean(),
        description="Required exactly where the source is a target or an ancestor of one: true exits and enters it again.",
    ),
    Key(name="roles", shape=ROLES, description="Who may cause this transition."),
    Key(name="description", shape=TEXT, description="For people."),
    Key(name="meta", shape=Anything(), description="Anything, kept and not interpreted."),
)

_ABOUT_KEYS = (
    Key(name="id", shape=ID, description="The state's id; without one, its dotted path."),
    Key(name="description", shape=TEXT, description="For people."),
    Key(name="tags", shape=TEXTS, description="Words that can be asked for while the state is active."),
    Key(name="meta", shape=Anything(), description="Anything, kept and not interpreted."),
    Key(
        name="allow",
        shape=MapOf(key=NAME, value=NAME, what="a mapping of lint codes to reasons"),
        description="Silences a lint from here down; says why.",
    ),
)
_SENSITIVE = Key(
    name="sensitive",
    shape=Cases(
        what="a list of fields, true or a mapping",
        cases=(
            Case(kind="list", shape=ListOf(item=FIELD_PATH, min=1, what="a list of fields")),
            Case(kind="mapping", shape=Ref(name="sensitive")),
            Case(kind="scalar", shape=Choice(options=(True,))),
        ),
    ),
    description="Fields masked while here; true or a mapping hides the state itself.",
)
_MONOTONIC = Key(
    name="monotonic",
    shape=Cases(
        what="a list of states or true",
        cases=(
            Case(kind="list", shape=ListOf(item=TARGET, min=1, what="a list of states")),
            Case(kind="scalar", shape=Choice(options=(True,))),
        ),
    ),
    description="Once in one of these, never again in an earlier one; true: the children in order.",
)
_CONTEXT = Key(
    name="context",
    shape=MapOf(key=FIELD, value=Ref(name="field"), what="a mapping of fields"),
    description="The entity's data: each field with its type and how it gets its first value.",
)
_STATES = Key(
    name="states",
    shape=MapOf(key=KEY, value=Ref(name="state"), min=1, keep=True, what="a mapping of states"),
    description="The child states, in document order.",
)
_INITIAL = Key(
    name="initial",
    shape=Cases(
        what="a state, a list of states or a mapping",
        cases=(*TARGETS.cases, Case(kind="mapping", shape=Ref(name="initial"))),
    ),
    description="Where it begins; without it, in the first child.",
)
_ROOT_TRANSITION_KEYS = (
    Key(
        name="always",
        shape=TRANSITIONS,
        description="Eventless transitions, tried whenever the entity settles.",
    ),
    Key(
        name="after",
        shape=MapOf(key=DELAY, value=AFTER, what="a mapping of delays"),
        description="Delay (30s, 1h30m or an expression) to what happens once the state has been active that long.",
    ),
)
_ON_DONE = Key(name="onDone", shape=TRANSITIONS, description="Completion of the state's children.")
_EVENT_KEYS = (
    Key(
        name="on",
        shape=MapOf(key=DESCRIPTORS, value=TRANSITIONS, what="a mapping of events"),
        description="Event (`a`, `a.*`, `a, b.*`, `*`) to what it causes; {} takes the event and does nothing.",
    ),
    Key(
        name="transitions",
        shape=ListOf(item=Ref(name="listed"), what="a list of transitions"),
        description="Transitions in the order they are tried, after those of `on`.",
    ),
)
_BLOCKS = Cases(
    what="a list of actions, or a list of such lists",
    cases=(
        Case(kind="list", first="list", shape=ListOf(item=ACTIONS, what="a list of blocks")),
        Case(kind="list", shape=ACTIONS),
    ),
)
_ENTRY_KEYS = (
    Key(name="entry", shape=_BLOCKS, description="Actions on entry; a list of lists makes several blocks."),
    Key(name="exit", shape=_BLOCKS, description="Actions on exit; a list of lists makes several blocks."),
)
_WORK_KEYS = (
    Key(
        name="invoke",
        shape=Cases(
            what="an invoke or a list of invokes",
            cases=(
                Case(kind="mapping", shape=Ref(name="invoke")),
                Case(kind="list", shape=ListOf(item=Ref(name="invoke"), what="a list of invokes")),
            ),
        ),
        description="A handler or child chart that lives as long as the state.",
    ),
    Key(name="saga", shape=Ref(name="saga"), description="Steps with compensations; compiled to child states."),
)
_EXPECT = Key(name="expect", shape=Ref(name="expect"), description="When an entity counts as stuck here.")


def _type(option: str) -> Key:
    description = "parallel, final or history; atomic and compound follow from `states`."
    return Key(name="type", shape=Choice(options=(option,)), description=description, required=True)


_NO_TYPE = Key(
    name="type",
    shape=Never(
        options=("parallel", "final", "history"),
        hints=(("atomic", "leave `type` out"), ("compound", "leave `type` out"), ("state", "leave `type` out")),
    ),
    description="parallel, final or history; atomic and compound follow from `states`.",
)
_STATE_KEYS = (*_ENTRY_KEYS, *_ROOT_TRANSITION_KEYS, _ON_DONE, *_EVENT_KEYS, *_WORK_KEYS, _EXPECT, _SENSITIVE)

_STATE_SHAPES: dict[str, Shape] = {
    "state": Cases(
        what="a state",
        cases=(
            Case(kind="mapping", key="type", equals="parallel", shape=Ref(name="parallel")),
            Case(kind="mapping", key="type", equals="final", shape=Ref(name="final")),
            Case(kind="mapping", key="type", equals="history", shape=Ref(name="history")),
            Case(kind="mapping", shape=Ref(name="plain_state")),
        ),
    ),
    "plain_state": Record(
        what="a state",
        keys=(_NO_TYPE, *_ABOUT_KEYS, _CONTEXT, *_STATE_KEYS, _MONOTONIC, _INITIAL, _STATES),
    ),
    "parallel": Record(
        what="a parallel state",
        keys=(_type("parallel"), *_ABOUT_KEYS, _CONTEXT, *_STATE_KEYS, _STATES),
    ),
    "final": Record(
        what="a final state",
        keys=(
            _type("final"),
            *_ABOUT_KEYS,
            *_ENTRY_KEYS,
            *_ROOT_TRANSITION_KEYS,
            *_EVENT_KEYS,
            _EXPECT,
            _SENSITIVE,
            Key(name="output", shape=Anything(), description="The value of the done event."),
        ),
    ),
    "history": Record(
        what="a history state",
        keys=(
            _type("history"),
            *_ABOUT_KEYS,
            Key(
                name="history",
                shape=Choice(options=("shallow", "deep")),
                description="shallow (default): the children; deep: the atomic descendants.",
            ),
            Key(name="target", shape=TARGETS, description="Where it leads before anything was recorded."),
            Key(name="actions", shape=ACTIONS, description="Content of the default."),
        ),
    ),
    "initial": Record(
        what="an initial transition",
        keys=(
            Key(name="target", shape=TARGETS, description="Where it begins.", required=True),
            Key(name="actions", shape=ACTIONS, description="Run when the state is entered by default."),
        ),
    ),
    "transition": Record(what="a transition", keys=_TRANSITION_KEYS),
    "after": Record(
        what="a delayed transition",
        keys=(
            *_TRANSITION_KEYS,
            Key(
                name="onRestore",
                shape=Choice(options=("deadline", "remaining", "restart")),
                description="What downtime means to the timer; deadline by default.",
            ),
        ),
    ),
    "listed": Record(
        what="a transition of `transitions`",
        keys=(
            Key(name="event", shape=DESCRIPTORS, description="`a`, `a.*`, `a, b.*`, `*`; none: eventless."),
            *_TRANSITION_KEYS,
        ),
    ),
}

_CALL_KEYS = (
    Key(name="src", shape=NAME, description="The handler that is asked.", required=True),
    Key(name="input", shape=Anything(), description="Its input."),
)
_RETRY_KEYS = (
    Key(name="retry", shape=Ref(name="retry"), description="How the dispatcher tries again; the chart sees one result."),
    Key(name="timeout", shape=DURATION, description="How long one try may take."),
)

_BLOCK_SHAPES: dict[str, Shape] = {
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
                    hint="write a number with a unit, such as 30s or 1h30m",
                ),
                description="Stuck after this long; forever: resting here is normal.",
                required=True,
            ),
            Key(name="then", shape=EVENT, description="alert (default), or an event that the system sends."),
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
            Key(name="max", shape=Number(whole=True, min=0), description="How many times it is tried again.", required=True),
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

_FIELD_SHAPES: dict[str, Shape] = {
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
                description="Exactly these fields, required unless `required: false` or a default; none said: anything.",
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

_CHART_KEYS = (
    Key(name="revision", shape=TEXT, description='Label of this edition; quote it when it looks like a number: "3.1".'),
    Key(name="compatible", shape=TEXT, description="Revisions whose entities may run on this chart as they are."),
    Key(
        name="dialect",
        shape=Choice(options=("interlock", "scxml", "xstate")),
        description="Whose rules decide; written by converters.",
    ),
    Key(
        name="unhandled",
        shape=Choice(options=("reject", "ignore", "defer")),
        description="What becomes of an event that no transition takes; reject by default.",
    ),
    Key(
        name="errors",
        shape=Choice(options=("event", "raise")),
        description="An error becomes an event (default), or aborts the step.",
    ),
    Key(
        name="binding",
        shape=Choice(options=("early", "late")),
        description="early (default): all fields at start; late: a state's own at its first entry.",
    ),
    _CONTEXT,
    Key(
        name="events",
        shape=MapOf(key=EVENT, value=Ref(name="event"), what="a mapping of events"),
        description="Every event the entity knows; when present it is complete.",
    ),
    Key(name="script", shape=TEXT, description="Run once after the context is built; trusted only."),
    Key(name="properties", shape=Anything(), description="Invariants and leads-to properties to verify."),
    Key(
        name="renamed",
        shape=MapOf(key=ID, value=ID, what="a mapping of state ids"),
        description="Old state id to new one.",
    ),
    Key(name="type", shape=Choice(options=("parallel",)), description="parallel: every child state is a region."),
    *_ABOUT_KEYS,
    *_ROOT_TRANSITION_KEYS,
    *_EVENT_KEYS,
    _SENSITIVE,
    _MONOTONIC,
    _INITIAL,
)
_VERSION = "The vocabulary: 1."
_KIND = "The chart's name, and the type of its entities."

SHAPES: dict[str, Shape] = {
    "chart": Record(
        what="a chart",
        keys=(
            Key(name="interlock", shape=Choice(options=(1,)), description=_VERSION, required=True),
            Key(name="kind", shape=KIND, description=_KIND, required=True),
            *_CHART_KEYS,
            Key(name="states", shape=_STATES.shape, description=_STATES.description, required=True),
        ),
    ),
    "inline": Record(
        what="an inline chart",
        keys=(
            Key(name="interlock", shape=Choice(options=(1,)), description=_VERSION),
            Key(name="kind", shape=KIND, description=f"{_KIND} By default `<outer kind>.<invoke id or state key>`."),
            *_CHART_KEYS,
            Key(name="states", shape=_STATES.shape, description=_STATES.description, required=True),
        ),
    ),
    **_STATE_SHAPES,
    **ACTION_SHAPES,
    **_BLOCK_SHAPES,
    **_FIELD_SHAPES,
}
"""Every named shape; `chart` is the whole definition."""
