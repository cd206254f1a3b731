"""Random valid documents, biased so that interesting things happen.

Rule 1: everything is drawn from one `random.Random`. A plain one with a seed makes thousands of charts a minute; the
        one that hypothesis gives (`documents`) makes charts that shrink.
Rule 2: every run ends: what an internal event or no event can start burns `fuel`, which only outside events refill.
Rule 3: nothing here depends on how a chart behaves. `features` lists what it contains, so that a test can count.
"""

from __future__ import annotations

from random import Random
from typing import Any, Literal

from hypothesis import strategies as st

from interlock.model.document.actions import Assign, Block, Expression, GuardAll
from interlock.model.document.document import DialectName, Document, EventType, Initial, Invoke, State, Transition
from interlock.model.document.field import Field
from tests.properties.contents import BURN, FUEL, INSIDE, OUTSIDE, TIMED, ContentMaker
from tests.properties.skeletons import Bone, Skeleton

UNHANDLED: tuple[Literal["reject", "ignore", "defer"] | None, ...] = (None, "reject", "ignore", "defer", "defer")


def documents() -> st.SearchStrategy[Document]:
    """Documents that shrink towards small and plain ones."""
    return st.randoms(use_true_random=False).map(document)


def document(random: Random) -> Document:
    """One random document."""
    return ChartMaker(random).document()


def may_enter_twice(source: Bone, target: Bone) -> bool:
    """Whether the compiler may refuse a target (`target.history`): its default is not drawn yet."""
    around = source.ancestors()
    if target.type != "history" or target.parent not in around:
        return False
    return any(each.type == "parallel" for each in around[: around.index(target.parent)])


class ChartMaker(ContentMaker):
    """Fills a random tree with transitions, content, timers, invokes and fields."""

    def __init__(self, random: Random) -> None:
        self.dialect: DialectName = random.choice(("interlock", "interlock", "scxml", "xstate"))
        self.errors: Literal["event", "raise"] | None = None
        if random.random() < (0.6 if self.dialect == "xstate" else 0.1):
            self.errors = "event" if self.dialect == "xstate" else "raise"
        raising = self.errors == "raise" or (self.dialect == "xstate" and self.errors is None)
        super().__init__(random, Skeleton(random, dialect=self.dialect), 0.1 if raising else 1.0)
        self.invokes = 0

    def document(self) -> Document:
        """The whole document."""
        events = None
        if self.chance(0.1):
            inside = tuple(EventType(name=each, direction="internal") for each in INSIDE)
            events = (*(EventType(name=each) for each in (*OUTSIDE, *TIMED)), *inside)
        return Document(
            kind="random",
            root=self.root(),
            dialect=self.dialect,
            unhandled=self.random.choice(UNHANDLED),
            errors=self.errors,
            binding="late" if self.chance(0.25) else "early",
            events=events,
        )

    def root(self) -> State:
        """Return the root: the fields that every expression reads, and sometimes transitions and actions."""
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
        """Return a history with its default among its siblings, sometimes with actions."""
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
        """Return the initial of a compound state: none, a child, a deeper state, several, or a history."""
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
        """Return a state's transitions. Those of internal events use up fuel; unguarded ones are last."""
        made: list[Transition] = []
        inside = self.random.choices((*INSIDE, "*", "error"), k=self.random.choice((0, 1, 1, 2)))
        made += [self.burning(bone, origin="transitions", events=(each,)) for each in inside]
        if self.chance(0.35):
            made.append(self.burning(bone, origin="always", events=()))
        if bone.parent is not None and bone.can_be_done and self.chance(0.95 if bone.type == "parallel" else 0.5):
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
        siblings = [] if bone.parent is None else [each for each in bone.parent.children if each.type == "final"]
        if siblings and self.chance(0.2):
            targets = siblings[:1]
        targets = [each for each in targets if not may_enter_twice(bone, each)] or (targets and [bone])
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
