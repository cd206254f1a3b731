"""`interlock convert`, `fmt` and `schema`: definitions in other formats."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from interlock.assemble.charts import FORMATS, format_for_suffix, format_writer, get_format, read_text
from interlock.cli import exit_codes
from interlock.cli.commands.charts.check import exit_with_findings, require_sound
from interlock.cli.input import STDIN, Source, read_source, write_text
from interlock.cli.options import common, example, format_option, json_option, output_option, pass_terminal, src_option
from interlock.cli.output.diagnostics import finding_json, finding_lines
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import json_text
from interlock.errors import InternalError, UsageError


@example(
    "interlock convert light.json --from xstate --to yaml", "interlock convert order.interlock.yaml -o order.scxml"
)
@click.command
@click.argument("file", metavar="FILE")
@click.option(
    "--to", "target", metavar="FORMAT", help="yaml, json, scxml, xstate or smcat (default: by the suffix of -o)."
)
@click.option("--strict", is_flag=True, help="Fail and write nothing if the format would lose something.")
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
    """Prints a warning on stderr for everything that the target format cannot express."""
    name = _target_format(target, output)
    write = format_writer(name)
    document, _ = require_sound(read_source(file, source_format, allow_src=allow_src), terminal)
    writing = write(document)
    for finding in writing.diagnostics:
        if strict or finding.severity != "info" or terminal.verbose:
            for parts in finding_lines(finding, None):
                terminal.message(*parts)
    if strict and writing.diagnostics:
        terminal.failure(f"{file} cannot be converted to {name} without loss", "omit --strict to accept that")
        return exit_codes.FINDINGS
    text = writing.text
    if as_json:
        losses = [finding_json(each) for each in writing.diagnostics]
        text = json_text({"format": name, "text": text, "losses": losses})
    write_output(terminal, text, output)
    return exit_codes.OK


def _target_format(target: str | None, output: str | None) -> str:
    found = target or (format_for_suffix(output) if output else None)
    if found is None:
        written = "|".join(each for each in FORMATS if not get_format(each).is_read_only)
        raise click.UsageError(f"missing format: --to {written}")
    return found


def write_output(terminal: Terminal, text: str, output: str | None) -> None:
    """Write the result of a command to a file, or to stdout."""
    if output is None or output == STDIN:
        terminal.data(text)
        return
    write_text(Path(output), text)
    terminal.message(f"wrote {output}")


def check_output(terminal: Terminal, data: bytes, output: str, command: Sequence[str]) -> int:
    """Compare a file with what the command would write now. Returns 1 if it differs, after naming the command."""
    path = Path(output)
    if path.is_file() and path.read_bytes() == data:
        terminal.message(f"{output} is up to date")
        return exit_codes.OK
    state = "is out of date" if path.exists() else "does not exist"
    terminal.failure(f"{output} {state}", f"run: {shlex.join(command)}")
    return exit_codes.FINDINGS


def input_arguments(source_format: str | None, *, allow_src: bool) -> list[str]:
    """The options with which a definition was read, as arguments."""
    return [*(["--from", source_format] if source_format else []), *(["--allow-src"] if allow_src else [])]


@example("interlock fmt order.interlock.yaml", "interlock fmt --check charts/*.yaml")
@click.command
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit code 1 if a file would change.")
@click.option("--drop-comments", is_flag=True, help="Write no comments.")
@json_option
@common
@pass_terminal
def fmt(terminal: Terminal, files: tuple[str, ...], *, only_check: bool, drop_comments: bool, as_json: bool) -> int:
    """Rewrites the files in canonical form. With -, it reads stdin and writes stdout.

    Each comment stays with its key or item.
    """
    sources = [read_source(name, "yaml" if name == STDIN else None) for name in files]
    texts = [_format(terminal, source, drop_comments=drop_comments) for source in sources]
    changed = [text.encode() != source.data for source, text in zip(sources, texts, strict=True)]
    if not only_check:
        _write_format(terminal, sources, texts, as_json=as_json)
    if as_json:
        results = [{"file": each.name, "changed": differs} for each, differs in zip(sources, changed, strict=True)]
        terminal.data(json_text({"files": results}))
    for source, differs in zip(sources, changed, strict=True):
        if differs and (only_check or source.path is not None):
            terminal.message(f"{'would format' if only_check else 'formatted'} {source.name}")
    if not any(changed):
        terminal.message("nothing to change")
    return exit_codes.FINDINGS if only_check and any(changed) else exit_codes.OK


def _write_format(terminal: Terminal, sources: list[Source], texts: list[str], *, as_json: bool) -> None:
    """Write each text to the file of its source."""
    for source, text in zip(sources, texts, strict=True):
        if source.path is None:
            if not as_json:
                terminal.data(text)
        elif text.encode() != source.data:
            write_text(source.path, text)


def _format(terminal: Terminal, source: Source, *, drop_comments: bool) -> str:
    """The canonical text of a YAML definition, with its comments."""
    from interlock.definition.yaml.comments import carry_comments, find_comments

    if source.format != "yaml":
        hint = f"interlock convert {source.name} --to yaml"
        raise UsageError(f"fmt needs YAML, and {source.name} is {source.format}", code="format.not_yaml", hint=hint)
    reading = source.reading()
    if reading.document is None or any(each.severity == "error" for each in reading.diagnostics):
        exit_with_findings(terminal, source, reading.diagnostics)
    text = format_writer("yaml")(reading.document).text
    written = source.data.decode()
    if not drop_comments and find_comments(written):
        text = carry_comments(written, text)
    if read_text(text, format="yaml", source=source.name).document != reading.document:
        raise InternalError(f"formatting would change the meaning of {source.name}; nothing was written")
    return text


@example("interlock schema -o interlock.schema.json")
@click.command
@output_option
@common
@pass_terminal
def schema(terminal: Terminal, output: str | None) -> int:
    """Editors use it to complete and check YAML definitions."""
    from interlock.definition.schema import json_schema

    write_output(terminal, json_text(json_schema()), output)
    return exit_codes.OK
