"""XState 5 JSON: what `createMachine` takes, as far as JSON can say it.

Reading gives a document of dialect `xstate`, which the kernel runs as XState would; writing takes any document and
tells what XState cannot carry or would do otherwise. Reading what was written gives an equal document again, for every
document that the reader makes.
The action types of ours are listed in `xstate_action`, the keys of `meta.interlock` in `xstate_extra`.
"""

from __future__ import annotations

from typing import Literal

from interlock.definition.format import Format, Reading, Resolver, Writing
from interlock.definition.source.json import parse_json
from interlock.definition.xstate.read import read_document
from interlock.definition.xstate.version4 import rewritten
from interlock.definition.xstate.write import write_document
from interlock.model.diagnostics import Findings
from interlock.model.document.document import Document


def read_xstate(
    text: str | bytes,
    /,
    *,
    source: str,
    resolver: Resolver | None = None,  # noqa: ARG001  # every reader takes one; XState refers to no other text
    xstate: Literal[4, 5] = 5,
) -> Reading:
    """The document of an XState definition. `xstate=4`: the text is of version 4, whose keys and defaults differ."""
    findings = Findings()
    root = parse_json(text, source=source, findings=findings)
    if root is None:
        return Reading(document=None, diagnostics=findings.sorted())
    if xstate == 4:
        root = rewritten(root, findings)
    document = read_document(root, name=source, findings=findings, four=xstate == 4)
    return Reading(document=document, diagnostics=findings.sorted())


def write_xstate(document: Document) -> Writing:
    """The document as XState 5 JSON, with a diagnostic for everything lost or different there."""
    findings = Findings()
    text = write_document(document, findings)
    return Writing(text=text, diagnostics=findings.sorted())


def _read_v4(text: str | bytes, /, *, source: str, resolver: Resolver | None = None) -> Reading:
    return read_xstate(text, source=source, resolver=resolver, xstate=4)


FORMAT_V4 = Format(name="xstate4", suffixes=(), read=_read_v4)
"""XState 4 JSON, read only when asked for by this name: its keys and defaults differ, and are never guessed."""

FORMAT = Format(name="xstate", suffixes=(".json",), read=read_xstate, write=write_xstate)
