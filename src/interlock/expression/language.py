"""The language that a chart's expressions are written in, as the compiler and the kernel see it.

There is one for users: `SAFE`, this room's own. The seam is here so that a test may bring a trusted evaluator for
published suites whose expressions go beyond it; nothing in the package does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from interlock.expression.codegen import Compiled, compile_parsed
from interlock.expression.parser import Parsed, parse

Script = Callable[[dict[str, Any], Any, Any, Any, Any], None]
"""A script compiled: called like an expression (context, event, entity, active, meter); may write into the context."""


class Language(Protocol):
    """Checks a text, compiles it, and, if the language is trusted, compiles scripts."""

    def check(self, text: str) -> Parsed | None:
        """What the text reads; None when the language cannot say. Raises ExpressionError when it is malformed."""

    def compile(self, text: str, inside: Mapping[str, str]) -> Compiled:
        """The text compiled. An empty `source` in the answer means: call `function`. Raises ExpressionError."""

    def script(self, text: str) -> Script | None:
        """The script compiled, or None: this language runs none."""


class SafeLanguage:
    """The restricted expression language; it has no scripts."""

    def check(self, text: str) -> Parsed | None:
        return parse(text)

    def compile(self, text: str, inside: Mapping[str, str]) -> Compiled:
        return compile_parsed(parse(text), inside=inside)

    def script(self, text: str) -> Script | None:  # noqa: ARG002  # the protocol gives it; nothing here needs it
        return None


SAFE = SafeLanguage()
