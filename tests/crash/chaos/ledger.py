"""What the services did: the truth against which a storm is checked.

Rule 1: a key is used once. The same key again gets the same answer.
Rule 2: a key that was closed, by a refusal, a compensation or a lookup that found nothing, stays closed: an operation
that arrives after its compensation is refused.
Rule 3: an entity has one operation of a kind at a time. A second one while the first is active is a double, whatever
its key; and so is one key for the operations of two entities.
Rule 4: some operations end with another: a route with its address, a content with its volume. They are counted, but
are never active.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

FLEETING = frozenset({"route", "content"})


class RefusedError(Exception):
    """The service refuses this key for good."""


@dataclass
class Operation:
    """One operation: what, for which entity, under which key; `undone` once it was compensated."""

    operation: str
    entity: str
    key: str
    number: str
    undone: bool = False


@dataclass
class Ledger:
    """The operations of all services."""

    operations: dict[str, Operation] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    doubles: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def do(self, operation: str, key: str, entity: str) -> str:
        """Do it, unless it was done under this key; return its number. Raises RefusedError for a closed key."""
        known = self.operations.get(key)
        if key in self.closed:
            self.counts["refused after all"] += 1
            raise RefusedError(key)
        if known is not None:
            if (known.operation, known.entity) != (operation, entity):
                message = (
                    f"{key} is the {known.operation} of {known.entity}, and is used for the {operation} of {entity}"
                )
                self.doubles.append(message)
            self.counts["asked again"] += 1
            return known.number
        if operation not in FLEETING and any(each.operation == operation for each in self.held(entity)):
            self.doubles.append(f"{entity} has a second {operation}, under {key}")
        made = self.operations[key] = Operation(operation, entity, key, f"{operation}-{len(self.operations) + 1}")
        self.counts["done"] += 1
        return made.number

    def refuse(self, key: str) -> None:
        """Refuse a key for good."""
        assert key not in self.operations  # it is done already
        self.closed.add(key)
        self.counts["refused"] += 1

    def undo(self, name: str) -> None:
        """Undo what has this key or number; a key that was never used is closed."""
        found = [each for each in self.operations.values() if name in (each.key, each.number)]
        for each in found:
            self.counts["undone again" if each.undone else "undone"] += 1
            each.undone = True
        self.closed |= {each.key for each in found} or {name}

    def find(self, key: str) -> str | None:
        """Return the number of the operation of a key; a key without one is closed."""
        known = self.operations.get(key)
        if known is None:
            self.closed.add(key)
        return None if known is None else known.number

    def book(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        operations = {key: asdict(each) for key, each in self.operations.items()}
        return {
            "operations": operations,
            "closed": sorted(self.closed),
            "doubles": self.doubles,
            "counts": dict(self.counts),
        }

    def held(self, entity: str) -> list[Operation]:
        """Return the operations of an entity that are not undone."""
        return [each for each in self.operations.values() if each.entity == entity and not each.undone]
