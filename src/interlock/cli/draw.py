"""`interlock draw`: a chart as diagram text."""

from __future__ import annotations

from pathlib import PurePath

import click
import msgspec

from interlock.assemble import format_named
from interlock.cli import exits
from interlock.cli.check import sound
from interlock.cli.convert import put
from interlock.cli.files import read_source
from interlock.cli.options import common, format_option, json_option, output_option, pass_terminal
from interlock.cli.terminal import Terminal
from interlock.errors import UsageError
from interlock.model.chart import Chart
from interlock.model.document import Document

FORMATS = ("mermaid", "dot", "smcat", "plantuml")
_SUFFIXES = {
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".dot": "dot",
    ".gv": "dot",
    ".smcat": "smcat",
    ".puml": "plantuml",
    ".plantuml": "plantuml",
}

_PICTURES = frozenset({".svg", ".png", ".pdf", ".jpg", ".jpeg", ".gif"})
"""Suffixes under which nobody expects the text of a diagram."""


@click.command(short_help="Draw a chart as diagram text.")
@click.argument("file", metavar="FILE")
@click.option(
    "--format",
    "drawn_format",
    type=click.Choice(FORMATS),
    help="Of the drawing; by default the suffix of -o tells, else mermaid.",
)
@click.option("--active", multiple=True, metavar="STATE", help="Light this state; may be given several times.")
@output_option
@json_option
@format_option
@common
@pass_terminal
def draw(
    terminal: Terminal,
    file: str,
    *,
    drawn_format: str | None,
    active: tuple[str, ...],
    output: str | None,
    as_json: bool,
    source_format: str | None,
) -> int:
    """Draw a chart as diagram text, for Mermaid, Graphviz, state-machine-cat or PlantUML."""
    suffix = PurePath(output or "").suffix
    if drawn_format is None and suffix in _PICTURES:
        message = f'draw writes diagram text, and "{output}" is named like a picture'
        hint = f"write a .dot file, and let `dot -T{suffix[1:]}` draw it"
        raise UsageError(message, code="format.picture", hint=hint)
    name = drawn_format or _SUFFIXES.get(suffix, "mermaid")
    document, chart = sound(read_source(file, source_format), terminal)
    text = _drawn(name, document, chart, active=frozenset(active))
    if as_json:
        said = {"format": name, "kind": chart.kind, "revision": chart.revision, "text": text}
        text = msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"
    put(terminal, text, output)
    return exits.OK


def _drawn(name: str, document: Document, chart: Chart, *, active: frozenset[str]) -> str:
    """The drawing in one format, imported now; smcat is a format of definitions too, and its writer draws."""
    match name:
        case "dot":
            from interlock.render.dot import dot

            return dot(chart, active=active)
        case "plantuml":
            from interlock.render.plantuml import plantuml

            return plantuml(chart, active=active)
        case "smcat":
            if active:
                raise UsageError("smcat text cannot light states; draw as mermaid, dot or plantuml", code="draw.active")
            return format_named("smcat").write(document).text
        case _:
            from interlock.render.mermaid import mermaid

            return mermaid(chart, active=active)
