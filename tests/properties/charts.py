"""Random valid documents, biased so that interesting things happen.

Rule 1: everything is drawn from one `random.Random`. A plain one with a seed makes thousands of charts a minute; the
        one that hypothesis gives (`documents`) makes charts that shrink.
Rule 2: every run ends: what an internal event or no event can start burns `fuel`, which only outside events refill.
Rule 3: nothing here knows how a chart behaves; `features` tells what one contains, so that a test can count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Literal

from hypothesis import strategies as st

from interlock.model.action import (
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
from interlock.model.document import (
    DialectName,
    Document,
    EventType,
    Initial,
    Invoke,
    State,
    Transition,
)
from interlock.model.field import Field
from tests.properties.skeletons import Bone, Skeleton

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


def documents() -> st.SearchStrategy[Document]:
    """Documents that shrink towards small and plain ones."""
    return st.randoms(use_true_random=False).map(document)


def document(random: Random) -> Document:
    """One random document."""
    return ChartMaker(random).document()


class ChartMaker:
    """Fills a random tree with transitions, content, timers, invokes and fields."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.dialect: DialectName = random.choice(("interlock", "interlock", "scxml", "xstate"))
        self.skeleton = Skeleton(random, dialect=self.dialect)
        self.errors: Literal["event", "raise"] | None = None
        if self.chance(0.6 if self.dialect == "xstate" else 0.1):
            self.errors = "event" if self.dialect == "xstate" else "raise"
        raising = self.errors == "raise" or (self.dialect == "xstate" and self.errors is None)
        self.trouble = 0.1 if raising else 1.0
        self.invokes = 0

    def chance(self, part: float) -> bool:
        """True in this part of all cases."""
        return self.random.random() < part

    def document(self) -> Document:
        """The whole document."""
        events = None
        if self.chance(0.1):
            inside = tuple(EventType(name=each, direction="internal") for each in INSIDE)
            events = (*(EventType(name=each) for each in (*OUTSIDE, *TIMED)), *inside)
        unhandled: tuple[Literal["reject", "ignore", "defer"] | None, ...] = (
            None,
            "reject",
            "ignore",
            "defer",
            "defer",
        )
        return Document(
            kind="random",
            root=self.root(),
            dialect=self.dialect,
            unhandled=self.random.choice(unhandled),
            errors=self.errors,
            binding="late" if self.chance(0.25) else "early",
            events=events,
        )

    def root(self) -> State:
        """The root: the fields every expression reads, and sometimes transitions and content of its own."""
        bone = self.skeleton.root
        states = tuple(self.state(each) for each in bone.children)
        fields = (
            Field(name="n", type="integer", default=self.random.choice((0, 1, Expression("3 - 2"))), min=-8, max=8),
            Field(name="fuel", type="integer", default=self.random.choice((1, 3))),
            Field(name="m"),
            Field(name="xs", type="array", default=[1, 2, 3]),
            Field(name="obj", type="object", default={"k": 0, "deep": {"l": 1}}),
            *((Field(name="odd_one", default=Expression("context.obj.nothing")),) if self.chance(0.1) else ()),
        )
        return State(
            initial=self.initial(bone),
            states=states,
            context=fields,
            transitions=self.transitions(bone) if self.chance(0.4) else (),
        )

    def state(self, bone: Bone) -> State:
        """One state with everything in it."""
        common: dict[str, Any] = {"key": bone.key, "id": bone.id if self.skeleton.named else None}
        if bone.type == "history":
            return self.history(bone, common)
        common["entry"] = self.blocks(f"+{bone.id}")
        common["exit"] = self.blocks(f"-{bone.id}")
        if bone.type == "final":
            output = self.value() if self.chance(0.6) else None
            return State(type="final", output=output, **common)
        if self.chance(0.2):
            common["context"] = self.fields(bone)
        if self.chance(0.25):
            common["invokes"] = self.invokes_of(bone)
        return State(
            type=bone.type,
            states=tuple(self.state(each) for each in bone.children),
            initial=self.initial(bone) if bone.compound else None,
            transitions=self.transitions(bone),
            **common,
        )

    def history(self, bone: Bone, common: dict[str, Any]) -> State:
        """A history with its default among the states beside it, sometimes with content."""
        assert bone.parent is not None
        siblings = bone.parent.active
        first = self.random.choice(siblings)
        targets = [first]
        if bone.parent.type == "parallel":
            targets = [
                self.random.choice([each, *self.plain(each)]) for each in siblings if each is first or self.chance(0.5)
            ]
        elif self.chance(0.4):
            targets = [self.random.choice([first, *self.plain(first)])]
        return State(
            type="history",
            history=self.random.choice(("shallow", "deep")),
            targets=tuple(f"#{each.id}" for each in targets),
            actions=self.block(mark=f"{bone.id} default") if self.chance(0.5) else (),
            **common,
        )

    @staticmethod
    def plain(bone: Bone) -> list[Bone]:
        """The descendants that are no histories."""
        return [each for each in bone.descendants() if each.type != "history"]

    def fields(self, bone: Bone) -> tuple[Field, ...]:
        """Fields of a state's own: with late binding they get their values at its first entry."""
        name = f"f_{bone.key}"
        default: Any = self.random.choice((0, Expression("context.n + 1"), Expression("context.obj.nothing"), "x"))
        return (Field(name=name, type="integer" if self.chance(0.5) and default != "x" else "any", default=default),)

    def initial(self, bone: Bone) -> Initial | None:
        """Where a compound begins: not said, a child, a deeper state, several, a history; sometimes with content."""
        if self.chance(0.4):
            return None
        direct = bone.active
        if self.dialect == "xstate" or self.chance(0.5):
            targets = [self.random.choice(direct)]
        else:
            targets = self.skeleton.pick_several(bone)
            targets = [each for each in targets if each.parent is not bone or each.type != "history"] or [direct[0]]
        if len(targets) == 1 and targets[0].type == "final" and bone.parent is None:
            targets = [direct[0]]
        actions = self.block(mark=f"{bone.id} initial") if self.chance(0.5) else ()
        return Initial(targets=tuple(f"#{each.id}" for each in targets), actions=actions)

    def transitions(self, bone: Bone) -> tuple[Transition, ...]:
        """A state's transitions: those that internal events can start burn fuel; unguarded ones stand last."""
        made: list[Transition] = []
        inside = self.random.choices((*INSIDE, "*", "error"), k=self.random.choice((0, 1, 1, 2)))
        made += [self.burning(bone, origin="transitions", events=(each,)) for each in inside]
        if self.chance(0.35):
            made.append(self.burning(bone, origin="always", events=()))
        if bone.parent is not None and bone.can_be_done and self.chance(0.6):
            made.append(self.burning(bone, origin="onDone", events=()))
        guarded = range(self.random.choice((0, 1, 2, 2)))
        made += [self.transition(bone, guard=self.guard(), events=self.descriptors()) for _ in guarded]
        if self.chance(0.2):
            delay: Any = self.random.choice(
                ("10ms", "1s", Expression("context.n + 5"), Expression("context.obj.nothing"))
            )
            guard = self.guard() if self.chance(0.4) else None
            made.append(self.transition(bone, origin="after", delay=delay, guard=guard, events=()))
        outside = self.random.sample((*OUTSIDE, *TIMED), self.random.choice((0, 1, 2, 3)))
        made += [self.transition(bone, events=(event,)) for event in outside]
        plain = [each for each in made if each.guard is None and each.events]
        ordered = sorted(plain, key=lambda each: -len(each.events[0]))
        return (*self.distinct([each for each in made if each not in plain]), *ordered)

    @staticmethod
    def distinct(made: list[Transition]) -> list[Transition]:
        """Without those whose very guard an earlier one has: the compiler refuses what can never be chosen."""
        kept: list[Transition] = []
        for each in made:
            if each.guard is None or all((other.guard, other.origin) != (each.guard, each.origin) for other in kept):
                kept.append(each)
        return kept

    def descriptors(self) -> tuple[str, ...]:
        """What a guarded transition listens to: one name, a prefix, or several names."""
        names = self.random.sample((*OUTSIDE, *TIMED), 2 if self.chance(0.15) and self.dialect != "xstate" else 1)
        return tuple(f"{each}.*" if self.chance(0.15) else each for each in names)

    def burning(self, bone: Bone, **fields: Any) -> Transition:
        """A transition that can be taken only a limited number of times between outside events."""
        guard = FUEL if self.chance(0.5) else GuardAll(guards=(FUEL, self.guard()))
        return self.transition(bone, guard=guard, first=(BURN,), **fields)

    def transition(self, bone: Bone, *, first: Block = (), **fields: Any) -> Transition:
        """A transition from this state: external, internal, to itself, to several, or to nowhere."""
        targets: list[Bone] = []
        if not self.chance(0.2):
            near = bone if bone.children and self.chance(0.3) else None
            targets = [bone] if self.chance(0.08) and bone.parent is not None else self.skeleton.pick_several(near)
        inner = [each for each in targets if bone in each.ancestors()]
        reenter: bool | None = None
        if bone.parent is not None and (inner or bone in targets):
            proper = len(inner) == len(targets) and bone.compound
            reenter = self.random.choice((True, False)) if proper else True
            if self.dialect != "interlock":
                reenter = self.random.choice((None, True, False) if proper else (None, True))
        refill = (Assign(values=(("fuel", 3),)),) if not first and self.chance(0.5) else ()
        actions = self.block() if self.chance(0.6) else ()
        given = {"origin": "on", **fields, "targets": tuple(f"#{each.id}" for each in targets)}
        return Transition(actions=(*first, *refill, *actions), reenter=reenter, **given)

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
        """A send without delay: to itself, inside, to a parent, to an invoke, to another entity, or to nobody."""
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

    def invokes_of(self, bone: Bone) -> tuple[Invoke, ...]:
        """One or two invokes, with transitions for their results."""
        made = []
        for _ in range(self.random.choice((1, 1, 2))):
            self.invokes += 1
            done = (self.transition(bone, events=()),) if self.chance(0.7) else ()
            error = (self.transition(bone, events=()),) if self.chance(0.4) else ()
            made.append(
                Invoke(
                    src="service",
                    id=f"v{self.invokes}" if self.chance(0.7) else None,
                    id_location="m" if self.chance(0.1) else None,
                    input=self.value() if self.chance(0.6) else None,
                    autoforward=self.chance(0.25),
                    finalize=self.block() if self.chance(0.3) else None,
                    done=done,
                    error=error,
                )
            )
        return tuple(made)


