"""A format: its name, its file suffixes, and a reader and a writer that meet in a `Document`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from interlock.errors import Diagnostic, UsageError
from interlock.model.document.document import Document

SourceLoader = Callable[[str], str]
"""Gives the text that a `src` attribute names. Readers open nothing themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """What a reader made of a text: the document (None when there is no use in going on) and all diagnostics."""

    document: Document | None
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """A document as text, and a diagnostic `export.<what>` for everything that the format cannot carry."""

    text: str
    diagnostics: tuple[Diagnostic, ...] = ()


class Reader(Protocol):
    """Reads a text; `source` names it in diagnostics; `loader` is asked for the texts it refers to."""

    def __call__(self, text: str | bytes, /, *, source: str, loader: SourceLoader | None = None) -> ReadResult: ...


def refuse_to_write(document: Document) -> WriteResult:
    """The writer of a format that is only read. Raises UsageError."""
    message = f"the chart {document.kind} cannot be written in this format: it can only be read"
    raise UsageError(message, code="format.read_only", hint="write it in another format")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A way to write charts; `suffixes` are the ends of its files' names."""

    name: str
    suffixes: tuple[str, ...]
    read: Reader
    write: Callable[[Document], WriteResult] = refuse_to_write

    @property
    def is_read_only(self) -> bool:
        """Whether it has no writer."""
        return self.write is refuse_to_write
