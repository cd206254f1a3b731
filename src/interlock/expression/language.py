"""The expression language as the compiler and the kernel use it.

Users have one language, `SAFE`. The protocol exists so that tests can use a trusted evaluator for published suites
whose expressions need more. Nothing in this package does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from interlock.expression.codegen import Compiled, compile_parsed
from interlock.expression.parser import Parsed, parse

Script = Callable[[dict[str, Any], Any, Any, Any, Any], None]
"""A compiled script, called like an expression (context, event, entity, active, meter). It may change the context."""


class Language(Protocol):
    """Checks and compiles expressions and, if it is trusted, scripts."""

    def check(self, text: str) -> Parsed | None:
        """Return what an expression reads, or None if that is unknown. Raises ExpressionError if it is invalid."""

    def compile(self, text: str, inside: Mapping[str, str]) -> Compiled:
        """Return a compiled expression. If its `source` is empty, call `function`. Raises ExpressionError."""

    def script(self, text: str) -> Script | None:
        """Return a compiled script, or None if this language has no scripts."""


class SafeLanguage:
    """The restricted expression language; it has no scripts."""

    def check(self, text: str) -> Parsed | None:
        return parse(text)

    def compile(self, text: str, inside: Mapping[str, str]) -> Compiled:
        return compile_parsed(parse(text), inside=inside)

    def script(self, text: str) -> Script | None:  # noqa: ARG002  # part of the protocol
        return None


SAFE = SafeLanguage()
