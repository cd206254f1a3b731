"""XState 5 JSON: the argument of `createMachine`, as far as JSON can represent it.

Reading gives a document of dialect `xstate`, which the kernel runs as XState does. Writing takes any document and
reports what XState cannot represent or does differently. A document that the reader made is equal after writing and
reading. `read_actions` lists our own action types, `extension` the keys of `meta.interlock`.
"""

from __future__ import annotations

from typing import Literal

from interlock.definition.format import Format, ReadResult, SourceLoader, WriteResult
from interlock.definition.source.json import parse_json, top_keys
from interlock.definition.xstate.read import read_document
from interlock.definition.xstate.version4 import rewrite_version4
from interlock.definition.xstate.write import write_document
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.document import Document


def read_xstate(
    text: str | bytes,
    /,
    *,
    source: str,
    loader: SourceLoader | None = None,  # noqa: ARG001  # every reader takes one; XState refers to no other text
    xstate: Literal[4, 5] = 5,
) -> ReadResult:
    """The document of an XState definition. `xstate=4`: the text is of version 4, whose keys and defaults differ."""
    diagnostics = Diagnostics()
    root = parse_json(text, source=source, diagnostics=diagnostics)
    if root is None:
        return ReadResult(document=None, diagnostics=diagnostics.sorted())
    if xstate == 4:
        root = rewrite_version4(root, diagnostics)
    document = read_document(root, name=source, diagnostics=diagnostics, version4=xstate == 4)
    return ReadResult(document=document, diagnostics=diagnostics.sorted())


def write_xstate(document: Document) -> WriteResult:
    """The document as XState 5 JSON, with a diagnostic for everything that is lost or different there."""
    diagnostics = Diagnostics()
    text = write_document(document, diagnostics)
    return WriteResult(text=text, diagnostics=diagnostics.sorted())


def _read_v4(text: str | bytes, /, *, source: str, loader: SourceLoader | None = None) -> ReadResult:
    return read_xstate(text, source=source, loader=loader, xstate=4)


FORMAT_V4 = Format(name="xstate4", suffixes=(), read=_read_v4)
"""XState 4 JSON, read only if requested by this name, because its keys and defaults differ."""

_MACHINE_KEYS = frozenset({"states", "initial", "on", "always", "after", "invoke", "entry", "exit", "order"})
_OTHER_KEYS = frozenset({"interlock", "kind"})


def is_xstate(text: str | bytes) -> bool:
    """Whether a text is a JSON object with keys of a machine and without keys of the Interlock vocabulary."""
    keys = top_keys(text)
    return not keys.isdisjoint(_MACHINE_KEYS) and keys.isdisjoint(_OTHER_KEYS)


FORMAT = Format(name="xstate", suffixes=(".json",), read=read_xstate, write=write_xstate, recognizes=is_xstate)
