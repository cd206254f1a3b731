"""The command `interlock`: its commands by name, and how every one of them ends.

Rule 1: a command's module is imported when the command is called, so `--help` and `--version` are quick.
Rule 2: an error ends in one line on stderr and a code of `exits`; a traceback is shown for a bug of ours, with -v only.
Rule 3: a reader that closes the pipe has what it wanted: that is a quiet end, not an error.
"""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from interlock.cli import exit_codes
from interlock.cli.options import common
from interlock.cli.output.diagnostics import finding_lines
from interlock.cli.output.terminal import Terminal
from interlock.errors import DefinitionError, InterlockError, InternalError
from interlock.model.diagnostics import suggestion

_COMMANDS = {
    "archive": ("interlock.cli.commands.maintenance:archive", "Move the journals of ended entities to an archive."),
    "can": ("interlock.cli.commands.entity:can", "Say which events an entity accepts now, and why not the others."),
    "check": ("interlock.cli.commands.check:check", "Find errors and likely mistakes in definitions."),
    "completion": ("interlock.cli.commands.completion:completion", "Print the completion script of a shell."),
    "convert": ("interlock.cli.commands.convert:convert", "Write a definition in another format."),
    "create": ("interlock.cli.commands.entity:create", "Begin an entity on a store."),
    "db": ("interlock.cli.commands.maintenance:db", "Tell the schema of a store or upgrade it; list its tenants."),
    "demo": ("interlock.cli.commands.demo:demo", "Run a small world with failing services, to look at."),
    "doctor": ("interlock.cli.commands.doctor:doctor", "Check this machine and a store, and tell what to fix."),
    "draw": ("interlock.cli.commands.draw:draw", "Draw a chart as a picture or as diagram text."),
    "effects": ("interlock.cli.commands.effects:effects", "List, retry or drop what entities left to do."),
    "fmt": ("interlock.cli.commands.convert:fmt", "Put YAML definitions into their canonical form."),
    "journal": ("interlock.cli.commands.history:journal", "Print the journal of an entity."),
    "ls": ("interlock.cli.commands.history:ls", "List entities by kind, state, age and tag."),
    "new": ("interlock.cli.commands.new:new", "Make a project: a chart, its handlers and a test."),
    "replay": ("interlock.cli.commands.history:replay", "Do the steps of a journal again, and compare."),
    "run": ("interlock.cli.commands.run:run_command", "Perform the work of a store until told to stop."),
    "schema": ("interlock.cli.commands.convert:schema", "Print the JSON Schema of a definition, for editors."),
    "send": ("interlock.cli.commands.entity:send", "Give an event to an entity."),
    "serve": ("interlock.cli.commands.serve:serve", "Show the entities of a store in a browser."),
    "show": ("interlock.cli.commands.entity:show", "Show an entity: its states, context and timers, now or then."),
    "simulate": ("interlock.cli.commands.simulate:simulate", "Play a chart: send events, advance time, go back."),
    "stuck": ("interlock.cli.commands.stuck:stuck", "Show what rests longer than it should, worst first."),
    "tail": ("interlock.cli.commands.tail:tail", "Show what happens on a store, as it happens."),
    "top": ("interlock.cli.commands.top:top", "Show how many entities are where, live."),
    "verify": ("interlock.cli.commands.maintenance:verify", "Check the chains of journals, and replay every entity."),
}
_SECTIONS = {
    "Begin": ("new", "demo", "completion"),
    "Charts": ("check", "simulate", "draw", "convert", "fmt", "schema"),
    "Entities": ("create", "send", "show", "can", "ls", "journal", "tail", "replay"),
    "Running and looking after": ("run", "serve", "top", "stuck", "effects", "doctor", "verify", "archive", "db"),
}
"""How `--help` lists the commands: in the order in which one meets them."""
_COMPLETION = "_INTERLOCK_COMPLETE"
_NO_NUMBER = re.compile(r"is not a valid (?:float|integer)(?: range)?$")
"""What click says of `--rate fast`: nobody asked for a range."""
_REPORT = "this is a bug of Interlock; please report it with the command and the output of -v added to it"


