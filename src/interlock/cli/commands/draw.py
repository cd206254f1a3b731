"""`interlock draw`: a chart as a picture, or as diagram text for other tools."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

import click
import msgspec

from interlock.assemble.charts import get_format
from interlock.cli import exit_codes
from interlock.cli.commands.check import sound
from interlock.cli.commands.convert import put
from interlock.cli.input import STDIN, read_source, write_bytes
from interlock.cli.options import common, example, format_option, json_option, output_option, pass_terminal, src_option
from interlock.cli.output.terminal import Terminal
from interlock.errors import UsageError
from interlock.model.chart import Chart
from interlock.model.document.document import Document

TEXT_FORMATS = ("mermaid", "dot", "smcat", "plantuml")
FORMATS = ("svg", "png", "text", *TEXT_FORMATS)
THEMES = ("vars", "light", "dark", "bare")
_SUFFIXES = {
    ".svg": "svg",
    ".png": "png",
    ".txt": "text",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".dot": "dot",
    ".gv": "dot",
    ".smcat": "smcat",
    ".puml": "plantuml",
    ".plantuml": "plantuml",
}
_OTHERS = frozenset({".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".eps", ".ps"})
"""Suffixes of pictures that are not drawn here, and under which nobody expects the text of a diagram."""

_LOOK_S = 0.3
"""How often a watched file is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawOptions:
    """What is to be drawn, and how."""

    file: str
    source_format: str | None
    allow_src: bool
    format: str
    active: frozenset[str]
    collapse: int | None
    theme: str | None
    output: str | None
    as_json: bool


@example(
    "interlock draw order.interlock.yaml -o order.svg",
    "interlock draw order.interlock.yaml -o order.png --active paid --theme dark",
    "interlock draw order.interlock.yaml --format text",
)
@click.command(short_help="Draw a chart as a picture or as diagram text.")
@click.argument("file", metavar="FILE")
@click.option(
    "--format",
    "drawn_format",
    type=click.Choice(FORMATS),
    help="Of the drawing; by default the suffix of -o tells, else mermaid.",
)
@click.option("--active", multiple=True, metavar="STATE", help="Light this state; may be given several times.")
@click.option("--collapse", type=click.IntRange(min=1), metavar="N", help="Draw N levels of states; svg and png.")
@click.option(
    "--theme",
    type=click.Choice(THEMES),
    help="vars follows the reader's preference (svg), light and dark are fixed, bare brings no colours.",
)
@click.option("--watch", is_flag=True, help="Draw again whenever FILE changes, until interrupted; needs -o.")
@output_option
@json_option
@format_option
@src_option
@common
@pass_terminal
def draw(
    terminal: Terminal,
    file: str,
    *,
    drawn_format: str | None,
    active: tuple[str, ...],
    collapse: int | None,
    theme: str | None,
    watch: bool,
    output: str | None,
    as_json: bool,
    source_format: str | None,
    allow_src: bool,
) -> int:
    """Draw a chart as a picture (svg, png), as a tree of words (text), or as text for another tool's diagrams."""
    wish = DrawOptions(
        file=file,
        source_format=source_format,
        allow_src=allow_src,
        format=_format(drawn_format, output),
        active=frozenset(active),
        collapse=collapse,
        theme=theme,
        output=None if output == STDIN else output,
        as_json=as_json,
    )
    _check(wish, watch=watch)
    if not watch:
        _draw(terminal, wish)
        return exit_codes.OK
    for _ in _changes(Path(file)):
        try:
            _draw(terminal, wish)
        except click.exceptions.Exit:
            # The findings are told; the drawing stays as it is until the file is right again.
            continue
    return exit_codes.OK


def _format(drawn_format: str | None, output: str | None) -> str:
    suffix = PurePath(output or "").suffix.lower()
    if drawn_format is None and suffix in _OTHERS:
        message = f'no drawing is made as "{suffix[1:]}"'
        raise UsageError(message, code="format.picture", hint="write .svg or .png, and let another tool convert that")
    return drawn_format or _SUFFIXES.get(suffix, "mermaid")


def _check(wish: DrawOptions, *, watch: bool) -> None:
    """Refuse what cannot be meant, before anything is read."""
    drawn = wish.format in ("svg", "png")
    if not drawn and (wish.collapse is not None or wish.theme is not None):
        option = "--collapse" if wish.collapse is not None else "--theme"
        raise UsageError(f"{option} is for pictures, and this is {wish.format}", code="draw.option", hint="draw an svg")
    if wish.format == "png" and wish.theme in ("vars", "bare"):
        raise UsageError(f"a png has no theme `{wish.theme}`", code="draw.theme", hint="choose light or dark")
    if wish.format == "png" and (wish.output is None or wish.as_json):
        raise UsageError("a png is written to a file", code="draw.output", hint="name one with -o, without --json")
    if watch and (wish.output is None or wish.file == STDIN):
        message = "--watch draws a file to a file, again and again"
        raise UsageError(message, code="draw.watch", hint="name both: interlock draw FILE -o FILE --watch")


def _draw(terminal: Terminal, wish: DrawOptions) -> None:
    """Make one drawing and put it where it belongs."""
    document, chart = sound(read_source(wish.file, wish.source_format, allow_src=wish.allow_src), terminal)
    if wish.format == "png":
        from interlock.render.svg.png import png

        assert wish.output is not None
        write_bytes(Path(wish.output), png(_picture(terminal, chart, wish, theme=wish.theme or "light")))
        terminal.message(f"wrote {wish.output}")
        return
    text = _text(terminal, wish, document, chart)
    if wish.as_json:
        said = {"format": wish.format, "kind": chart.kind, "revision": chart.revision, "text": text}
        text = msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"
    put(terminal, text, wish.output)


def _text(terminal: Terminal, wish: DrawOptions, document: Document, chart: Chart) -> str:
    """The drawing in a format that is text, imported now. Smcat is a format of definitions, and its writer draws."""
    match wish.format:
        case "svg":
            return _picture(terminal, chart, wish, theme=wish.theme or "vars")
        case "text":
            from interlock.render.drawing import text_tree

            return text_tree(chart, active=wish.active)
        case "dot":
            from interlock.render.diagram.dot import dot

            return dot(chart, active=wish.active)
        case "plantuml":
            from interlock.render.diagram.plantuml import plantuml

            return plantuml(chart, active=wish.active)
        case "smcat":
            if wish.active:
                raise UsageError("smcat text cannot light states; draw as svg, mermaid or dot", code="draw.active")
            return get_format("smcat").write(document).text
        case _:
            from interlock.render.diagram.mermaid import mermaid

            return mermaid(chart, active=wish.active)


def _picture(terminal: Terminal, chart: Chart, wish: DrawOptions, *, theme: str) -> str:
    """The chart as SVG; says so when it is only an outline."""
    from interlock.render.drawing import Options, draw_svg
    from interlock.render.svg.theme import theme_named

    made = draw_svg(chart, Options(active=wish.active, collapse=wish.collapse, theme=theme_named(theme)))
    if made.fallback_reason:
        terminal.message((f"drawn as an outline: {made.fallback_reason}", "yellow"))
    return made.svg


def _changes(path: Path) -> Iterator[None]:
    """Now, and whenever the file is another than before; without an end: the caller is interrupted."""
    seen: object = None
    while True:
        try:
            found = path.stat()
            here: object = (found.st_mtime_ns, found.st_size, found.st_ino)
        except FileNotFoundError:
            # Editors take a file away for a moment while they write it.
            here = seen
        if here != seen or here is None:
            seen = here
            yield
        time.sleep(_LOOK_S)
