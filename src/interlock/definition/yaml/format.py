"""The canonical format: one YAML document, one chart, in the vocabulary `interlock: 1`.

Rule 1: all problems are reported together. A part that does not fit is left out; the rest still makes a document.
Rule 2: targets, expressions and everything else that needs the whole chart is checked by the compiler; texts are kept.
Rule 3: `read(write(document)) == document`, for every document whose transitions have the order in which YAML tries
them. Keys have one order, defaults are left out, and white space around expressions is not kept.
"""

from __future__ import annotations

from interlock.definition.format import Format, Reading, Resolver, Writing
from interlock.definition.shapes import Ref, ShapeChecker
from interlock.definition.source.node import Node
from interlock.definition.vocabulary.chart import FOREIGN_KEYS, SCHEMA_LINE, SHAPES, read_chart, write_chart
from interlock.definition.yaml.parse import parse_yaml
from interlock.definition.yaml.print import print_yaml
from interlock.model.diagnostics import Findings
from interlock.model.document.document import Document


def read_yaml(text: str | bytes, /, *, source: str, resolver: Resolver | None = None) -> Reading:
    """The document of a YAML definition, with all diagnostics. YAML refers to no other files."""
    del resolver
    findings = Findings()
    node = parse_yaml(text, source=source, findings=findings)
    document = None if node is None else read_node(node, source=source, findings=findings)
    return Reading(document=document, diagnostics=findings.sorted())


def read_node(node: Node, *, source: str, findings: Findings) -> Document | None:
    """The document of a parsed definition; None if a key is missing without which there is no chart."""
    checked = ShapeChecker(shapes=SHAPES, foreign=FOREIGN_KEYS, findings=findings).check(node, Ref(name="chart"))
    if checked is None:
        return None
    return read_chart(checked, source)


def write_yaml(document: Document) -> Writing:
    """The canonical text of a document."""
    findings = Findings()
    tree = write_chart(document, findings)
    return Writing(text=f"{SCHEMA_LINE}\n{print_yaml(tree)}", diagnostics=findings.sorted())


FORMAT = Format(name="yaml", suffixes=(".yaml", ".yml"), read=read_yaml, write=write_yaml)
