"""Options that every command takes, before or after its name, and what a command is given to work with.

The terminal travels as click's context object; an option that is set changes it, so the later one wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from interlock.cli.output.terminal import Terminal

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=click.Command)

pass_terminal = click.make_pass_decorator(Terminal, ensure=True)


def _set(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Note an option in the terminal, but only when it was given: its default must not undo an earlier one."""
    terminal = context.ensure_object(Terminal)
    if value and parameter.name is not None:
        setattr(terminal, parameter.name, value)


_COLOR = click.option(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    expose_value=False,
    callback=_set,
    help="Colour: auto looks at the terminal, NO_COLOR and FORCE_COLOR.",
)
_VERBOSE = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, callback=_set, help="Say more; show tracebacks of our bugs."
)
_QUIET = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_set, help="Only data and errors, no messages."
)


_ADDRESS = (
    "URL is the address of a store, such as sqlite:///orders.db. Left out, it is that of INTERLOCK_STORE, else of "
    "interlock.toml."
)


def example(*lines: str) -> Callable[[C], C]:
    """Let a command's help end with examples, and with what URL means where it takes one."""

    def shown(command: C) -> C:
        paragraphs = [_ADDRESS] if any(each.name == "words" for each in command.params) else []
        # The character \\b keeps click from joining the lines that follow it.
        paragraphs.append(
            "\n".join(["\b", "Examples:" if len(lines) > 1 else "Example:", *(f"  {each}" for each in lines)])
        )
        command.epilog = "\n\n".join(paragraphs)
        return command

    return shown


def common(command: F) -> F:
    """Give a command the options that all of them have."""
    return _COLOR(_VERBOSE(_QUIET(command)))


def format_option(command: F) -> F:
    """Give a command `--from`, the format of its input."""
    option = click.option(
        "--from",
        "source_format",
        metavar="FORMAT",
        help="Format of the input, where its name does not tell: yaml, scxml, xstate, xstate4 or smcat.",
    )
    return option(command)


def src_option(command: F) -> F:
    """Give a command `--allow-src`."""
    text = "Let an SCXML file include files of its own folder by src. Only for a definition that you trust."
    return click.option("--allow-src", is_flag=True, help=text)(command)


def json_option(command: F) -> F:
    """Give a command `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def output_option(command: F) -> F:
    """Give a command `-o`."""
    return click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of stdout.")(command)
