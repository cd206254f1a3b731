"""The vocabulary `interlock: 1`: every key, where it may stand, what it takes, and what editors say about it.

This file and its three neighbours (`vocabulary_names`, `vocabulary_actions`, `vocabulary_blocks`) are the one place for
key names and types: `shape.py` checks definitions against them, `schema.py` prints them as JSON Schema, and
`yaml_read.py` relies on them.

Rule 1: a key that is not here does not exist.
Rule 2: what depends on other parts of the chart (targets, reserved names, whether a field gets a first value) is not a
shape.
"""

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
    Never,
    Record,
    Ref,
    Shape,
)
from interlock.definition.vocabulary.actions import ACTION_SHAPES, ACTIONS
from interlock.definition.vocabulary.names import (
    DELAY,
    DESCRIPTORS,
    EVENT,
    FIELD,
    FIELD_PATH,
    ID,
    KEY,
    KIND,
    NAME,
    TARGET,
    TEXT,
)
from interlock.definition.vocabulary.parts import AFTER, BLOCK_SHAPES, FIELD_SHAPES, ROLES, TARGETS, TEXTS, TRANSITIONS

SCHEMA_LINE = "# yaml-language-server: $schema=interlock.schema.json"
"""The first line of every definition we write, for editors; `interlock schema` prints what the file must hold."""

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

_TRANSITION_KEYS = (
    Key(name="target", shape=TARGETS, description="Where it leads; without one, actions run and the state stays."),
    Key(name="guard", shape=Ref(name="guard"), description="Must hold for the transition to be chosen."),
    Key(name="actions", shape=ACTIONS, description="One block of actions, run between exit and entry."),
    Key(
        name="reenter",
        shape=Boolean(),
        description="Required exactly where the source is a target or an ancestor of one: true exits and re-enters it.",
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
    **BLOCK_SHAPES,
    **FIELD_SHAPES,
}
"""Every named shape; `chart` is the whole definition."""
