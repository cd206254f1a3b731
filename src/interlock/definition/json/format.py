"""The vocabulary `interlock: 1` as JSON: the form in which definitions are stored, compared and given to programs.

Rule 1: it has the keys of YAML, from the same tables, and no others. Every document can be written, without loss.
Rule 2: `canonical_json` is the same bytes for equal documents: keys in the order of the tables, defaults left out, the
        dialect always written, no white space. `write_json` is the same text, indented.
Rule 3: the key `interlock` at the top distinguishes our JSON from that of XState, which has no such key.
"""

from __future__ import annotations

import msgspec

from interlock.definition.format import Format, ReadResult, SourceLoader, WriteResult
from interlock.definition.source.json import parse_json
from interlock.definition.vocabulary.chart import read_definition, write_chart
from interlock.errors import UsageError
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.document import Document
from interlock.model.limits import DEFINITION_STORED_BYTES_MAX

MARK = "interlock"
"""The top-level key that every definition in our vocabulary has."""

_encoder = msgspec.json.Encoder()


def read_json(text: str | bytes, /, *, source: str, loader: SourceLoader | None = None) -> ReadResult:
    """The document of a JSON definition, with all diagnostics. It refers to no other files."""
    del loader
    diagnostics = Diagnostics()
    node = parse_json(text, source=source, diagnostics=diagnostics, bytes_max=DEFINITION_STORED_BYTES_MAX)
    document = None
    if node is not None and isinstance(node.value, dict) and MARK not in node.value:
        message = f'expected the key "{MARK}" of a chart, or the keys of an XState machine'
        hint = 'add "interlock": 1; a machine of XState is read as format xstate'
        diagnostics.error("json.format", message, node.location, hint)
    elif node is not None:
        document = read_definition(node, source=source, diagnostics=diagnostics)
    return ReadResult(document=document, diagnostics=diagnostics.sorted(), is_vocabulary=True)


def canonical_json(document: Document) -> bytes:
    """The canonical bytes of a document. Raises UsageError if they are too large to be stored."""
    tree = write_chart(document)
    data = _encoder.encode({MARK: tree.pop(MARK), "kind": tree.pop("kind"), "dialect": document.dialect, **tree})
    if len(data) > DEFINITION_STORED_BYTES_MAX:
        message = f"the chart {document.kind} has {len(data):,} bytes as JSON; at most {DEFINITION_STORED_BYTES_MAX:,}"
        hint = "split the chart, and `invoke` one part from the other"
        raise UsageError(message, code="json.size", hint=hint)
    return data


def write_json(document: Document) -> WriteResult:
    """The canonical JSON of a document, indented for readers."""
    return WriteResult(text=msgspec.json.format(canonical_json(document), indent=2).decode() + "\n")


FORMAT = Format(name="json", suffixes=(".json",), read=read_json, write=write_json)
