"""Random XState definitions and event sequences, made from a seed alone.

Every state records its entry (`+key`) and exit (`-key`), every transition its number (`t7`): the trace then shows the
order of everything. Guards and assigns count in the context, so that loops end and branches are taken now and then.

Rule 1: no two regions of a parallel state hold `always`, nor does a state above a parallel one. XState tries eventless
transitions in the order in which states were last entered, which it forgets itself when a snapshot is stored and
restored; ours is document order. `test_points` shows the difference.
Rule 2: nothing below the root targets it, neither by name nor by the history of a parallel root that has no default:
XState then enters the root without leaving it, which our reader warns of.
Rule 3: nothing in a parallel state targets a history of it that has no default: XState then leaves the parallel state
and does not enter it again, though it stays in its regions. And a transition to a history around its source re-enters:
where the history gives the source itself, XState enters it without leaving it, and can end in two children of one
compound state.
Rule 4: a definition has delays, or targets histories further out than among the source's siblings, not both. What lies
between is then entered without being left (by SCXML too), and XState keeps two timers of one state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

Json = dict[str, Any]

EVENTS = ("A", "B", "C", "x.y", "x.z", "x.y.w", "I")
DESCRIPTORS = ("A", "A", "B", "B", "C", "x.y", "x.z", "I", "*", "x.*", "x.y.*")
DEPTH_MAX = 4
STATES_MAX = 16


@dataclass(eq=False)
class Shape:
    """A state being made: its key, kind and children; `eventless` says whether `always` is allowed in it."""

    key: str
    kind: str
    parent: Shape | None = None
    children: list[Shape] = field(default_factory=list)
    eventless: bool = True

    @property
    def path(self) -> list[str]:
        """The keys from the root, without it."""
        return [] if self.parent is None else [*self.parent.path, self.key]

    @property
    def above(self) -> list[Shape]:
        """The states around it, nearest first."""
        return [] if self.parent is None else [self.parent, *self.parent.above]

    def below(self) -> list[Shape]:
        """The state and everything in it, in document order."""
        return [self, *(each for child in self.children for each in child.below())]

    def is_in(self, other: Shape) -> bool:
        """Whether it is a proper descendant of the other."""
        return self.parent is not None and (self.parent is other or self.parent.is_in(other))

    @property
    def holds_parallel(self) -> bool:
        """Whether it contains a parallel state, or is one."""
        return any(each.kind == "parallel" for each in self.below())


class Generator:
    """Makes one definition."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.count = 0
        self.transitions = 0
        self.around = False
        self.timed = self.chance(0.5)
        self.root = self.shape(None, 0)
        self.states = self.root.below()
        self.settle_eventless(self.root, allowed=True)

    def chance(self, share: float) -> bool:
        """True in this share of all calls."""
        return self.random.random() < share

    # Shape

    def shape(self, parent: Shape | None, depth: int) -> Shape:
        """A state with everything below it."""
        self.count += 1
        key = "m" if parent is None else str(self.count) if self.chance(0.1) else f"s{self.count}"
        made = Shape(key, "atomic", parent)
        grows = depth == 0 or (depth < DEPTH_MAX and self.count < STATES_MAX and self.chance(0.5))
        if grows:
            made.kind = "parallel" if self.chance(0.15 if depth == 0 else 0.4) else "compound"
            made.children = [self.shape(made, depth + 1) for _ in range(self.random.randint(2, 3))]
            self.add_special(made)
        return made

    def add_special(self, made: Shape) -> None:
        """Final and history children, now and then."""
        if self.chance(0.35 if made.kind == "compound" else 0.1):
            self.count += 1
            made.children.append(Shape(f"f{self.count}", "final", made))
        if self.chance(0.35) and (made.parent is not None or made.kind == "compound"):
            self.count += 1
            place = self.random.randint(0, len(made.children))
            made.children.insert(place, Shape(f"h{self.count}", "history", made))

    def settle_eventless(self, shape: Shape, *, allowed: bool) -> None:
        """Rule 1 of this file."""
        shape.eventless = allowed and not shape.holds_parallel
        chosen = self.random.choice(shape.children) if shape.children else None
        for child in shape.children:
            self.settle_eventless(child, allowed=allowed and (shape.kind != "parallel" or child is chosen))

    # Text

    def definition(self) -> Json:
        """The whole definition as JSON."""
        made = self.state(self.root)
        made["id"] = "m"
        made["context"] = {"n": 0, "k": 0}
        if self.chance(0.4) and self.root.kind == "compound":
            for key in ("entry", "exit", "on", "always", "onDone"):
                made.pop(key, None)
        return made

    def state(self, shape: Shape) -> Json:
        """One state as JSON."""
        if shape.kind == "history":
            return self.history(shape)
        made: Json = {"entry": [f"+{shape.key}", *self.extra_actions(0.15)]}
        made["exit"] = [f"-{shape.key}", *self.extra_actions(0.1)]
        if shape.kind in ("parallel", "final"):
            made["type"] = shape.kind
        if shape.kind == "final":
            return made
        on: Json = {}
        for _ in range(self.random.randint(0, 3)):
            on[self.random.choice(DESCRIPTORS)] = self.candidates(shape)
        if on:
            made["on"] = on
        if shape.eventless and self.chance(0.3):
            made["always"] = self.always(shape)
        if self.timed and self.chance(0.2):
            made["after"] = {str(self.random.choice((10, 20, 30))): self.candidates(shape)}
        if shape.children:
            if self.chance(0.5) and shape.parent is not None:
                made["onDone"] = self.candidates(shape)
            made["states"] = {each.key: self.state(each) for each in shape.children}
        if shape.kind == "compound":
            made["initial"] = self.initial(shape)
        return made

    def initial(self, shape: Shape) -> Any:
        """The initial state of a compound state, sometimes with actions."""
        key = self.random.choice([each for each in shape.children if each.kind != "history"]).key
        if self.chance(0.3):
            return {"target": key, "actions": [f"i{shape.key}"]}
        return key

    def history(self, shape: Shape) -> Json:
        """A history state, with a default half of the time."""
        made: Json = {"type": "history", "history": self.random.choice(("shallow", "deep"))}
        assert shape.parent is not None
        siblings = [each for each in shape.parent.children if each.kind != "history"]
        if shape.parent.kind == "compound" and self.chance(0.5):
            made["target"] = self.random.choice(siblings).key
        return made

    def candidates(self, shape: Shape) -> Any:
        """What stands behind one descriptor: mostly one transition, sometimes several, or an empty one that blocks."""
        if self.chance(0.05):
            return {}
        found = [self.transition(shape) for _ in range(1 if self.chance(0.7) else 2)]
        return found if len(found) > 1 else found[0]

    def transition(self, shape: Shape) -> Json:
        """One transition: targets, guard, actions, `reenter`."""
        self.transitions += 1
        made: Json = {}
        self.around = False
        if self.chance(0.8):
            made["target"] = self.targets(shape)
        if self.chance(0.35):
            made["guard"] = self.guard()
        made["actions"] = [f"t{self.transitions}", *self.extra_actions(0.25)]
        if self.chance(0.25):
            made["reenter"] = self.chance(0.8)
        if self.around:
            made["reenter"] = True
        return made

    def always(self, shape: Shape) -> Any:
        """An eventless transition whose guard becomes false as the context counts, or one without target."""
        self.transitions += 1
        limit = self.random.randint(1, 4)
        made: Json = {"guard": {"type": "interlock.expression", "params": {"expression": f"context.k < {limit}"}}}
        made["actions"] = [f"t{self.transitions}", _assign("k", "= context.k + 1")]
        self.around = False
        if self.chance(0.6):
            made["target"] = self.targets(shape)
        elif self.chance(0.4):
            return {"actions": [f"t{self.transitions}"]}
        return made | ({"reenter": True} if self.around else {})

    def targets(self, shape: Shape) -> Any:
        """One target in any of its spellings, or two in distinct regions of one parallel state."""
        regions = [each for each in self.states if each.kind == "parallel" and len(each.children) > 1]
        if regions and self.chance(0.15):
            parallel = self.random.choice(regions)
            children = [each for each in parallel.children if each.kind != "history"]
            if len(children) > 1:
                chosen = self.random.sample(children, 2)
                found = [[each for each in child.below() if not self.is_trap(shape, each)] for child in chosen]
                return [self.spelled(shape, self.random.choice(each)) for each in found]
        return self.spelled(
            shape, self.random.choice([each for each in self.states[1:] if not self.is_trap(shape, each)])
        )

    def spelled(self, source: Shape, target: Shape) -> str:
        """A target as XState lets one write it; `around` is set when it is a history around the source (rule 3)."""
        self.around |= target.kind == "history" and target.parent is not None and source.is_in(target.parent)
        if source is not self.root and target.parent is source.parent and self.chance(0.7):
            return target.key
        if target.is_in(source) and self.chance(0.7):
            return "." + ".".join(target.path[len(source.path) :])
        return "#" + ".".join(["m", *target.path])

    def guard(self) -> Any:
        """A guard by name, by the context, by the configuration, or composed of such."""
        choice = self.random.randrange(6)
        if choice == 0:
            return self.random.choice(("yes", "no"))
        if choice == 1:
            state = self.random.choice([each for each in self.states[1:] if each.kind != "history"])
            return {"type": "xstate.stateIn", "params": {"stateValue": "#" + ".".join(["m", *state.path])}}
        if choice == 2 and self.chance(0.6):
            kind = self.random.choice(("and", "or", "not"))
            count = 1 if kind == "not" else 2
            return {"type": f"xstate.{kind}", "params": {"guards": [self.guard() for _ in range(count)]}}
        test = self.random.choice(("context.n % 2 == 0", "context.n < 3", "context.k < context.n", "context.n > 1"))
        return {"type": "interlock.expression", "params": {"expression": test}}

    def is_trap(self, source: Shape, target: Shape) -> bool:
        """Whether rule 3 or 4 of this file keeps the source from this target."""
        above = target.parent
        if target.kind != "history" or above is None or above not in (source, *source.above):
            return False
        return above.kind == "parallel" or (self.timed and above in source.above[1:])

    def extra_actions(self, share: float) -> list[Any]:
        """Now and then an assign or a raise."""
        if not self.chance(share):
            return []
        if self.chance(0.75):
            return [_assign(*self.random.choice((("n", "= context.n + 1"), ("n", 0), ("n", "= context.k + 2"))))]
        return [{"type": "xstate.raise", "params": {"event": {"type": self.random.choice(EVENTS)}}}]

    def events(self) -> list[Json]:
        """A sequence of events, with time passing in between."""
        count = self.random.randint(4, 12)
        return [{"advance": 10} if self.chance(0.15) else {"type": self.random.choice(EVENTS)} for _ in range(count)]


def _assign(name: str, value: Any) -> Json:
    return {"type": "interlock.assign", "params": {"values": {name: value}}}


def generated(seed: int) -> tuple[Json, list[Json]]:
    """The definition and the events of a seed."""
    generator = Generator(seed)
    return generator.definition(), generator.events()
