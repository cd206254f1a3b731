"""Guards and actions of the vocabulary, each known by the key that marks it."""

from __future__ import annotations

from typing import Any

from interlock.definition.codec import VALUE, Codecs, OneOfCodec, write_value
from interlock.definition.shapes import (
    Choice,
    Codec,
    Key,
    ListOf,
    MapOf,
    OneOf,
    Option,
    Record,
    Ref,
    Scope,
    Shape,
    Text,
    Value,
)
from interlock.definition.source.node import Node
from interlock.definition.vocabulary.names import (
    DELAY,
    EVENT_OR_EXPRESSION,
    EXPRESSION,
    NAME,
    NAME_OR_EXPRESSION,
    NAME_VALUE,
    TEXT,
    TEXT_VALUE,
)
from interlock.model.document import actions as act

ACTIONS = ListOf(item=Ref(name="action"), what="a list of actions")
GUARDS = ListOf(item=Ref(name="guard"), what="a list of guards")
VALUES = MapOf(key=TEXT, value=Value(), what="a mapping of values")
_MAPPING = OneOf(
    what="a mapping of values or an expression",
    options=(Option(kind="mapping", shape=VALUES), Option(kind="text", shape=EXPRESSION)),
)
_DATA = Key(name="data", shape=Value(), identity="in", order="kept", description="The payload.")
_THEN = Key(
    name="then", shape=ACTIONS, identity="in", order="kept", description="Run if the guard is true.", required=True
)
_RESTORE = Choice(options=("deadline", "remaining", "restart"))
ON_RESTORE = Key(
    name="onRestore",
    field="restore",
    shape=_RESTORE,
    default="deadline",
    identity="in",
    order="kept",
    description="How downtime affects the timer; deadline by default.",
)


def _marked(name: str, shape: Shape, description: str, field: str | None = None) -> Key:
    """The key that marks an action or a guard."""
    return Key(name=name, shape=shape, identity="in", order="kept", description=description, required=True, field=field)


def _short_or_mapping(text: Text, mapping: str, what: str) -> OneOf:
    """A text, or the mapping of which the text is the short form."""
    return OneOf(what=what, options=(Option(kind="text", shape=text), Option(kind="mapping", shape=Ref(name=mapping))))


class _GuardCodec(OneOfCodec):
    """A bare text is an expression if it starts with `=`, otherwise the name of a function."""

    def read(self, node: Node, scope: Scope, **given: Any) -> Any:
        if isinstance(node.value, str) and node.value.startswith("="):
            return act.GuardExpression(expression=VALUE.read(node, scope), place=node.place)
        return super().read(node, scope, **given)

    def write(self, value: Any, scope: Scope) -> Any:
        if isinstance(value, act.GuardExpression):
            return write_value(value.expression)
        return super().write(value, scope)


class _IfCodec:
    """`if`, `then`, any number of `elif`, and `else`."""

    def __init__(self, codecs: Codecs, record: Record) -> None:
        del record
        self.codecs = codecs

    def read(self, node: Node, scope: Scope) -> act.If:
        guard, block = self._parts()
        assert isinstance(node.value, dict)
        others = node.value.get("elif", Node([], node.place)).value
        assert isinstance(others, list)
        branches = [each.value for each in (node, *others) if isinstance(each.value, dict)]
        return act.If(
            branches=tuple((guard.read(each["if"], scope), block.read(each["then"], scope)) for each in branches),
            otherwise=block.read(node.value["else"], scope) if "else" in node.value else (),
            place=node.place,
        )

    def write(self, value: act.If, scope: Scope) -> dict[str, Any]:
        guard, block = self._parts()
        first, *others = [
            {"if": guard.write(each, scope), "then": block.write(inner, scope)} for each, inner in value.branches
        ]
        tree = {**first, "elif": others} if others else first
        return {**tree, "else": block.write(value.otherwise, scope)} if value.otherwise else tree

    def _parts(self) -> tuple[Codec, Codec]:
        return self.codecs.named("guard"), self.codecs.of(ACTIONS)


