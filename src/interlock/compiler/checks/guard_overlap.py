"""Whether two guards can be true together, as far as their text shows.

Rule 1: "exclusive" is a proof, "not exclusive" is not: in doubt both may be true.
Rule 2: only parsed trees are read; nothing is evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache

from interlock.expression.builtins import CONSTANTS
from interlock.expression.parser import Parsed
from interlock.model.document.actions import Guard, GuardAll, GuardExpression, GuardIn, GuardNot

Trees = Mapping[str, Parsed | None]
"""The parsed tree of each expression text; None for a language without such a tree."""

Fact = tuple[str, str, str]
"""One comparison: subject, operator and operand, each as text that is equal if the meaning is equal."""

_CONTRADICTIONS: dict[str, frozenset[str]] = {
    "==": frozenset({"!=", "<", ">"}),
    "!=": frozenset({"=="}),
    "<": frozenset({">=", ">", "=="}),
    ">": frozenset({"<=", "<", "=="}),
    "<=": frozenset({">"}),
    ">=": frozenset({"<"}),
    "in": frozenset({"not in"}),
    "not in": frozenset({"in"}),
    "is": frozenset({"not"}),
    "not": frozenset({"is"}),
}
_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "==",
    ast.IsNot: "!=",
}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<", "in": "not in", "not in": "in"}


FactsBySubject = dict[str, list[Fact]]
"""The facts of a guard by their subject."""


class GuardComparison:
    """Compares the guards of one chart. The facts of each guard are computed once."""

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self._known: dict[int, tuple[Guard, FactsBySubject]] = {}

    def exclusive(self, first: Guard, second: Guard) -> bool:
        """Whether the text of two guards shows that they are never true together."""
        if _is_negation(first, second) or _is_negation(second, first):
            return True
        left, right = self._facts_of(first), self._facts_of(second)
        return any(
            _contradict(one, other)
            for about in left.keys() & right.keys()
            for one in left[about]
            for other in right[about]
        )

    def _facts_of(self, guard: Guard) -> FactsBySubject:
        found = self._known.get(id(guard))
        if found is None:
            facts: FactsBySubject = {}
            for each in dict.fromkeys(_facts(guard, self.trees)):
                facts.setdefault(each[0], []).append(each)
            found = self._known[id(guard)] = (guard, facts)  # keeps the guard alive, so that its id is not reused
        return found[1]


def _is_negation(first: Guard, second: Guard) -> bool:
    return isinstance(first, GuardNot) and first.guard == second


def _facts(guard: Guard, trees: Trees) -> Iterator[Fact]:
    """The facts that are true whenever the guard is true."""
    match guard:
        case GuardAll():
            for each in guard.guards:
                yield from _facts(each, trees)
        case GuardIn():
            yield (f"In({guard.state})", "is", "")
        case GuardNot(guard=GuardIn() as inner):
            yield (f"In({inner.state})", "not", "")
        case GuardExpression():
            parsed = trees.get(guard.expression.text)
            if parsed is not None:
                yield from _tree_facts(parsed.tree, holds=True)
        case _:
            return


def _tree_facts(tree: ast.expr, *, holds: bool) -> Iterator[Fact]:
    match tree:
        case ast.BoolOp(op=ast.And()) if holds:
            for each in tree.values:
                yield from _tree_facts(each, holds=True)
        case ast.BoolOp(op=ast.Or()) if not holds:
            for each in tree.values:
                yield from _tree_facts(each, holds=False)
        case ast.UnaryOp(op=ast.Not()):
            yield from _tree_facts(tree.operand, holds=not holds)
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            yield from _comparison(left, _SIGNS[type(sign)], right, holds=holds)
        case _:
            yield (ast.dump(tree), "is" if holds else "not", "")


def _comparison(left: ast.expr, sign: str, right: ast.expr, *, holds: bool) -> Iterator[Fact]:
    if not holds:
        # Comparing unordered values fails, and a guard that fails is false: so `not a < b` means `a >= b`.
        sign = _NEGATED[sign]
    if isinstance(left, ast.Constant) and sign in _MIRRORED:
        left, sign, right = right, _MIRRORED[sign], left
    yield (_text(left), sign, _text(right))


def _text(tree: ast.expr) -> str:
    if isinstance(tree, ast.Name) and tree.id in CONSTANTS:
        tree = ast.Constant(CONSTANTS[tree.id])
    return ast.dump(tree)


def _contradict(one: Fact, other: Fact) -> bool:
    """Whether two facts about the same subject contradict each other."""
    if one[2] == other[2]:
        return other[1] in _CONTRADICTIONS[one[1]]
    return _are_disjoint(one, other) or _are_disjoint(other, one)


def _are_disjoint(one: Fact, other: Fact) -> bool:
    """Whether `x == 1` or `x < 1` excludes the other fact, which compares x with another constant."""
    below, above = _constant(one[2]), _constant(other[2])
    if below is None or above is None:
        return False
    low, high = below[0], above[0]
    if one[1] == "==" and other[1] == "==":
        return low != high
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return False
    return low < high and one[1] in ("==", "<", "<=") and other[1] in ("==", ">", ">=")


@lru_cache(maxsize=1_000)
def _constant(dumped: str) -> tuple[object] | None:
    """The constant of a dumped tree; None if it is not one."""
    prefix = "Constant(value="
    return (ast.literal_eval(dumped[len(prefix) : -1]),) if dumped.startswith(prefix) else None
