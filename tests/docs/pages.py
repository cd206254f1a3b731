"""Parses documentation pages: code blocks, files, commands, links, headings.

Two comments, on the line above a block, control how it is tested:

    <!-- not run: reason -->     skip the block
    <!-- file: order.yaml -->    write the block to that file, for the blocks after it
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.tracked import ROOT, markdown_files, read

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,}) *(?P<language>[\w+-]*)")
_COMMENT = re.compile(r"^ *<!-- *(?P<word>not run|file): *(?P<value>.+?) *-->$")
_LINK = re.compile(r"(?<!\\)\]\((?P<target>[^()\s]+(?:\([^()\s]*\))?)(?: +\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6} +(?P<text>.+?)(?: +#+)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: its language, its text, the line on which its text starts, and the comment above it."""

    language: str
    text: str
    line: int
    skip: str | None
    file: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One `$` line of a console block, and the output below it; None if the page shows none."""

    text: str
    output: str | None


def pages() -> tuple[Path, ...]:
    """Returns the pages for users: those in the root and all below docs."""
    return tuple(page for page in markdown_files() if page.parent == ROOT or page.is_relative_to(ROOT / "docs"))


def blocks(page: Path) -> list[Block]:
    """Returns the fenced blocks of a page, in order."""
    found = []
    lines = iter(enumerate((read(page) or "").splitlines(), start=1))
    comment: re.Match[str] | None = None
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            comment = _COMMENT.match(line) or (comment if not line.strip() else None)
            continue
        body = list(_until_closed(lines, fence))
        marks = {comment["word"]: comment["value"]} if comment else {}
        found.append(
            Block(
                language=fence["language"],
                text="".join(f"{text}\n" for text in body),
                line=number + 1,
                skip=marks.get("not run"),
                file=marks.get("file"),
            )
        )
        comment = None
    return found


def commands(block: Block) -> list[Command]:
    """Returns the commands of a console block; a backslash at the end of a line continues it."""
    found = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        end = next(number for number, line in enumerate(lines, start=1) if not line.endswith("\\\n"))
        found.append(Command(text="".join(lines[:end]).strip(), output="".join(lines[end:]) or None))
    return found


def links(page: Path) -> list[str]:
    """Returns the targets of links to files of the project."""
    targets = [match["target"] for match in _LINK.finditer(_prose(page))]
    return [target for target in targets if not re.match(r"[a-z][a-z0-9+.-]*:", target)]


def anchors(page: Path) -> set[str]:
    """Returns the anchors of the page's headings."""
    found: set[str] = set()
    for line in _prose(page, keep_code=True).splitlines():
        heading = _HEADING.match(line)
        if heading:
            bare = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading["text"]).replace("`", "")
            slug = re.sub(r"[^\w\- ]", "", bare.lower()).strip().replace(" ", "-")
            found.add(next(name for name in _numbered(slug) if name not in found))
    return found


def _until_closed(lines: Iterator[tuple[int, str]], fence: re.Match[str]) -> Iterator[str]:
    closing = re.compile(rf"^ *{re.escape(fence['marks'])}{fence['marks'][0]}* *$")
    for _, line in lines:
        if closing.match(line):
            return
        yield line.removeprefix(fence["indent"])


def _prose(page: Path, *, keep_code: bool = False) -> str:
    outside = re.sub(r"^ *(`{3,}|~{3,}).*?^ *\1", "", read(page) or "", flags=re.MULTILINE | re.DOTALL)
    return outside if keep_code else re.sub(r"`[^`\n]*`", "", outside)


def _numbered(slug: str) -> Iterator[str]:
    yield slug
    for number in range(1, 100):
        yield f"{slug}-{number}"
