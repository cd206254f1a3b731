"""The reference of diagnostics lists every code that the source tells, and no other."""

import ast
import re
from collections.abc import Iterator

import pytest

from interlock.compiler.checks.report import LINTS
from tests.tidy.tracked import ROOT

PAGE = ROOT / "docs" / "reference" / "diagnostics.md"
ROOMS = ("model", "expression", "definition", "compiler", "kernel")
TELLERS = frozenset(
    {
        *("error", "warning", "info", "rule", "lint", "fail", "refused", "tell", "Diagnostic", "Unresolved", "Text"),
        *("Trouble", "ExpressionError", "_fault", "_stop", "_Refused", "_YamlFault", "_check_field"),
        *("ContentError", "StepFailed", "Fault", "EvaluationError"),
    }
)
"""Functions and classes that a code is given to."""

CODE = re.compile(r"[a-z]+[a-z_]*\.[a-z_]+")
ROW = re.compile(r"\| `([a-z_.]+)` \| (.*)")
EVENTS = frozenset({"error.communication", "error.execution"})
"""Names of events, which look like codes."""


def told() -> Iterator[str]:
    """Every code that is written out in the source; one that is put together counts with the family it belongs to."""
    for room in ROOMS:
        for path in sorted((ROOT / "src" / "interlock" / room).glob("*.py")):
            for call in ast.walk(ast.parse(path.read_text())):
                if isinstance(call, ast.Call) and _name(call.func) in TELLERS:
                    given = [*call.args, *(each.value for each in call.keywords)]
                    parts = [part for each in given for part in (each, *_branches(each))]
                    texts = [
                        each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)
                    ]
                    yield from (each for each in texts if CODE.fullmatch(each) and each not in EVENTS)
                    if _name(call.func) == "tell" and texts and isinstance(call.args[0], ast.Constant):
                        yield f"export.{texts[0]}"


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _branches(value: ast.expr) -> tuple[ast.expr, ...]:
    return (value.body, value.orelse) if isinstance(value, ast.IfExp) else ()


def rows() -> dict[str, str]:
    """Every code of the page with the rest of its row."""
    return {found[1]: found[2] for line in PAGE.read_text().splitlines() if (found := ROW.fullmatch(line))}


@pytest.mark.slow
def test_every_code_of_the_source_is_on_the_page() -> None:
    """Whoever adds a code says there when it is told and what to do."""
    assert [] == sorted(set(told()) - set(rows()))


def test_every_code_of_the_page_is_in_the_source() -> None:
    """What was taken out or renamed is taken off the page; losses of writers are put together from their names."""
    text = "".join(path.read_text() for path in (ROOT / "src" / "interlock").rglob("*.py"))

    assert [] == [each for each in rows() if f'"{each}"' not in text and not each.startswith("export.")]


def test_the_page_gives_each_lint_its_severity() -> None:
    """`error (ours)` says that other dialects get a warning."""
    section = PAGE.read_text().split("\n## Lints\n")[1].split("\n## ")[0]
    listed = {found[1]: found[2] for line in section.splitlines() if (found := ROW.fullmatch(line))}

    assert sorted(LINTS) == sorted(listed)
    for code, severity in LINTS.items():
        assert listed[code].startswith(severity), code
