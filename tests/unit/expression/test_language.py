"""The safe language as the compiler and the kernel see it."""

from __future__ import annotations

from interlock.expression.language import SAFE


def test_the_safe_language_checks_and_compiles() -> None:
    parsed = SAFE.check("context.a and In('x')")

    assert parsed is not None
    assert (("a", 8),) == parsed.reads
    assert SAFE.compile("In('x')", {"x": "r.x"}).function({}, None, None, {"r.x"}, None) is True


def test_the_safe_language_runs_no_scripts() -> None:
    assert SAFE.script("context.a = 1") is None
