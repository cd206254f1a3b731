"""Resolve names: the states of targets, `initial`, history defaults and `In()`, and the names an expression reads.

Rule 1: every problem is a diagnostic; resolution continues, so that all problems are reported together.
Rule 2: what a dialect accepts although it is wrong (SCXML's malformed expressions, S35) is marked, not dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from interlock.errors import SourceLocation
from interlock.expression.language import Language
from interlock.expression.parser import ExpressionError, Parsed
from interlock.model.charts.chart import Descriptor
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import Block, Expression, Guard, GuardIn, Value
from interlock.model.document.document import DialectName, Document
from interlock.model.document.targets import TargetIndex, Unresolved
from interlock.model.document.walk import rewrite_block, rewrite_guard, rewrite_value
from interlock.model.limits import TARGETS_MAX


class NameResolver:
    """Resolves every name of a document."""

    def __init__(self, document: Document, language: Language, diagnostics: Diagnostics) -> None:
        self.document = document
        self.language = language
        self.diagnostics = diagnostics
        self.tree = TargetIndex(document)
        self.lenient = document.dialect == "scxml"
        self.parsed: dict[str, Parsed | None] = {}

    def resolve_targets(self, source: int, texts: tuple[str, ...], location: SourceLocation) -> tuple[int, ...]:
        """The states that a transition of `source` names; each unknown one is reported at the place.

        An unknown target is a warning in SCXML, because such a file runs as long as the transition is not taken (W3C
        240).
        """
        return self._resolved(
            texts, location, lambda text: self.tree.resolve_target(source, text), lenient=self.lenient
        )

    def resolve_children(self, parent: int, texts: tuple[str, ...], location: SourceLocation) -> tuple[int, ...]:
        """The states that `initial`, or the default of a history, names among the children of `parent`."""
        return self._resolved(texts, location, lambda text: self.tree.resolve_child(parent, text), lenient=False)

    def _resolved(
        self,
        texts: tuple[str, ...],
        location: SourceLocation,
        find: Callable[[str], int | Unresolved],
        *,
        lenient: bool,
    ) -> tuple[int, ...]:
        if len(texts) > TARGETS_MAX:
            message = f"a transition has {len(texts):,} targets; the limit is {TARGETS_MAX}"
            self.diagnostics.error("transition.targets", message, location)
            return ()
        found = []
        for text in texts:
            index = find(text)
            if isinstance(index, Unresolved):
                self._unresolved(index, location, lenient=lenient)
            else:
                found.append(index)
        return tuple(found)

    def _unresolved(self, problem: Unresolved, location: SourceLocation, *, lenient: bool) -> None:
        if lenient:
            self.diagnostics.warning(problem.code, problem.message, location, problem.hint)
        else:
            self.diagnostics.error(problem.code, problem.message, location, problem.hint)

    def value(self, source: int, value: Value) -> Value:
        """A value with every expression in it checked and resolved."""
        return rewrite_value(value, lambda each: self.expression(source, each))

    def guard(self, source: int, guard: Guard | None) -> Guard | None:
        """A guard with every name in it resolved."""
        if guard is None:
            return None
        return rewrite_guard(guard, lambda each: self.expression(source, each), lambda each: self._inside(source, each))

    def block(self, source: int, block: Block) -> Block:
        """A block with every name in it resolved."""
        return rewrite_block(block, lambda each: self.expression(source, each), lambda each: self._inside(source, each))

    def expression(self, source: int, expression: Expression) -> Expression:
        """The expression, parsed and checked; the states in its `In()` are resolved from `source`."""
        if expression.text not in self.parsed:
            try:
                self.parsed[expression.text] = self.language.check(expression.text)
            except ExpressionError as error:
                return self._malformed(expression, error)
        parsed = self.parsed[expression.text]
        if parsed is None:
            return expression
        inside = []
        for literal, offset in parsed.inside:
            index = self.tree.resolve_in_state(source, literal)
            if isinstance(index, Unresolved):
                location = expression.location.shift(offset, offset + len(literal))
                self._unresolved(replace(index, message=f"In(): {index.message}"), location, lenient=self.lenient)
                inside.append((literal, literal))
            else:
                inside.append((literal, self.tree.ids[index]))
        return replace(expression, inside=tuple(inside))

    def _malformed(self, expression: Expression, error: ExpressionError) -> Expression:
        location = expression.location.shift(error.offset, error.end)
        if self.lenient:
            self.diagnostics.warning(error.code, f"{error.message}; evaluating it will fail", location, error.hint)
            return replace(expression, malformed=f"{error.code}: {error.message}")
        self.diagnostics.error(error.code, error.message, location, error.hint)
        return expression

    def _inside(self, source: int, guard: GuardIn) -> Guard:
        index = self.tree.resolve_in_state(source, guard.state)
        if isinstance(index, Unresolved):
            self.diagnostics.error(index.code, index.message, guard.location, index.hint)
            return guard
        return replace(guard, state=self.tree.ids[index])


def parse_descriptor(text: str, dialect: DialectName) -> Descriptor:
    """The descriptor of a text: a prefix of whole tokens in SCXML and YAML, the exact name in XState."""
    if text == "*":
        return Descriptor(text, ())
    if dialect == "xstate":
        if text.endswith(".*"):
            return Descriptor(text, tuple(text[:-2].split(".")))
        return exact_descriptor(text)
    return Descriptor(text, tuple(text.removesuffix("*").removesuffix(".").split(".")))


def exact_descriptor(name: str) -> Descriptor:
    """The descriptor of exactly one name, as generated for `after`, `onDone` and `onError`."""
    return Descriptor(name, tuple(name.split(".")), exact=True)
