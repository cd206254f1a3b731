"""Small definitions and the diagnostics of the compiler about them."""

from interlock.compiler.build import CompileResult, compile_document
from interlock.definition.yaml.format import FORMAT
from interlock.expression.language import SAFE, Language
from interlock.model.charts.chart import Chart
from interlock.model.document.document import Document

HEAD = "interlock: 1\nkind: test\n"
"""The start of every definition of these tests, so that line 3 is the first line of the test."""


def read(text: str) -> Document:
    """The document of a definition; its shape must be right."""
    reading = FORMAT.read(HEAD + text, source="test.yaml")

    assert reading.document is not None, [str(each) for each in reading.diagnostics]
    return reading.document


def compiled(text: str, *, language: Language = SAFE) -> CompileResult:
    """What the compiler makes of a definition."""
    return compile_document(read(text), language=language)


def chart_of(text: str) -> Chart:
    """The chart of a definition without errors."""
    compilation = compiled(text)

    assert compilation.chart is not None, [str(each) for each in compilation.diagnostics]
    return compilation.chart


def reported(definition: str | Document, code: str) -> list[str]:
    """Severity, line and column of every diagnostic of a code."""
    document = read(definition) if isinstance(definition, str) else definition
    return [
        f"{each.severity} {each.location.line}:{each.location.column}"
        for each in compile_document(document).diagnostics
        if each.code == code
    ]


def errors(definition: str | Document) -> list[str]:
    """The codes of all errors."""
    document = read(definition) if isinstance(definition, str) else definition
    return [each.code for each in compile_document(document).diagnostics if each.severity == "error"]
