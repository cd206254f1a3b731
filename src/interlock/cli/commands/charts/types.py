"""`interlock types`: Python types of a chart, for type checkers and editors."""

from __future__ import annotations

import click

from interlock.cli import exit_codes
from interlock.cli.commands.charts.check import require_sound
from interlock.cli.commands.charts.convert import check_output, input_arguments, write_output
from interlock.cli.input import STDIN, read_source
from interlock.cli.options import common, example, format_option, output_option, pass_terminal, src_option
from interlock.cli.output.terminal import Terminal
from interlock.errors import UsageError


@example(
    "interlock types order.interlock.yaml -o order_types.py",
    "interlock types order.interlock.yaml -o order_types.py --check",
)
@click.command
@click.argument("file", metavar="FILE")
@click.option(
    "--check", "only_check", is_flag=True, help="Write nothing; exit code 1 if the file of -o is out of date."
)
@output_option
@format_option
@src_option
@common
@pass_terminal
def types(
    terminal: Terminal,
    file: str,
    *,
    only_check: bool,
    output: str | None,
    source_format: str | None,
    allow_src: bool,
) -> int:
    """The module has the names of events and states, types of the context, payloads and inputs, and a typed runtime."""
    from interlock.render.python_types import python_types

    if only_check and output in (None, STDIN):
        hint = "interlock types FILE -o FILE --check"
        raise UsageError("--check needs the file to compare", code="check.output", hint=hint)
    _, chart = require_sound(read_source(file, source_format, allow_src=allow_src), terminal)
    text = python_types(chart)
    if only_check:
        assert output is not None
        arguments = input_arguments(source_format, allow_src=allow_src)
        return check_output(terminal, text.encode(), output, ["interlock", "types", file, "-o", output, *arguments])
    write_output(terminal, text, output)
    return exit_codes.OK
