"""Charts made by chance, each by its seed: every construct that a drawing must survive, in any mixture."""

import random
from dataclasses import dataclass
from typing import Literal

from interlock.compiler.build import compile_document
from interlock.model.charts.chart import Chart
from interlock.model.document.actions import Do
from interlock.model.document.document import Document, State, Transition

WORDS = ("idle", "paid", "x", "waiting_for_the_answer", "größe", "状態", "on", "retry-pending", "a.b", "Z" * 24)
EVENTS = ("go", "payment.confirmed", "order.cancelled.by.customer", "t", "非同期", "error.*", "stop", "q" * 40)


@dataclass(slots=True)
class Shape:
    """A state to be generated: its name, its type and its children."""

    name: str
    kind: str
    inside: list["Shape"]


class _Maker:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.left = self.chance.choice((3, 8, 15, 25, 40))
        self.deepest = self.chance.choice((1, 2, 3, 4))
        self.busy = self.chance.choice((0.5, 1.0, 1.6))
        self.count = 0
        self.parents: dict[str, str] = {}
        self.kinds: dict[str, str] = {}

    def name(self) -> str:
        self.count += 1
        return f"{self.chance.choice(WORDS).replace('.', '_')}{self.count}"

    def shape(self, depth: int, parent: str, kind: str) -> list[Shape]:
        made: list[Shape] = []
        for _ in range(self.chance.randint(2, 6)):
            if self.left <= 0 and len(made) >= (2 if kind == "parallel" else 1):
                break
            self.left -= 1
            name = self.name()
            self.parents[name] = parent
            own = "atomic"
            inside: list[Shape] = []
            if depth < self.deepest and self.left > 0 and self.chance.random() < 0.45:
                own = self.chance.choice(("compound", "compound", "parallel"))
                inside = self.shape(depth + 1, name, own)
            elif kind != "parallel" and made and self.chance.random() < 0.2:
                own = "final"
            elif made and depth and self.chance.random() < 0.15:
                own = "history"
            self.kinds[name] = own
            made.append(Shape(name, own, inside))
        if kind == "parallel" and all(each.kind == "history" for each in made[1:]):
            made[-1].kind = self.kinds[made[-1].name] = "atomic"
        return made

    def above(self, name: str) -> list[str]:
        found = []
        while name:
            found.append(name)
            name = self.parents[name]
        return found

    def targets(self) -> tuple[str, ...]:
        names = list(self.kinds)
        first = self.chance.choice(names)
        if self.chance.random() < 0.12:
            second = self.chance.choice(names)
            outer = [each for each in self.above(first) if each in self.above(second)]
            common = outer[0] if outer else ""
            if common not in (first, second) and self.kinds.get(common) == "parallel":
                return f"#{first}", f"#{second}"
        return (f"#{first}",)

    def transitions(self, name: str) -> tuple[Transition, ...]:
        found: list[Transition] = []
        for _ in range(self.chance.choice((0, 1, 1, 2, 2, 3, 7)) if self.chance.random() < self.busy else 0):
            targets = () if self.chance.random() < 0.1 else self.targets()
            actions = tuple(Do(name=f"act_{number}") for number in range(self.chance.choice((0, 0, 1, 4))))
            # The compiler asks for `reenter` where the source is or holds the target, and refuses it elsewhere.
            within = bool(targets) and all(name in self.above(each[1:]) for each in targets)
            event = f"{self.chance.choice(EVENTS)}.{len(found)}".replace("*.", "")
            found.append(
                Transition(events=(event,), targets=targets, actions=actions, reenter=True if within else None)
            )
        return tuple(found)

    def states(self, shape: list[Shape]) -> tuple[State, ...]:
        made: list[State] = []
        for each in shape:
            name, own, inside = each.name, each.kind, each.inside
            if own == "history":
                depth: Literal["shallow", "deep"] = "deep" if self.chance.random() < 0.5 else "shallow"
                siblings = [other.name for other in shape if other.kind not in ("history", "final")]
                default = (f"#{self.chance.choice(siblings or [shape[0].name])}",)
                made.append(State(key=name, id=name, type="history", history=depth, targets=default))
                continue
            entry = ((Do(name="enter"),),) if self.chance.random() < 0.2 else ()
            transitions = self.transitions(name) if own != "final" else ()
            made.append(
                State(
                    key=name,
                    id=name,
                    type="parallel" if own == "parallel" else "final" if own == "final" else "state",
                    entry=entry if own != "final" else (),
                    states=self.states(inside),
                    transitions=transitions,
                )
            )
        return tuple(made)


def generated(seed: int) -> Chart | None:
    """The chart of a seed; None when the compiler refuses what chance has written."""
    maker = _Maker(seed)
    shape = maker.shape(0, "", "compound")
    root = State(states=maker.states(shape), transitions=maker.transitions("") if seed % 3 == 0 else ())
    return compile_document(Document(kind=f"chart{seed}", root=root)).chart
