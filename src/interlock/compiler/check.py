"""placeholder"""
from __future__ import annotations
from interlock.compiler.resolve import Names
from interlock.model.chart import Chart
from interlock.model.document import Document
from interlock.model.findings import Findings


def check(chart: Chart, document: Document, names: Names, findings: Findings) -> None:
    return None
