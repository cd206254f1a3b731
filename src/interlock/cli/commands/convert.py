"""`interlock convert`, `fmt` and `schema`: definitions in and out of their formats."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from interlock.assemble.charts import FORMATS, format_for_suffix, format_writer, get_format, read_text
from interlock.cli import exit_codes
from interlock.cli.commands.check import refuse, sound
from interlock.cli.input import STDIN, Source, read_source, write_text
from interlock.cli.options import common, example, format_option, json_option, output_option, pass_terminal, src_option
from interlock.cli.output.diagnostics import as_json as finding_as_json
from interlock.cli.output.diagnostics import finding_lines
from interlock.cli.output.terminal import Terminal
from interlock.errors import InternalError, UsageError


@example(
    "interlock convert light.json --from xstate --to yaml", "interlock convert order.interlock.yaml -o order.scxml"
)
@click.command(short_help="Write a definition in another format.")
@click.argument("file", metavar="FILE")
@click.option(
    "--to", "target", metavar="FORMAT", help="yaml, scxml, xstate or smcat; by default the suffix of -o tells."
)
@click.option("--strict", is_flag=True, help="Fail, and write nothing, when the format cannot carry everything.")
@output_option
@json_option
@format_option
@src_option
@common
@pass_terminal
def convert(
    terminal: Terminal,
    file: str,
    *,
    target: str | None,
    strict: bool,
    output: str | None,
    as_json: bool,
    source_format: str | None,
    allow_src: bool,
) -> int:
    """Write a definition in another format.

    What the format cannot carry is told on stderr, one line for each loss.
    """
    name = _target_format(target, output)
    write = format_writer(name)
    document, _ = sound(read_source(file, source_format, allow_src=allow_src), terminal)
    writing = write(document)
    for finding in writing.diagnostics:
        if strict or finding.severity != "info" or terminal.verbose:
            for parts in finding_lines(finding, None):
                terminal.message(*parts)
    if strict and writing.diagnostics:
        terminal.failure(f"{file} cannot be written as {name} without loss; leave --strict out to accept that")
        return exit_codes.FINDINGS
    text = writing.text
    if as_json:
        said = {"format": name, "text": text, "losses": [finding_as_json(each) for each in writing.diagnostics]}
        text = msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"
    put(terminal, text, output)
    return exit_codes.OK


def _target_format(target: str | None, output: str | None) -> str:
    found = target or (format_for_suffix(output) if output else None)
    if found is None:
        written = "|".join(each for each in FORMATS if not get_format(each).is_read_only)
        raise click.UsageError(f"say which format to write: --to {written}")
    return found


def put(terminal: Terminal, text: str, output: str | None) -> None:
    """Write what a command made to its file, or to stdout."""
    if output is None or output == STDIN:
        terminal.data(text)
        return
    write_text(Path(output), text)
    terminal.message(f"wrote {output}")


@example("interlock fmt order.interlock.yaml", "interlock fmt --check charts/*.yaml")
@click.command(short_help="Put YAML definitions into their canonical form.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; end with 1 when a file would change.")
@click.option("--drop-comments", is_flag=True, help="Format files with comments too, and lose the comments.")
@json_option
@common
@pass_terminal
def fmt(terminal: Terminal, files: tuple[str, ...], *, only_check: bool, drop_comments: bool, as_json: bool) -> int:
    """Put YAML definitions into their canonical form, in place; - reads stdin and writes stdout.

    A file with comments is refused unless --drop-comments is given, because formatting would lose them.
    """
    sources = [read_source(name, "yaml" if name == STDIN else None) for name in files]
    texts = [_formatted(terminal, source, drop_comments=drop_comments) for source in sources]
    changed = [text.encode() != source.data for source, text in zip(sources, texts, strict=True)]
    if not only_check:
        _write_formatted(terminal, sources, texts, as_json=as_json)
    if as_json:
        files_said = [{"file": each.name, "changed": differs} for each, differs in zip(sources, changed, strict=True)]
        terminal.data(msgspec.json.format(msgspec.json.encode({"files": files_said}), indent=2).decode() + "\n")
    for source, differs in zip(sources, changed, strict=True):
        if differs and (only_check or source.path is not None):
            terminal.message(f"{'would format' if only_check else 'formatted'} {source.name}")
    if not any(changed):
        terminal.message("nothing to change")
    return exit_codes.FINDINGS if only_check and any(changed) else exit_codes.OK


def _write_formatted(terminal: Terminal, sources: list[Source], texts: list[str], *, as_json: bool) -> None:
    """Write every text to where its source came from; only after all of them could be made."""
    for source, text in zip(sources, texts, strict=True):
        if source.path is None:
            if not as_json:
                terminal.data(text)
        elif text.encode() != source.data:
            write_text(source.path, text)


def _formatted(terminal: Terminal, source: Source, *, drop_comments: bool) -> str:
    """The canonical text of a YAML definition. Raises when it cannot be read or would lose comments."""
    from interlock.definition.yaml.comments import find_comments

    if source.format != "yaml":
        hint = f"interlock convert {source.name} --to yaml makes one"
        raise UsageError(f"fmt is for YAML, and {source.name} is {source.format}", code="format.not_yaml", hint=hint)
    reading = source.reading()
    if reading.document is None or any(each.severity == "error" for each in reading.diagnostics):
        refuse(terminal, source, reading.diagnostics)
    places = find_comments(source.data.decode(), source=source.name)
    if places and not drop_comments:
        count = f"{len(places)} comment{'s' if len(places) != 1 else ''}"
        message = f"{source.name} has {count} that would be lost, the first in line {places[0].line}"
        raise UsageError(message, code="fmt.comments", hint="--drop-comments formats it all the same")
    text = format_writer("yaml")(reading.document).text
    if read_text(text, format="yaml", source=source.name).document != reading.document:
        raise InternalError(f"the canonical text of {source.name} does not mean the same; nothing was written")
    return text


@example("interlock schema -o interlock.schema.json")
@click.command(short_help="Print the JSON Schema of a definition, for editors.")
@output_option
@common
@pass_terminal
def schema(terminal: Terminal, output: str | None) -> int:
    """Print the JSON Schema of a YAML definition, for editors and other programs."""
    from interlock.definition.schema import json_schema

    put(terminal, msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode() + "\n", output)
    return exit_codes.OK