_ACTIONS: dict[str, Record] = {
    "do": Record(
        what="a named action",
        makes=act.Do,
        short="do",
        keys=(
            _marked("do", NAME_VALUE, "The handler; an effect. Its final failure is error.communication.", "name"),
            Key(
                name="with",
                shape=_MAPPING,
                identity="in",
                order="kept",
                description="Its input.",
                field="arguments",
                codec=VALUE,
            ),
        ),
    ),
    "assign": Record(
        what="an assign",
        makes=act.Assign,
        keys=(
            _marked(
                "assign",
                VALUES,
                "Field or path to value, in this order; or a pure function that returns fields.",
                "values",
            ),
        ),
    ),
    "raise": Record(
        what="a raise",
        inner="raise",
        keys=(
            _marked(
                "raise",
                _short_or_mapping(EVENT_OR_EXPRESSION, "raise_mapping", "an event or a mapping"),
                "Puts an event at the end of the internal queue.",
            ),
        ),
    ),
    "send": Record(
        what="a send",
        inner="send",
        keys=(_marked("send", Ref(name="send_mapping"), "Sends an event: an effect, or a timer with `delay`."),),
    ),
    "cancel": Record(
        what="a cancel",
        makes=act.Cancel,
        keys=(_marked("cancel", TEXT_VALUE, "Cancels this entity's pending timers of a send id.", "id"),),
    ),
    "emit": Record(
        what="an emit",
        inner="emit",
        keys=(_marked("emit", Ref(name="emit_mapping"), "Publishes a message through the outbox, as a CloudEvent."),),
    ),
    "log": Record(
        what="a log",
        inner="log",
        keys=(
            _marked(
                "log",
                _short_or_mapping(TEXT, "log_mapping", "a text or a mapping"),
                "Writes a log line after the step is stored.",
            ),
        ),
    ),
    "if": Record(
        what="an if",
        makes=act.If,
        codec=_IfCodec,
        keys=(
            _marked("if", Ref(name="guard"), "The first branch's guard."),
            _THEN,
            Key(
                name="elif",
                shape=ListOf(item=Ref(name="elif"), what="a list of branches"),
                identity="in",
                order="kept",
                description="Further branches, tried in order.",
            ),
            Key(name="else", shape=ACTIONS, identity="in", order="kept", description="Run if no guard is true."),
        ),
    ),
    "foreach": Record(
        what="a foreach",
        inner="foreach",
        keys=(_marked("foreach", Ref(name="foreach_mapping"), "Runs actions once per item of a list."),),
    ),
    "script": Record(what="a script", makes=act.Script, keys=(_marked("script", TEXT, "Code; trusted only.", "text"),)),
}

_GUARDS: dict[str, Record] = {
    "name": Record(
        what="a named guard",
        makes=act.GuardName,
        short="name",
        keys=(
            _marked("name", NAME_VALUE, "A registered pure function of context and event."),
            Key(
                name="with", shape=Value(), identity="in", order="kept", description="Its arguments.", field="arguments"
            ),
        ),
    ),
    "all": Record(what="an all", makes=act.GuardAll, keys=(_marked("all", GUARDS, "All of them are true.", "guards"),)),
    "any": Record(what="an any", makes=act.GuardAny, keys=(_marked("any", GUARDS, "One of them is true.", "guards"),)),
    "not": Record(what="a not", makes=act.GuardNot, keys=(_marked("not", Ref(name="guard"), "It is false.", "guard"),)),
    "in": Record(
        what="an in", makes=act.GuardIn, keys=(_marked("in", TEXT, "The state with this id is active.", "state"),)
    ),
}

