"""`interlock draw`: a chart as a picture, or as diagram text for other tools."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

import click

from interlock.assemble.charts import format_writer
from interlock.cli import exit_codes
from interlock.cli.commands.charts.check import require_sound
from interlock.cli.commands.charts.convert import check_output, input_arguments, write_output
from interlock.cli.input import STDIN, read_source, write_bytes
from interlock.cli.options import common, example, format_option, json_option, output_option, pass_terminal, src_option
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_text
from interlock.cli.project import is_store_url
from interlock.cli.session import open_for_reading, run
from interlock.errors import UsageError
from interlock.model.charts.chart import Chart
from interlock.model.document.document import Document
from interlock.observe.population import check_kind
from interlock.runtime.runtime import Runtime

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
_UNSUPPORTED_SUFFIXES = frozenset({".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".eps", ".ps"})
"""Suffixes of pictures that cannot be drawn; diagram text in such a file would be a surprise."""

_WATCH_SECONDS = 0.3
"""Time between two checks of a watched file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawOptions:
    """The options of a drawing. With a `name` of a kind or an entity, `file` is the URL of a store."""

    file: str
    name: str | None
    revision: str | None
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
    "interlock draw sqlite:///orders.db order/A-1 --format text",
)
@click.command
@click.argument("words", nargs=-1, required=True, metavar="FILE | STORE KIND[/ID]")
@click.option("--revision", metavar="REVISION", help="The revision of a kind in a store, by name or label.")
@click.option(
    "--format",
    "drawn_format",
    type=click.Choice(FORMATS),
    help="Default: by the suffix of -o, or else mermaid.",
)
@click.option("--active", multiple=True, metavar="STATE", help="Highlight this state. May be repeated.")
@click.option("--collapse", type=click.IntRange(min=1), metavar="N", help="Draw only N levels of states (svg, png).")
@click.option(
    "--theme",
    type=click.Choice(THEMES),
    help="vars follows the reader's preference (svg), light and dark are fixed, bare has no colours.",
)
@click.option(
    "--check", "only_check", is_flag=True, help="Write nothing; exit code 1 if the file of -o is out of date."
)
@click.option("--watch", is_flag=True, help="Draw again when FILE changes, until interrupted; needs -o.")
@output_option
@json_option
@format_option
@src_option
@common
@pass_terminal
def draw(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    revision: str | None,
    drawn_format: str | None,
    active: tuple[str, ...],
    collapse: int | None,
    theme: str | None,
    only_check: bool,
    watch: bool,
    output: str | None,
    as_json: bool,
    source_format: str | None,
    allow_src: bool,
) -> int:
    """The formats svg and png are pictures, text is an indented tree, and the others are for diagram tools.

    From a store, it draws the newest definition of a kind, or the definition of an entity with the active states
    highlighted.
    """
    file, name = _source(words, revision)
    options = DrawOptions(
        file=file,
        name=name,
        revision=revision,
        source_format=source_format,
        allow_src=allow_src,
        format=_format(drawn_format, output),
        active=frozenset(active),
        collapse=collapse,
        theme=theme,
        output=None if output == STDIN else output,
        as_json=as_json,
    )
    _check(options, watch=watch, only_check=only_check)
    if only_check:
        assert options.output is not None
        return check_output(terminal, _drawn(terminal, options), options.output, _command(options, drawn_format))
    if not watch:
        _draw(terminal, options)
        return exit_codes.OK
    assert name is None
    for _ in _changes(Path(file)):
        try:
            _draw(terminal, options)
        except click.exceptions.Exit:
            # The findings are printed; the drawing stays until the file is correct again.
            continue
    return exit_codes.OK


def _source(words: tuple[str, ...], revision: str | None) -> tuple[str, str | None]:
    """Return the file, or the store and the kind or entity in it. Raises UsageError for other arguments."""
    if is_store_url(words[0]) and len(words) == 2:
        return words[0], words[1]
    if len(words) != 1 or is_store_url(words[0]):
        raise click.UsageError("give a FILE, or a STORE and a KIND or KIND/ID")
    if revision is not None:
        raise click.UsageError("--revision needs a STORE and a KIND")
    return words[0], None


def _format(drawn_format: str | None, output: str | None) -> str:
    suffix = PurePath(output or "").suffix.lower()
    if drawn_format is None and suffix in _UNSUPPORTED_SUFFIXES:
        message = f'unsupported picture format "{suffix[1:]}"'
        raise UsageError(message, code="format.picture", hint="use .svg or .png, and convert that with another tool")
    return drawn_format or _SUFFIXES.get(suffix, "mermaid")


def _command(options: DrawOptions, drawn_format: str | None) -> list[str]:
    """The command that draws with these options."""
    return [
        *("interlock", "draw", options.file, *([] if options.name is None else [options.name])),
        *(["--revision", options.revision] if options.revision else []),
        *(["--format", drawn_format] if drawn_format else []),
        *(word for each in sorted(options.active) for word in ("--active", each)),
        *(["--collapse", str(options.collapse)] if options.collapse is not None else []),
        *(["--theme", options.theme] if options.theme else []),
        *(["-o", options.output] if options.output else []),
        *(["--json"] if options.as_json else []),
        *input_arguments(options.source_format, allow_src=options.allow_src),
    ]


