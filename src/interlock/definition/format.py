"""A format: its name, its file suffixes, and a reader and a writer that meet in a `Document`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from interlock.errors import Diagnostic, UsageError
from interlock.model.document.document import Document

SourceLoader = Callable[[str], str]
"""Returns the text that a `src` attribute names. Readers open no files themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """The result of a reader: the document (None if the text is unusable) and all diagnostics.

    `is_vocabulary`: the text has the keys and values of the vocabulary, which stored definitions have too. A document
    of another format may contain values that a stored definition cannot.
    """

    document: Document | None
    diagnostics: tuple[Diagnostic, ...] = ()
    is_vocabulary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """A document as text, with a diagnostic `export.<what>` for everything that the format cannot express."""

    text: str
    diagnostics: tuple[Diagnostic, ...] = ()


class Reader(Protocol):
    """Reads a text; `source` names it in diagnostics; `loader` loads the texts it refers to."""

    def __call__(self, text: str | bytes, /, *, source: str, loader: SourceLoader | None = None) -> ReadResult: ...


def refuse_to_write(document: Document) -> WriteResult:
    """Refuse to write: the writer of a read-only format. Raises UsageError."""
    message = f"the chart {document.kind} cannot be written in this format, which is read-only"
    raise UsageError(message, code="format.read_only", hint="write it in another format")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A text format of charts; `suffixes` are the endings of its file names.

    `recognizes`: whether a text is in this format. It is asked only if another format has the same suffix.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Reader
    write: Callable[[Document], WriteResult] = refuse_to_write
    recognizes: Callable[[str | bytes], bool] | None = None

    @property
    def is_read_only(self) -> bool:
        """Whether the format has no writer."""
        return self.write is refuse_to_write