ACTION_SHAPES: dict[str, Shape] = {
    "action": OneOf(
        what="an action",
        options=(
            Option(kind="text", shape=NAME),
            Option(kind="mapping", key="assign", inner="text", shape=Ref(name="assign_call")),
            *(Option(kind="mapping", key=mark, shape=Ref(name=f"action_{mark}")) for mark in _ACTIONS),
        ),
    ),
    **{f"action_{mark}": record for mark, record in _ACTIONS.items()},
    "assign_call": Record(
        what="an assign by a function",
        makes=act.AssignCall,
        keys=(
            _marked(
                "assign", NAME_VALUE, "A registered pure function of context and event that returns fields.", "name"
            ),
            Key(
                name="with", shape=Value(), identity="in", order="kept", description="Its arguments.", field="arguments"
            ),
        ),
    ),
    "raise_mapping": Record(
        what="a raise",
        makes=act.Raise,
        short="event",
        keys=(
            Key(
                name="event",
                shape=EVENT_OR_EXPRESSION,
                identity="in",
                order="kept",
                description="The event.",
                required=True,
            ),
            _DATA,
        ),
    ),
    "send_mapping": Record(
        what="a send",
        makes=act.Send,
        keys=(
            Key(
                name="event",
                shape=EVENT_OR_EXPRESSION,
                identity="in",
                order="kept",
                description="The event.",
                required=True,
            ),
            Key(
                name="to",
                shape=TEXT_VALUE,
                identity="in",
                order="kept",
                description="self (default), internal, parent, an invoke id, or an expression giving kind/id.",
            ),
            Key(name="delay", shape=DELAY, identity="in", order="kept", description="Makes it a timer."),
            Key(name="id", shape=TEXT_VALUE, identity="in", order="kept", description="The send id, for cancel."),
            Key(
                name="idLocation",
                field="id_location",
                shape=TEXT,
                identity="in",
                order="kept",
                description="The context field that takes the generated id.",
            ),
            _DATA,
            Key(
                name="type",
                shape=TEXT_VALUE,
                identity="in",
                order="kept",
                description="The kind of processor; none by default.",
            ),
            ON_RESTORE,
        ),
    ),
    "emit_mapping": Record(
        what="an emit",
        makes=act.Emit,
        keys=(
            Key(
                name="type",
                shape=TEXT_VALUE,
                identity="in",
                order="kept",
                description="Its CloudEvents type.",
                required=True,
            ),
            _DATA,
        ),
    ),
    "log_mapping": Record(
        what="a log",
        makes=act.Log,
        short="value",
        keys=(
            Key(name="label", shape=TEXT, identity="in", order="kept", description="A constant text before the value."),
            Key(name="value", shape=Value(), identity="in", order="kept", description="What is logged."),
        ),
    ),
    "elif": Record(what="a branch", keys=(_marked("if", Ref(name="guard"), "The branch's guard."), _THEN)),
    "foreach_mapping": Record(
        what="a foreach",
        makes=act.Foreach,
        keys=(
            Key(
                name="in",
                field="items",
                shape=Value(),
                identity="in",
                order="kept",
                description="The list, or an expression giving it.",
                required=True,
            ),
            Key(
                name="item",
                shape=TEXT,
                identity="in",
                order="kept",
                description="The context field that takes each item.",
                required=True,
            ),
            Key(
                name="index",
                shape=TEXT,
                identity="in",
                order="kept",
                description="The context field that takes its index.",
            ),
            Key(
                name="do",
                field="block",
                shape=ACTIONS,
                identity="in",
                order="kept",
                description="Run once per item.",
                required=True,
            ),
        ),
    ),
    "guard": OneOf(
        what="a guard",
        codec=_GuardCodec,
        options=(
            Option(kind="text", shape=NAME_OR_EXPRESSION),
            *(Option(kind="mapping", key=mark, shape=Ref(name=f"guard_{mark}")) for mark in _GUARDS),
        ),
    ),
    **{f"guard_{mark}": record for mark, record in _GUARDS.items()},
}
"""The named shapes of actions and guards."""