def _check(options: DrawOptions, *, watch: bool, only_check: bool) -> None:
    """Raise UsageError for options that contradict each other, before anything is read."""
    drawn = options.format in ("svg", "png")
    if not drawn and (options.collapse is not None or options.theme is not None):
        option = "--collapse" if options.collapse is not None else "--theme"
        raise UsageError(
            f"{option} needs svg or png, and the format is {options.format}", code="draw.option", hint="draw an svg"
        )
    if options.format == "png" and options.theme in ("vars", "bare"):
        raise UsageError(f"a png has no theme `{options.theme}`", code="draw.theme", hint="choose light or dark")
    if options.format == "png" and (options.output is None or options.as_json):
        raise UsageError("a png needs an output file", code="draw.output", hint="use -o FILE, without --json")
    if only_check and (options.output is None or watch):
        hint = "interlock draw FILE -o FILE --check, without --watch"
        raise UsageError("--check needs the file to compare", code="check.output", hint=hint)
    if watch and (options.output is None or options.file == STDIN or options.name is not None):
        message = "--watch needs an input file and an output file"
        raise UsageError(message, code="draw.watch", hint="interlock draw FILE -o FILE --watch")


def _draw(terminal: Terminal, options: DrawOptions) -> None:
    """Draw once."""
    data = _drawn(terminal, options)
    if options.format == "png":
        assert options.output is not None
        write_bytes(Path(options.output), data)
        terminal.message(f"wrote {options.output}")
    else:
        write_output(terminal, data.decode(), options.output)


def _drawn(terminal: Terminal, options: DrawOptions) -> bytes:
    """The content of the file that the options describe."""
    if options.name is not None:
        document, chart, active = run(_stored(options.file, options.name, options.revision))
        options = replace(options, active=options.active or active)
    else:
        document, chart = require_sound(
            read_source(options.file, options.source_format, allow_src=options.allow_src), terminal
        )
    if options.format == "png":
        from interlock.render.svg.png import png

        return png(_picture(terminal, chart, options, theme=options.theme or "light"))
    text = _text(terminal, options, document, chart)
    if options.as_json:
        text = json_text({"format": options.format, "kind": chart.kind, "revision": chart.revision, "text": text})
    return text.encode()


async def _stored(url: str, name: str, revision: str | None) -> tuple[Document, Chart, frozenset[str]]:
    """Return the definition of a kind or an entity in a store, and the active states of the entity."""
    kind, is_entity, _ = name.partition("/")
    active: tuple[str, ...] = ()
    async with open_for_reading(url) as runtime:
        if is_entity:
            if revision is not None:
                raise UsageError("an entity has one revision", code="draw.revision", hint="omit --revision")
            snapshot = await runtime.state(name)
            kernel = await runtime.revisions.for_reading(kind, snapshot.revision)
            active = tuple(each.id for each in kernel.active(snapshot))
        elif revision is not None:
            kernel = await runtime.revisions.for_reading(kind, await _revision_name(runtime, kind, revision))
        else:
            await check_kind(runtime, kind)
            kernel = await runtime.revisions.newest(kind)
    assert kernel.chart.document is not None  # it was compiled from a stored definition
    return kernel.chart.document, kernel.chart, frozenset(active)


async def _revision_name(runtime: Runtime, kind: str, given: str) -> str:
    """Return the name of a revision that is given by its name or its label; of several with one label the newest."""
    labelled = [each.revision for each in await runtime.revisions.editions(kind) if each.label == given]
    return labelled[-1] if labelled else given


def _text(terminal: Terminal, options: DrawOptions, document: Document, chart: Chart) -> str:
    """The drawing in a text format. The writer of smcat definitions also makes the smcat drawing."""
    match options.format:
        case "svg":
            return _picture(terminal, chart, options, theme=options.theme or "vars")
        case "text":
            from interlock.render.drawing import text_tree

            return text_tree(chart, active=options.active)
        case "dot":
            from interlock.render.diagram.dot import dot

            return dot(chart, active=options.active)
        case "plantuml":
            from interlock.render.diagram.plantuml import plantuml

            return plantuml(chart, active=options.active)
        case "smcat":
            if options.active:
                hint = "use svg, mermaid or dot"
                raise UsageError("smcat cannot highlight states", code="draw.active", hint=hint)
            return format_writer("smcat")(document).text
        case _:
            from interlock.render.diagram.mermaid import mermaid

            return mermaid(chart, active=options.active)


def _picture(terminal: Terminal, chart: Chart, options: DrawOptions, *, theme: str) -> str:
    """The chart as SVG, with a message if only an outline could be drawn."""
    from interlock.render.drawing import Options, draw_svg
    from interlock.render.svg.theme import theme_named

    drawing = draw_svg(chart, Options(active=options.active, collapse=options.collapse, theme=theme_named(theme)))
    if drawing.fallback_reason:
        terminal.message((f"drawn as an outline: {drawing.fallback_reason}", "yellow"))
    return drawing.svg


def _changes(path: Path) -> Iterator[None]:
    """Yield immediately, and then whenever the file changes. Ends only by an interrupt."""
    last: object = None
    while True:
        try:
            found = path.stat()
            current: object = (found.st_mtime_ns, found.st_size, found.st_ino)
        except FileNotFoundError:
            # Some editors remove a file for a moment while they write it.
            current = last
        if current != last or current is None:
            last = current
            yield
        time.sleep(_WATCH_SECONDS)
