"""Options that commands share, and the parsing of their values: principals, durations, store URLs, pages.

The terminal is click's context object. An option changes it only if it is given, so `-q` works before and after the
name of the command.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from interlock.cli.output.terminal import Terminal
from interlock.errors import UsageError
from interlock.model.duration import parse_duration, require_duration

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=click.Command)

PAGE_ROWS_MAX = 1_000
"""Rows of one page; the same as `ports.store.PAGE_MAX`, which is not imported for `--help`."""

pass_terminal = click.make_pass_decorator(Terminal, ensure=True)


def _set(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Set an attribute of the terminal, if the option is given: its default must not undo an earlier one."""
    terminal = context.ensure_object(Terminal)
    if value and parameter.name is not None:
        setattr(terminal, parameter.name, value)


_COLOR = click.option(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    expose_value=False,
    callback=_set,
    help="Colour: auto follows the terminal, NO_COLOR and FORCE_COLOR.",
)
_VERBOSE = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_set,
    help="Print more details, and tracebacks of internal errors.",
)
_QUIET = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_set, help="Print only data and errors."
)

_URL_HELP = (
    "URL is a store URL, such as sqlite:///orders.db. The default is INTERLOCK_STORE, then `store` in interlock.toml."
)


def example(*lines: str) -> Callable[[C], C]:
    """Add examples to the help of a command, and the meaning of URL if the command takes one."""

    def add(command: C) -> C:
        paragraphs = [_URL_HELP] if any(each.name == "words" for each in command.params) else []
        # The character \\b keeps click from joining the lines that follow it.
        paragraphs.append(
            "\n".join(["\b", "Examples:" if len(lines) > 1 else "Example:", *(f"  {each}" for each in lines)])
        )
        command.epilog = "\n\n".join(paragraphs)
        return command

    return add


def common(command: F) -> F:
    """Add the options that all commands have."""
    return _COLOR(_VERBOSE(_QUIET(command)))


def words(text: str) -> Callable[[F], F]:
    """Add the arguments of a command: an optional store URL, then `text`."""
    return click.argument("words", nargs=-1, metavar=f"[URL] {text}".strip())


def chart_option(command: F) -> F:
    """Add `--chart`."""
    text = "A chart of the entities: a definition, or module:name for charts with code. May be repeated."
    return click.option("--chart", "charts", multiple=True, metavar="FILE", help=text)(command)


def key_prefix_option(command: F) -> F:
    """Add `--key-prefix`."""
    text = "Prefix of the keys that handlers get; never change it."
    return click.option("--key-prefix", metavar="TEXT", help=text)(command)


def log_option(command: F) -> F:
    """Add `--log`."""
    text = "Log every transition too, as lines for people or as JSON, to stderr. With -q nothing else is written there."
    return click.option("--log", type=click.Choice(["console", "json"]), help=text)(command)


def format_option(command: F) -> F:
    """Add `--from`, the format of the input."""
    text = "Format of the input, if its name does not show it: yaml, json, scxml, xstate, xstate4 or smcat."
    return click.option("--from", "source_format", metavar="FORMAT", help=text)(command)


def src_option(command: F) -> F:
    """Add `--allow-src`."""
    text = "Let an SCXML file include other files of its folder by src. Only for definitions that you trust."
    return click.option("--allow-src", is_flag=True, help=text)(command)


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def output_option(command: F) -> F:
    """Add `-o`."""
    return click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of stdout.")(command)


def principal_option(command: F) -> F:
    """Add `--principal`, with roles."""
    text = "The sender: an id, and its roles after a colon."
    return click.option("--principal", metavar="ID[:ROLE,...]", help=text)(command)


def reader_option(command: F) -> F:
    """Add `--principal` for a reader."""
    text = "Read as this principal, by the chart's `read`: an id, and its roles after a colon (default: the operator)."
    return click.option("--principal", metavar="ID[:ROLE,...]", help=text)(command)


def page_options(command: F) -> F:
    """Add `--limit` and `--after`, which read a list page by page."""
    limit = click.option(
        "--limit",
        type=click.IntRange(1, PAGE_ROWS_MAX),
        default=50,
        metavar="N",
        help="Maximum rows (default 50).",
    )
    after = click.option("--after", metavar="CURSOR", help="Continue after this cursor.")
    return limit(after(command))


# Values


def parse_principal(text: str | None) -> dict[str, Any] | None:
    """Return the principal of `ID[:ROLE,...]`; None for None. Raises UsageError if the id is empty."""
    if text is None:
        return None
    name, colon, roles = text.partition(":")
    if not name:
        hint = "write --principal ada:support"
        raise UsageError("--principal has no id", code="principal.malformed", hint=hint)
    return {"id": name, "roles": [each for each in roles.split(",") if each]} if colon else {"id": name}


def duration_ms(text: str, option: str) -> int:
    """Return a duration in milliseconds. Raises UsageError if it is invalid."""
    return require_duration(text, what=option, code="duration.malformed")


def since_time_ms(text: str, *, now_ms: int) -> int:
    """Return the time of `--since`: an age, a calendar time, `start` or `now`. Raises UsageError for anything else."""
    from interlock.runtime.history.replay import time_ms  # not imported for `--help`

    if text in ("start", "now"):
        return 0 if text == "start" else now_ms
    age_ms = parse_duration(text)
    if age_ms is not None:
        return max(0, now_ms - age_ms)
    try:
        return time_ms(text)
    except UsageError as error:
        hint = "write 10m, 2h, 2026-11-15T12:00Z, start or now"
        raise UsageError(f"--since: invalid time `{text}`", code="time.malformed", hint=hint) from error


def user_name() -> str:
    """Return the name of the user of this process; `uid N` for a user without a name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def version_text() -> str:
    """Return the version of the package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("interlock")
    except PackageNotFoundError:
        return "unknown (not installed)"
