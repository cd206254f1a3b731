"""Actions and guards of the vocabulary: each by the key that marks it."""

from __future__ import annotations

from interlock.definition.shapes import Anything, Case, Cases, Choice, Key, ListOf, MapOf, Record, Ref, Shape
from interlock.definition.vocabulary.names import DELAY, EVENT_OR_EXPRESSION, EXPRESSION, NAME, NAME_OR_EXPRESSION, TEXT

ACTIONS = ListOf(item=Ref(name="action"), what="a list of actions")
GUARDS = ListOf(item=Ref(name="guard"), what="a list of guards")
VALUES = MapOf(key=TEXT, value=Anything(), what="a mapping of values")
_MAPPING = Cases(
    what="a mapping of values or an expression",
    cases=(Case(kind="mapping", shape=VALUES), Case(kind="text", shape=EXPRESSION)),
)
_DATA = Key(name="data", shape=Anything(), description="The payload.")
_THEN = Key(name="then", shape=ACTIONS, description="Run when the guard holds.", required=True)


def _marked(name: str, shape: Shape, description: str) -> Key:
    """The key that marks an action or a guard."""
    return Key(name=name, shape=shape, description=description, required=True)


_ACTIONS: dict[str, Record] = {
    "do": Record(
        what="a named action",
        keys=(
            _marked("do", NAME, "The handler; an effect. Its final failure is error.communication."),
            Key(name="with", shape=_MAPPING, description="Its input."),
        ),
    ),
    "assign": Record(
        what="an assign",
        keys=(
            _marked("assign", VALUES, "Field or path to value, in this order; or a pure function that returns fields."),
        ),
    ),
    "raise": Record(
        what="a raise",
        keys=(
            _marked(
                "raise",
                Cases(
                    what="an event or a mapping",
                    cases=(
                        Case(kind="text", shape=EVENT_OR_EXPRESSION),
                        Case(kind="mapping", shape=Ref(name="raise_mapping")),
                    ),
                ),
                "Puts an event at the end of the internal queue.",
            ),
        ),
    ),
    "send": Record(
        what="a send",
        keys=(_marked("send", Ref(name="send_mapping"), "Sends an event: an effect, or a timer with `delay`."),),
    ),
    "cancel": Record(
        what="a cancel", keys=(_marked("cancel", TEXT, "Drops this entity's pending timers of a send id."),)
    ),
    "emit": Record(
        what="an emit",
        keys=(_marked("emit", Ref(name="emit_mapping"), "Publishes a message through the outbox, as a CloudEvent."),),
    ),
    "log": Record(
        what="a log",
        keys=(
            _marked(
                "log",
                Cases(
                    what="a text or a mapping",
                    cases=(Case(kind="text", shape=TEXT), Case(kind="mapping", shape=Ref(name="log_mapping"))),
                ),
                "Writes a log line after the step is kept.",
            ),
        ),
    ),
    "if": Record(
        what="an if",
        keys=(
            _marked("if", Ref(name="guard"), "The first branch's guard."),
            _THEN,
            Key(
                name="elif",
                shape=ListOf(item=Ref(name="elif"), what="a list of branches"),
                description="Further branches, tried in order.",
            ),
            Key(name="else", shape=ACTIONS, description="Run when no guard holds."),
        ),
    ),
    "foreach": Record(
        what="a foreach",
        keys=(_marked("foreach", Ref(name="foreach_mapping"), "Runs actions once per item of a list."),),
    ),
    "script": Record(what="a script", keys=(_marked("script", TEXT, "Code; trusted only."),)),
}

_GUARDS: dict[str, Record] = {
    "name": Record(
        what="a named guard",
        keys=(
            _marked("name", NAME, "A registered pure function of context and event."),
            Key(name="with", shape=Anything(), description="Its arguments."),
        ),
    ),
    "all": Record(what="an all", keys=(_marked("all", GUARDS, "Every one holds."),)),
    "any": Record(what="an any", keys=(_marked("any", GUARDS, "One of them holds."),)),
    "not": Record(what="a not", keys=(_marked("not", Ref(name="guard"), "It does not hold."),)),
    "in": Record(what="an in", keys=(_marked("in", TEXT, "The state with this id is active."),)),
}

ACTION_SHAPES: dict[str, Shape] = {
    "action": Cases(
        what="an action",
        cases=(
            Case(kind="text", shape=NAME),
            Case(kind="mapping", key="assign", inner="text", shape=Ref(name="assign_call")),
            *(Case(kind="mapping", key=mark, shape=Ref(name=f"action_{mark}")) for mark in _ACTIONS),
        ),
    ),
    **{f"action_{mark}": record for mark, record in _ACTIONS.items()},
    "assign_call": Record(
        what="an assign by a function",
        keys=(
            _marked("assign", NAME, "A registered pure function of context and event that returns fields."),
            Key(name="with", shape=Anything(), description="Its arguments."),
        ),
    ),
    "raise_mapping": Record(
        what="a raise",
        keys=(Key(name="event", shape=EVENT_OR_EXPRESSION, description="The event.", required=True), _DATA),
    ),
    "send_mapping": Record(
        what="a send",
        keys=(
            Key(name="event", shape=EVENT_OR_EXPRESSION, description="The event.", required=True),
            Key(
                name="to",
                shape=TEXT,
                description="self (default), internal, parent, an invoke id, or an expression giving kind/id.",
            ),
            Key(name="delay", shape=DELAY, description="Makes it a timer."),
            Key(name="id", shape=TEXT, description="The send id, for cancel."),
            Key(name="idLocation", shape=TEXT, description="The context field that takes the generated id."),
            _DATA,
            Key(name="type", shape=TEXT, description="The kind of processor; none by default."),
            Key(
                name="onRestore",
                shape=Choice(options=("deadline", "remaining", "restart")),
                description="What downtime means to the timer; deadline by default.",
            ),
        ),
    ),
    "emit_mapping": Record(
        what="an emit",
        keys=(Key(name="type", shape=TEXT, description="Its CloudEvents type.", required=True), _DATA),
    ),
    "log_mapping": Record(
        what="a log",
        keys=(
            Key(name="label", shape=TEXT, description="A constant text before the value."),
            Key(name="value", shape=Anything(), description="What is logged."),
        ),
    ),
    "elif": Record(what="a branch", keys=(_marked("if", Ref(name="guard"), "The branch's guard."), _THEN)),
    "foreach_mapping": Record(
        what="a foreach",
        keys=(
            Key(name="in", shape=Anything(), description="The list, or an expression giving it.", required=True),
            Key(name="item", shape=TEXT, description="The context field that takes each item.", required=True),
            Key(name="index", shape=TEXT, description="The context field that takes its index."),
            Key(name="do", shape=ACTIONS, description="Run once per item.", required=True),
        ),
    ),
    "guard": Cases(
        what="a guard",
        cases=(
            Case(kind="text", shape=NAME_OR_EXPRESSION),
            *(Case(kind="mapping", key=mark, shape=Ref(name=f"guard_{mark}")) for mark in _GUARDS),
        ),
    ),
    **{f"guard_{mark}": record for mark, record in _GUARDS.items()},
}
"""The named shapes of actions and guards."""
