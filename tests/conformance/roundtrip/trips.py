"""Trips of a document through formats: every written text is read again, and the reported losses are kept.

Rule 1: a trip that ends in an error is a difference, never a skip.
Rule 2: a loss that changes behaviour is one that a writer has reported: a warning `export.<what>` with a code in
`CHANGING`. What a writer says it has kept (in `meta.interlock`, in our namespace) must come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interlock.assemble.charts import get_format
from interlock.compiler.build import compile_document
from interlock.errors import Diagnostic
from interlock.expression.language import SAFE, Language
from interlock.model.charts.chart import Chart
from interlock.model.document.document import Document

CHANGING = {
    "yaml": set[str](),
    "json": set[str](),
    "scxml": set[str](),
    "xstate": {
        "export.always",
        "export.descriptors",
        "export.errors",
        "export.invoke_order",
        "export.nested_parallel",
        "export.order",
        "export.region_to_region",
        "export.select",
        "export.transient_invoke",
        "export.unhandled",
    },
}
"""Losses after which a chart may behave differently. For smcat, which is for drawings, every warning is one."""

_STORED = "stored in `meta.interlock`"


class LostError(AssertionError):
    """A text that we wrote does not read or compile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """A document after its trip, and the reported losses that change behaviour."""

    document: Document
    losses: frozenset[str]


def trip(document: Document, route: Sequence[str]) -> Trip:
    """Write and read a document in each format of the route. Raises LostError when a text of ours is refused."""
    losses: set[str] = set()
    for name in route:
        form = get_format(name)
        writing = form.write(document)
        losses |= {each.code for each in writing.diagnostics if _changes(name, each)}
        reading = form.read(writing.text, source=f"{document.kind}.{name}")
        errors = [str(each) for each in reading.diagnostics if each.severity == "error"]
        if reading.document is None or errors:
            raise LostError(f"what we wrote as {name} does not read: {errors[:3]}")
        if reading.document.kind != document.kind:
            raise LostError(f"{name}: the kind {document.kind} came back as {reading.document.kind}")
        document = reading.document
    return Trip(document=document, losses=frozenset(losses))


def _changes(name: str, loss: Diagnostic) -> bool:
    if loss.severity == "info" or _STORED in loss.message:
        return False
    return name not in CHANGING or loss.code in CHANGING[name]


def chart_of(document: Document, language: Language = SAFE) -> Chart:
    """The chart of a document. Raises LostError when it does not compile."""
    compilation = compile_document(document, language=language)
    if compilation.chart is None:
        errors = [str(each) for each in compilation.diagnostics if each.severity == "error"]
        raise LostError(f"it does not compile: {errors[:3]}")
    return compilation.chart
