"""A format: its name, its file suffixes, and a reader and a writer that meet in a `Document`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from interlock.errors import Diagnostic
from interlock.model.document.document import Document

Resolver = Callable[[str], str]
"""Gives the text that a `src` attribute names. Readers open nothing themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a reader made of a text: the document (None when there is no use in going on) and all findings."""

    document: Document | None
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """A document as text, and a diagnostic `export.<what>` for everything that the format cannot carry."""

    text: str
    diagnostics: tuple[Diagnostic, ...] = ()


class Reader(Protocol):
    """Reads a text; `source` names it in diagnostics; `resolver` is asked for the texts it refers to."""

    def __call__(self, text: str | bytes, /, *, source: str, resolver: Resolver | None = None) -> Reading: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A way to write charts. `suffixes` are the ends of its files' names; `write` None: it is only read."""

    name: str
    suffixes: tuple[str, ...]
    read: Reader
    write: Callable[[Document], Writing] | None
