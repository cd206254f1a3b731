"""Pairs of charts with the changes between them, one text file per group.

== title
the old chart, without its first two lines
-- after
the new chart
-- changes
class code subject
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from interlock.assemble.charts import compile_reading, read_text
from interlock.evolve.changes import Change
from interlock.model.document.document import Document

FOLDER = Path(__file__).parent / "pairs"
HEAD = "interlock: 1\nkind: k\n"


@dataclass(frozen=True)
class Pair:
    """Two charts in YAML and the lines that say how they differ."""

    title: str
    before: str
    after: str
    changes: tuple[str, ...]

    def documents(self) -> tuple[Document, Document]:
        """Both documents; each compiles."""
        return _document(self.before), _document(self.after)

    def text(self) -> str:
        """The pair as it is in its file."""
        lines = "".join(f"{line}\n" for line in self.changes)
        return f"== {self.title}\n{self.before}-- after\n{self.after}-- changes\n{lines}"


def _document(text: str) -> Document:
    reading = read_text(HEAD + text, format="yaml", source="pair")
    assert [] == [str(each) for each in compile_reading(reading).diagnostics if each.severity == "error"], text
    assert reading.document is not None
    return reading.document


def read_pairs(path: Path) -> tuple[str, list[Pair]]:
    """The heading of a file and its pairs."""
    heading, *parts = path.read_text(encoding="utf-8").split("\n== ")
    pairs = []
    for part in parts:
        title, rest = part.split("\n", 1)
        before, rest = rest.split("-- after\n")
        after, changes = rest.split("-- changes")
        pairs.append(Pair(title, before, after, tuple(changes.split("\n")[1:])))
    return heading, [Pair(each.title, each.before, each.after, tuple(filter(None, each.changes))) for each in pairs]


def line(change: Change) -> str:
    """A change as a line of a file."""
    detail = f" ({change.detail})" if change.detail else ""
    return f"{change.review} {change.code} {change.subject}{detail}"


def all_pairs() -> dict[str, Pair]:
    """Every pair by group and title."""
    return {f"{path.stem}: {pair.title}": pair for path in sorted(FOLDER.glob("*.txt")) for pair in read_pairs(path)[1]}
