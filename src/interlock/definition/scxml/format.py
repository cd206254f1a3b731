"""The format SCXML 1.0: the W3C's XML for statecharts, with extensions in our namespace."""

from __future__ import annotations

from interlock.definition.format import Format, ReadResult, SourceLoader
from interlock.definition.names import kind_from_source
from interlock.definition.scxml.read import read_root
from interlock.definition.scxml.write import write_scxml
from interlock.definition.source.xml import parse_xml
from interlock.errors import SourceLocation, UsageError
from interlock.model.diagnostics import Diagnostics

LOADED_MAX = 64
"""Texts that one definition may load: a file that invokes itself would load without end."""


def read_scxml(text: str | bytes, /, *, source: str = "<definition>", loader: SourceLoader | None = None) -> ReadResult:
    """The document of an SCXML text. `loader` loads the texts that `src` names; without one they are refused."""
    diagnostics = Diagnostics()
    root = parse_xml(text, source=source, diagnostics=diagnostics)
    document = None
    limited = None if loader is None else _limit_loads(loader)
    try:
        if root is not None:
            document = read_root(
                root, kind=kind_from_source(source), source=source, diagnostics=diagnostics, loader=limited
            )
    except RecursionError:
        # The depth of one file is limited; files that invoke files, or themselves, add up.
        diagnostics.error("scxml.nesting", "invokes of other files are nested too deeply", SourceLocation(source))
    return ReadResult(document=document, diagnostics=diagnostics.sorted())


def _limit_loads(loader: SourceLoader) -> SourceLoader:
    count = 0

    def limited(src: str) -> str:
        nonlocal count
        count += 1
        if count > LOADED_MAX:
            raise UsageError(f"more than {LOADED_MAX} texts to load", code="scxml.src")
        return loader(src)

    return limited


FORMAT = Format(name="scxml", suffixes=(".scxml", ".xml"), read=read_scxml, write=write_scxml)
