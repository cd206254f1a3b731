"""Random content: guards, values and actions, most of which work.

Registered functions and the names of events stand here too; `charts` puts the content into states and transitions.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Block,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardName,
    GuardNot,
    If,
    Log,
    Raise,
    Send,
)
from tests.properties.skeletons import Skeleton

OUTSIDE = ("a", "b", "c", "a.x", "b.y.z")
INSIDE = ("i", "j", "i.k")
TIMED = ("t", "t.late")
SEND_IDS = ("one", "two")


def breaks(*_: object) -> object:
    """A registered function with a bug in it."""
    raise RuntimeError("a bug")


GUARDS: dict[str, Callable[..., Any]] = {
    "odd": lambda context, event: context["n"] % 2 == 1,
    "below": lambda context, event, arguments: context["n"] < arguments["limit"],
    "breaks": breaks,
}
ASSIGNS: dict[str, Callable[..., Any]] = {
    "double": lambda context, event: {"n": context["n"] * 2 % 7},
    "note": lambda context, event, arguments: {"m": arguments},
    "breaks": breaks,
    "refused": lambda context, event: {"n": "not a number"},
}

ERRORS = ("1 / (context.n - context.n)", "context.obj.nothing", "context.xs[9]", "'a' + 1", "event.data.v.w")
FUEL = GuardExpression(expression=Expression("context.fuel > 0"))
BURN = Assign(values=(("fuel", Expression("context.fuel - 1")),))


class ContentMaker:
    """Draws content for one chart. `trouble` is how often things fail: 1, or less where an error ends the step."""

    def __init__(self, random: Random, skeleton: Skeleton, trouble: float) -> None:
        self.random = random
        self.skeleton = skeleton
        self.trouble = trouble

    def chance(self, part: float) -> bool:
        """True in this part of all cases."""
        return self.random.random() < part

    def guard(self, depth: int = 0) -> Guard:
        """A guard over counters, the event, other states or a registered function, sometimes composed."""
        if depth < 2 and self.chance(0.2):
            inner = (self.guard(depth + 1), self.guard(depth + 1))
            return self.random.choice((GuardAll(guards=inner), GuardAny(guards=inner), GuardNot(guard=inner[0])))
        texts = [
            "context.n < 3",
            "context.n % 2 == 0",
            "context.n >= 1 and context.fuel > 1",
            "get(event.data, 'v', 0) > 1",
            "event.name == 'a' or event.name == 'i'",
            "len(context.xs) > 2",
            "get(context.obj, 'k', 0) < 4",
            "'k' in context.obj",
            f"In('{self.skeleton.pick().id}')",
            f"not In('{self.skeleton.pick().id}') or context.n == 0",
        ]
        if self.chance(0.1 * self.trouble):
            texts = list(ERRORS[:3])
        picks: tuple[Guard, ...] = (
            GuardExpression(expression=Expression(self.random.choice(texts))),
            GuardExpression(expression=Expression(self.random.choice(texts))),
            GuardIn(state=self.skeleton.pick().id),
            GuardName(name="odd"),
            GuardName(name="below", arguments={"limit": Expression("context.n + 1") if self.chance(0.5) else 2}),
        )
        return GuardName(name="breaks") if self.chance(0.03 * self.trouble) else self.random.choice(picks)

    def value(self) -> Any:
        """A literal or an expression, sometimes one that fails."""
        if self.chance(0.08 * self.trouble):
            return Expression(self.random.choice(ERRORS))
        return self.random.choice(
            (
                7,
                "text",
                None,
                Expression("context.n"),
                Expression("context.n + context.fuel"),
                Expression("[context.n, len(context.xs)]"),
                {"k": Expression("context.n * 2"), "l": [1, Expression("context.fuel")]},
                Expression("event.name if context.n else 'none'"),
                Expression("context.obj"),
                Expression(f"In('{self.skeleton.pick().id}')"),
                Expression("entity.id + '/' + str(entity.version)"),
            )
        )

    def flat_value(self) -> Any:
        """A value that does not hold the field it goes into: repeated often, that would pass the limit of depth."""
        value = self.value()
        return 1 if value == Expression("context.obj") else value

    def blocks(self, mark: str) -> tuple[Block, ...]:
        """Entry or exit: none, one block that leaves a mark, or several."""
        number = self.random.choice((0, 1, 1, 1, 2))
        return tuple(self.block(mark=f"{mark} {position}") for position in range(number))

    def block(self, *, mark: str | None = None, depth: int = 0) -> Block:
        """A few actions; the mark shows in the effects that the block ran."""
        marks: Block = () if mark is None else (Do(name="mark", arguments={"at": mark}),)
        return (*marks, *(self.action(depth) for _ in range(self.random.choice((0, 0, 1, 1, 2)))))

    def action(self, depth: int) -> Action:
        """One action of any kind."""
        makers: tuple[Callable[[], Action], ...] = (
            lambda: Do(
                name=self.random.choice(("work", "play")), arguments=None if self.chance(0.5) else {"x": self.value()}
            ),
            lambda: Assign(values=(("n", Expression("context.n + 1")),)),
            lambda: Assign(values=(("n", 0), ("m", self.value()))),
            lambda: Assign(values=((self.random.choice(("obj.k", "obj.deep.l", "obj.gone.l")), self.flat_value()),)),
            self.assign_call,
            lambda: Raise(event=self.random.choice(INSIDE), data=self.value() if self.chance(0.5) else None),
            self.send,
            self.delayed,
            lambda: Cancel(id=self.random.choice(SEND_IDS)),
            lambda: Emit(type="fact", data=self.value()),
            lambda: Log(label=self.random.choice((None, "label")), value=self.value()),
        )
        if depth < 2 and self.chance(0.2):
            return self.nested(depth + 1)
        return self.random.choice(makers)()

    def assign_call(self) -> Action:
        """A registered assign function, with or without arguments; one breaks."""
        if self.chance(0.15 * self.trouble):
            return AssignCall(name=self.random.choice(("breaks", "refused")))
        return AssignCall(name="note", arguments=self.value() or 1) if self.chance(0.5) else AssignCall(name="double")

    def nested(self, depth: int) -> Action:
        """An `if` or a `foreach`."""
        if self.chance(0.6):
            branches = tuple((self.guard(1), self.block(depth=depth)) for _ in range(self.random.choice((1, 2))))
            return If(branches=branches, otherwise=self.block(depth=depth))
        items: Any = self.random.choice((Expression("context.xs"), [1, 2], Expression("context.xs + [context.n]"), []))
        if self.chance(0.15 * self.trouble):
            items = Expression("context.n")
        return Foreach(
            items=items,
            item=self.random.choice(("each", "m")),
            index=self.random.choice((None, "at")),
            block=(Log(label="each", value=Expression("context.n")), *self.block(depth=depth)),
        )

    def send(self) -> Action:
        """A send without delay: to itself, inside, to a parent, to an invoke, another entity, or an unknown address."""
        to = self.random.choice((None, "self", "internal", "other/7"))
        if self.chance(0.5 * self.trouble):
            to = self.random.choice(("parent", "v1", "v2", "#_scxml_nobody"))
        return Send(
            event=self.random.choice(INSIDE if to == "internal" else OUTSIDE),
            to=to,
            id=self.random.choice((None, "one")),
            data=self.value() if self.chance(0.5) else None,
            type="carrier pigeon" if self.chance(0.05 * self.trouble) else None,
        )

    def delayed(self) -> Action:
        """A send with a delay: a timer."""
        delay: Any = self.random.choice(("5ms", "1s", "1s", Expression("context.n + 8"), Expression("'20ms'")))
        if self.chance(0.05 * self.trouble):
            delay = Expression("'soon'")
        return Send(
            event=self.random.choice(TIMED),
            to=self.random.choice((None, None, None, "other/7")),
            delay=delay,
            id=self.random.choice((None, *SEND_IDS)),
            id_location="m" if self.chance(0.1) else None,
            data=self.value() if self.chance(0.4) else None,
        )
