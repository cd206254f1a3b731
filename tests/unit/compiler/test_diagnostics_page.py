"""The reference of diagnostics lists exactly the codes in the source."""

import ast
import re
from collections.abc import Iterator

import pytest

from interlock.compiler.checks.report import CODES, Code
from tests.tidy.tracked import ROOT

PAGE = ROOT / "docs" / "reference" / "diagnostics.md"
ROOMS = ("model", "expression", "definition", "compiler", "kernel")
TELLERS = frozenset(
    {
        *("error", "warning", "info", "add", "fail", "refused", "tell", "Diagnostic", "Unresolved", "Text"),
        *("Trouble", "ExpressionError", "_fault", "_stop", "_Refused", "_YamlFault", "_check_field"),
        *("ContentError", "StepFailed", "Fault", "EvaluationError"),
    }
)
"""Functions and classes that a code is given to."""

CODE = re.compile(r"[a-z]+[a-z_]*\.[a-z_]+")
ROW = re.compile(r"\| `([a-z_.]+)` \| (.*)")
EVENTS = frozenset({"error.communication", "error.execution"})
"""Names of events, which look like codes."""


def reported(*rooms: str) -> Iterator[str]:
    """Every code that is written out in these packages; one that is put together counts with its family."""
    for room in rooms or ROOMS:
        for path in sorted((ROOT / "src" / "interlock" / room).rglob("*.py")):
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
    assert [] == sorted(set(reported()) - set(rows()))


def test_every_code_of_the_page_is_in_the_source() -> None:
    """What was taken out or renamed is taken off the page; losses of writers are put together from their names."""
    text = "".join(path.read_text() for path in (ROOT / "src" / "interlock").rglob("*.py"))

    assert [] == [each for each in rows() if f'"{each}"' not in text and not each.startswith("export.")]


def severity(code: Code) -> str:
    """The severity as the page writes it: `error (strict)` is a warning in other dialects."""
    return "error (strict)" if code.native == "error" != code.imported else code.native


def test_the_page_gives_each_code_of_the_compiler_its_severity() -> None:
    """The table of the compiler decides; a code that can be allowed is in the section of lints."""
    page = PAGE.read_text()
    for title, can_allow in (("Lints", True), ("Errors of the compiler", False)):
        section = page.split(f"\n## {title}\n")[1].split("\n## ")[0]
        listed = {found[1]: found[2] for line in section.splitlines() if (found := ROW.fullmatch(line))}

        assert sorted(code for code, each in CODES.items() if each.can_allow is can_allow) == sorted(listed)
        for code, row in listed.items():
            assert row.startswith((f"{severity(CODES[code])} |", f"{severity(CODES[code])};")), code


def test_every_code_of_the_checks_is_in_the_table() -> None:
    """A check that reports an unknown code would fail when it finds something. Models are compared, not checked."""
    assert {each for each in reported("compiler") if not each.startswith("model.")} <= set(CODES)


def test_the_page_gives_each_code_of_a_model_its_severity() -> None:
    source = (ROOT / "src" / "interlock" / "compiler" / "models.py").read_text()
    section = PAGE.read_text().split("\n## Models\n")[1].split("\n## ")[0]
    listed = {found[1]: found[2].partition(" ")[0] for line in section.splitlines() if (found := ROW.fullmatch(line))}

    assert {code: given for given, code in re.findall(r'found\.(\w+)\(\s*"(model\.\w+)"', source)} == listed