class LazyGroup(click.Group):
    """A group that knows its commands by name and one line, and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        """The names of all commands, sorted."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the signature is click's
        """The command of this name, imported now."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments begin with; for an unknown one the nearest name is told."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            near = suggestion(args[0], _COMMANDS)
            ctx.fail(f'no command "{args[0]}"' + (f", {near}" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the signature is click's
        """List the commands from the table, without importing any of them."""
        width = max(map(len, _COMMANDS))
        for title, names in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", _COMMANDS[name][1]) for name in names])


def _version(context: click.Context, parameter: click.Parameter, value: object) -> None:  # noqa: ARG001 - the signature is click's
    if not value or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("interlock")
    except PackageNotFoundError:
        found = "unknown (not installed)"
    click.echo(f"interlock {found}")
    context.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
@common
@click.pass_context
def commands(context: click.Context) -> None:
    """Durable statecharts: check, convert, draw and play charts; send to, look at and look after entities on stores.

    Begin with `interlock new shop`, or look at `interlock demo`. Every command says more, with examples:
    `interlock send --help`. FILE may be - for stdin (with --from FORMAT). Data goes to stdout, messages to stderr.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(exit_codes.USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code; nothing is raised."""
    terminal = Terminal()
    _speak_utf8()
    code = _ended(terminal, sys.argv[1:] if arguments is None else list(arguments))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
    except OSError as error:
        _forget_stdout()
        return _failed(OSError(error.errno, error.strerror, "stdout"), terminal)
    return code


def _ended(terminal: Terminal, arguments: list[str]) -> int:
    """Run one command line and give its code. Not by click's own `main`, which ends a closed pipe with an error."""
    try:
        if _COMPLETION in os.environ:
            commands.main(arguments, "interlock", _COMPLETION)  # a shell asks; click answers and exits
        with commands.make_context("interlock", arguments, obj=terminal) as context:
            result = commands.invoke(context)
    except BrokenPipeError:
        return exit_codes.OK
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        terminal.message("interrupted")
        return exit_codes.INTERRUPTED
    except click.ClickException as error:
        terminal.failure(_usage(error, arguments))
        return exit_codes.USAGE
    except Exception as error:  # noqa: BLE001 - the top: every error becomes a line and a code
        return _failed(error, terminal)
    assert isinstance(result, int)
    return result


def _failed(error: Exception, terminal: Terminal) -> int:
    """Say in one line why a command failed, and give its code."""
    code = exit_codes.exit_code(error)
    if code == exit_codes.INTERNAL:
        if terminal.verbose:
            for line in "".join(traceback.format_exception(error)).splitlines():
                terminal.note((f"  {line}", "dim"))
        text = str(error) if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
        terminal.failure(f"{text} ({_REPORT})")
    elif isinstance(error, DefinitionError):
        for finding in error.diagnostics:
            for parts in finding_lines(finding, None):
                terminal.note(*parts)
        terminal.failure(error.message.splitlines()[0])
    elif isinstance(error, InterlockError):
        hint = error.hint or (exit_codes.DAMAGED_HINT if code == exit_codes.CORRUPTION else None)
        terminal.failure(f"{error.message}; {hint}" if hint else error.message)
    else:
        assert isinstance(error, OSError)
        what = error.strerror or type(error).__name__
        terminal.failure(f"{error.filename}: {what}" if error.filename else what)
    return code


def _usage(error: click.ClickException, arguments: list[str]) -> str:
    """A wrong command line in one line, with where to read on."""
    text = " ".join(error.format_message().split()).removesuffix(".")
    text = _NO_NUMBER.sub("is no number", text)
    context = error.ctx if isinstance(error, click.UsageError) else None
    named = next((each for each in arguments if each in _COMMANDS), None)  # what the parser refuses has no context yet
    path = context.command_path if context is not None else f"interlock {named}" if named else "interlock"
    return f"{text[:1].lower()}{text[1:]} (see {path} --help)"


def _speak_utf8() -> None:
    """Write UTF-8, as definitions are; a terminal that cannot show a character gets a mark instead."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in {"utf-8", "utf8"}:
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8")


def _forget_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's own flush at exit does not fail once more."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    except (OSError, ValueError):
        return