def features(made: Document) -> Counter[str]:
    """What a document contains, for counting: one line per feature that the generator promises."""
    found: Counter[str] = Counter({f"dialect {made.dialect}": 1, f"binding {made.binding}": 1})
    found[f"unhandled {made.unhandled}"] += 1
    found[f"errors {made.errors}"] += 1
    found["events declared"] += made.events is not None
    found["root transitions"] += bool(made.root.transitions)
    stack = [(made.root, 0)]
    while stack:
        state, depth = stack.pop()
        stack += [(each, depth + 1) for each in state.states]
        found[f"depth {depth}"] += 1
        _state_features(state, found)
    return found


def _state_features(state: State, found: Counter[str]) -> None:
    kind = f"history {state.history}" if state.type == "history" else state.type
    found[kind] += 1
    found["history content"] += state.type == "history" and bool(state.actions)
    found["output"] += state.output is not None
    found["several blocks"] += len(state.entry) > 1
    found["state fields"] += bool(state.key and state.context)
    if state.initial is not None:
        found["initial content"] += bool(state.initial.actions)
        found["initial several"] += len(state.initial.targets) > 1
    for invoke in state.invokes:
        found["invoke"] += 1
        found["autoforward"] += invoke.autoforward
        found["finalize"] += bool(invoke.finalize)
        found["invoke result"] += bool(invoke.done or invoke.error)
    for each in state.transitions:
        found[each.origin] += 1
        found["targetless"] += not each.targets
        found["several targets"] += len(each.targets) > 1
        found["internal"] += each.reenter is False
        found["wildcard"] += any("*" in name for name in each.events)
        found["guarded"] += each.guard is not None
    texts = repr(state)
    for name in ("GuardName", "GuardIn", "GuardAll", "GuardNot", "In('", "Raise", "Send", "Cancel", "If(", "Foreach"):
        found[name] += name in texts
    for name in ("AssignCall", "Emit", "Log", "delay='", "1 / (", "obj.nothing"):
        found[name] += name in texts
