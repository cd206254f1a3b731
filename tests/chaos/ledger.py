"""What the services did, as they saw it: the truth that a storm is judged by.

Rule 1: a key is taken once. The same key again is a question about the first time, and gets the same answer.
Rule 2: a key that was closed, by a refusal, a compensation or a lookup that found nothing, is never done any more: a
deed that arrives after its compensation is refused.
Rule 3: nobody needs two of the same kind at once. A second deed for an entity while the first is held is a double,
whatever its key; and so is one key for the deeds of two.
Rule 4: some deeds end with another: a route with its address, a content with its volume. They are counted, not held.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

FLEETING = frozenset({"route", "content"})


class RefusedError(Exception):
    """The service will not do it under this key, now or ever."""


@dataclass
class Deed:
    """One thing done: what, for whom, under which key; `undone` once it was made up for."""

    deed: str
    entity: str
    key: str
    number: str
    undone: bool = False


@dataclass
class Ledger:
    """The book of all services."""

    deeds: dict[str, Deed] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    doubles: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def do(self, deed: str, key: str, entity: str) -> str:
        """Do it, unless it was done under this key; its number. Raises RefusedError for a closed key."""
        known = self.deeds.get(key)
        if key in self.closed:
            self.counts["refused after all"] += 1
            raise RefusedError(key)
        if known is not None:
            if (known.deed, known.entity) != (deed, entity):
                said = f"{key} is the {known.deed} of {known.entity}, and is asked for as the {deed} of {entity}"
                self.doubles.append(said)
            self.counts["asked again"] += 1
            return known.number
        if deed not in FLEETING and any(each.deed == deed for each in self.held(entity)):
            self.doubles.append(f"{entity} has a second {deed}, under {key}")
        made = self.deeds[key] = Deed(deed, entity, key, f"{deed}-{len(self.deeds) + 1}")
        self.counts["done"] += 1
        return made.number

    def refuse(self, key: str) -> None:
        """Say no, for good."""
        assert key not in self.deeds  # what is done is done
        self.closed.add(key)
        self.counts["refused"] += 1

    def undo(self, name: str) -> None:
        """Make up for what has this key or number; what was never done under the key will not be done any more."""
        found = [each for each in self.deeds.values() if name in (each.key, each.number)]
        for each in found:
            self.counts["undone again" if each.undone else "undone"] += 1
            each.undone = True
        self.closed |= {each.key for each in found} or {name}

    def find(self, key: str) -> str | None:
        """The number of what was done under a key; when nothing was, the key is closed."""
        known = self.deeds.get(key)
        if known is None:
            self.closed.add(key)
        return None if known is None else known.number

    def book(self) -> dict[str, Any]:
        """All of it, as plain JSON."""
        deeds = {key: asdict(each) for key, each in self.deeds.items()}
        return {"deeds": deeds, "closed": sorted(self.closed), "doubles": self.doubles, "counts": dict(self.counts)}

    def held(self, entity: str) -> list[Deed]:
        """What an entity has: done and not made up for."""
        return [each for each in self.deeds.values() if each.entity == entity and not each.undone]
