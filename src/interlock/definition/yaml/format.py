"""The canonical format: one YAML document, one chart, in the vocabulary `interlock: 1`.

Rule 1: all problems are reported together. A part that does not fit is left out; the rest still makes a document.
Rule 2: targets, expressions and everything else that needs the whole chart is checked by the compiler; texts are kept.
Rule 3: `read(write(document)) == document`, for every document whose transitions have the order in which YAML tries
them; others come back in an order with the same meaning. Keys have one order, defaults are left out, and white space
around expressions is not kept.
"""

from __future__ import annotations

from interlock.definition.format import Format, ReadResult, SourceLoader, WriteResult
from interlock.definition.vocabulary.chart import SCHEMA_LINE, read_definition, write_chart
from interlock.definition.yaml.parse import parse_yaml
from interlock.definition.yaml.print import print_yaml
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.document import Document


def read_yaml(text: str | bytes, /, *, source: str, loader: SourceLoader | None = None) -> ReadResult:
    """The document of a YAML definition, with all diagnostics. YAML refers to no other files."""
    del loader
    diagnostics = Diagnostics()
    node = parse_yaml(text, source=source, diagnostics=diagnostics)
    document = None if node is None else read_definition(node, source=source, diagnostics=diagnostics)
    return ReadResult(document=document, diagnostics=diagnostics.sorted(), is_vocabulary=True)


def write_yaml(document: Document) -> WriteResult:
    """The canonical text of a document."""
    return WriteResult(text=f"{SCHEMA_LINE}\n{print_yaml(write_chart(document))}")


FORMAT = Format(name="yaml", suffixes=(".yaml", ".yml"), read=read_yaml, write=write_yaml)
