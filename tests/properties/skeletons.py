"""Random trees of states: the bones of a random chart, before anything happens in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal

DEPTH_MAX = 4
STATES_MAX = 12


@dataclass(eq=False)
class Bone:
    """One state to be: its key and id, its type, its place in the tree."""

    key: str
    type: Literal["state", "parallel", "final", "history"]
    parent: Bone | None
    id: str = ""
    children: list[Bone] = field(default_factory=list)

    @property
    def active(self) -> list[Bone]:
        """The children that can be active."""
        return [each for each in self.children if each.type != "history"]

    @property
    def compound(self) -> bool:
        """Whether exactly one child is active at a time."""
        return self.type == "state" and bool(self.children)

    @property
    def can_be_done(self) -> bool:
        """Whether its done event can ever come."""
        if self.type == "parallel":
            return all(each.type == "final" or each.can_be_done for each in self.active)
        return any(each.type == "final" for each in self.children)

    def descendants(self) -> list[Bone]:
        """Everything below, in document order."""
        return [each for child in self.children for each in (child, *child.descendants())]

    def ancestors(self) -> list[Bone]:
        """The proper ancestors, nearest first."""
        return [] if self.parent is None else [self.parent, *self.parent.ancestors()]


class Skeleton:
    """A random tree: compounds and parallels up to four deep, finals and histories among them."""

    def __init__(self, random: Random, *, dialect: str) -> None:
        self.random = random
        self.dialect = dialect
        self.count = 0
        self.named = random.random() < 0.3
        self.root = Bone("", "state", None)
        self._grow(self.root, 0)
        self.states = self.root.descendants()

    def _grow(self, parent: Bone, depth: int) -> None:
        """Give a compound or parallel its children."""
        random = self.random
        number = random.choice((1, 2, 2, 3)) if depth else random.choice((2, 3, 3, 4))
        for position in range(number):
            child = self._add(parent, self._type(parent, position, depth))
            room = self.count < STATES_MAX and depth + 1 < DEPTH_MAX
            grows = random.random() < (0.8 if parent.type == "parallel" else 0.4)
            if child.type == "parallel" or (child.type == "state" and room and grows):
                self._grow(child, depth + 1)
        region = parent.parent is not None and parent.parent.type == "parallel"
        if parent.type == "state" and random.random() < (0.8 if region else 0.5 if depth else 0.3):
            self._add(parent, "final")
        if depth and random.random() < 0.4:
            self._add(parent, "history")

    def _type(self, parent: Bone, position: int, depth: int) -> Literal["state", "parallel", "final"]:
        chance = self.random.random()
        if chance < 0.3 and depth + 2 < DEPTH_MAX and self.count < STATES_MAX:
            return "parallel"
        final = parent.type == "state" or self.dialect == "xstate"
        if chance > 0.93 and final and (position or depth):
            return "final"
        return "state"

    def _add(self, parent: Bone, type: Literal["state", "parallel", "final", "history"]) -> Bone:
        self.count += 1
        key = f"s{self.count}"
        bone = Bone(key, type, parent)
        bone.id = key if self.named else f"{parent.id}.{key}".lstrip(".")
        parent.children.append(bone)
        return bone

    def pick(self, under: Bone | None = None) -> Bone:
        """Any state that can be a target, below `under` or anywhere."""
        return self.random.choice((under or self.root).descendants())

    def pick_several(self, under: Bone | None = None) -> list[Bone]:
        """One target, or several in distinct regions of one parallel."""
        first = self.pick(under)
        regions = next(
            (each for each in first.ancestors() if each.type == "parallel" and self._inside(each, under)), None
        )
        if regions is None or self.random.random() < 0.6:
            return [first]
        own = next(each for each in regions.children if each is first or each in first.ancestors())
        others = [each for each in regions.active if each is not own]
        if own.type == "history" or not others:
            return [first]
        other = self.random.choice(others)
        second = self.random.choice([each for each in (other, *other.descendants()) if each.type != "history"])
        return [first, second]

    @staticmethod
    def _inside(bone: Bone, under: Bone | None) -> bool:
        return under is None or bone is under or under in bone.ancestors()
