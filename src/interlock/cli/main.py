"""The command `interlock`: its table of commands, and how errors become a line and an exit code.

Rule 1: the module of a command is imported when the command is called, so `--help` and `--version` are quick.
Rule 2: an error ends in a line on stderr and a code of `exit_codes`. The traceback of an internal error appears with -v
only; that of the user's own code always, since it is the user who has to read it.
Rule 3: a reader that closes the pipe has all it wanted: the command ends without an error.
"""

from __future__ import annotations

import inspect
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from interlock.cli import exit_codes
from interlock.cli.options import common, version_text
from interlock.cli.output.diagnostics import finding_lines
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.tracebacks import user_traceback
from interlock.errors import DefinitionError, InterlockError, InternalError
from interlock.model.diagnostics import suggestion

COMMANDS = {
    "archive": (
        "interlock.cli.commands.operation.maintenance:archive",
        "Move journals of ended entities to an archive",
    ),
    "audit": ("interlock.cli.commands.trust.audit:audit", "Export and verify the audit; write signed checkpoints"),
    "bundle": (
        "interlock.cli.commands.entities.bundle:bundle",
        "Copy one entity with its journal to a file, or back",
    ),
    "can": ("interlock.cli.commands.entities.entity:can", "List accepted events, and why others are not"),
    "check": ("interlock.cli.commands.charts.check:check", "Check definitions for errors and likely mistakes"),
    "compact": ("interlock.cli.commands.trust.retention:compact", "Remove old entries of living entities"),
    "completion": ("interlock.cli.commands.operation.completion:completion", "Print a shell completion script"),
    "convert": ("interlock.cli.commands.charts.convert:convert", "Convert a definition to another format"),
    "create": ("interlock.cli.commands.entities.entity:create", "Create an entity"),
    "db": ("interlock.cli.commands.operation.maintenance:db", "Show or upgrade the schema; list tenants"),
    "demo": (
        "interlock.cli.commands.operation.demo:demo",
        "Run a demo: orders and virtual machines with failing services",
    ),
    "diff": ("interlock.cli.commands.charts.diff:diff", "Compare two definitions and classify each change"),
    "doctor": ("interlock.cli.commands.operation.doctor:doctor", "Diagnose this machine and a store"),
    "draw": ("interlock.cli.commands.charts.draw:draw", "Draw a chart as a picture or as diagram text"),
    "effects": ("interlock.cli.commands.entities.effects:effects", "List, retry or drop effects, timers and messages"),
    "erase": ("interlock.cli.commands.trust.erase:erase", "Erase the personal data of an entity"),
    "export": ("interlock.cli.commands.charts.export:export", "Write alert rules or a dashboard from charts"),
    "fmt": ("interlock.cli.commands.charts.convert:fmt", "Format YAML definitions"),
    "hold": ("interlock.cli.commands.operation.hold:hold", "Stop an entity, or all entities of a kind"),
    "holds": ("interlock.cli.commands.operation.hold:holds", "List what is held, by whom and why"),
    "journal": ("interlock.cli.commands.entities.history:journal", "Print the journal of an entity"),
    "keys": ("interlock.cli.commands.trust.keys:keys", "Create, list, rotate and revoke API keys"),
    "keyring": ("interlock.cli.commands.trust.keyring:keyring", "Create and rotate the keys of personal data"),
    "ls": ("interlock.cli.commands.entities.history:ls", "List entities by kind, state, age and tag"),
    "new": ("interlock.cli.commands.charts.new:new", "Create a project with a chart, handlers and a test"),
    "prune": ("interlock.cli.commands.trust.retention:prune", "Remove entities that ended long ago"),
    "refold": (
        "interlock.cli.commands.changes.refold:refold",
        "Recompute entities from their journals with a corrected chart",
    ),
    "replay": ("interlock.cli.commands.entities.history:replay", "Replay a journal and compare each step"),
    "run": ("interlock.cli.commands.operation.run:run_command", "Run a worker: handlers, timers, messages"),
    "schema": ("interlock.cli.commands.charts.convert:schema", "Print the JSON Schema for editors"),
    "send": ("interlock.cli.commands.entities.entity:send", "Send an event to an entity"),
    "serve": ("interlock.cli.commands.operation.serve:serve", "Start the web console and HTTP API"),
    "lifecycle": ("interlock.cli.commands.operation.lifecycle:lifecycle", "Show or drain processes that stop together"),
    "migrate": ("interlock.cli.commands.changes.migrate:migrate", "Move entities to a newer chart"),
    "resume": ("interlock.cli.commands.operation.hold:resume", "End a hold"),
    "rollout": ("interlock.cli.commands.changes.rollout:rollout", "Start a share of the new entities on a new chart"),
    "shadow": ("interlock.cli.commands.changes.shadow:shadow", "Compare recorded steps with those of a new chart"),
    "show": ("interlock.cli.commands.entities.entity:show", "Show an entity now or at an earlier version"),
    "simulate": (
        "interlock.cli.commands.charts.simulate:simulate",
        "Simulate a chart: send events, advance the clock, undo",
    ),
    "stuck": ("interlock.cli.commands.entities.stuck:stuck", "List stuck entities, overdue work and dead letters"),
    "tail": ("interlock.cli.commands.entities.history:tail", "Print new entries of all entities; -f follows"),
    "top": ("interlock.cli.commands.entities.top:top", "Show entities per state, live"),
    "types": ("interlock.cli.commands.charts.types:types", "Write Python types of a chart"),
    "verify": ("interlock.cli.commands.operation.maintenance:verify", "Verify hash chains and replay every entity"),
}
"""Every command: its module and function, and its help line."""

SUBCOMMANDS = {
    "audit": {
        "export": "Print every attempt as JSON Lines or CSV",
        "verify": "Verify the audit, the journals and the checkpoints",
        "checkpoint": "Write signed checkpoints, once or at an interval",
        "key": "Create the key that signs checkpoints",
    },
    "bundle": {
        "export": "Write an entity, its children and their definitions to a file",
        "import": "Write the entities of a bundle to a store",
    },
    "db": {
        "status": "Show the schema version",
        "upgrade": "Upgrade the schema version",
        "grants": "Print the SQL for a role that cannot change the audit",
        "tenants": "List tenants",
        "restored": "Raise the restore epoch, after a restore from an older copy",
        "messages": "Show whether entries are published, or stop publishing",
        "definitions": "List, show or add definitions",
        "index": "Build, drop or show indexes on context fields",
    },
    "definitions": {
        "list": "List stored definitions",
        "show": "Print a stored definition",
        "add": "Save definitions",
    },
    "export": {
        "prometheus-rules": "Write alert rules for Prometheus",
        "grafana": "Write a dashboard for Grafana",
    },
    "index": {
        "build": "Add older entities to indexes",
        "drop": "Remove an index",
        "status": "Show indexes and their progress",
    },
    "keyring": {
        "init": "Create a keyring in a file",
        "rotate": "Start a new epoch, and destroy older master keys",
        "status": "Show the epochs, and how many data keys each encrypts",
    },
    "effects": {
        "ls": "List pending work",
        "retry": "Retry dead letters",
        "drop": "Discard dead letters",
    },
    "keys": {
        "create": "Create a key and print it",
        "list": "List keys, their users and their last use",
        "rotate": "Replace a key by a new one",
        "revoke": "Remove a key",
    },
    "lifecycle": {
        "show": "Show the phase, the processes and their permits",
        "drain": "Refuse new work everywhere, and wait until all have ended",
    },
    "migrate": {
        "plan": "Show which entities would move, and why others stay",
        "apply": "Move every entity that can be carried over",
        "status": "Count entities by revision, and list migrations",
        "pause": "Pause the newest migration of a kind",
        "resume": "Continue a paused migration",
        "undo": "Move entities of the newest migration back",
    },
    "rollout": {
        "set": "Start a share of the new entities on a revision",
        "advance": "Raise the share",
        "abort": "Start all new entities on the base",
        "status": "Show the share, and entities by revision",
    },
    "shadow": {
        "replay": "Compare the journals of a store with a new chart",
        "run": "Compare live writes to a store with a new chart",
    },
}
"""The help lines of the commands of a group."""

SECTIONS = {
    "Getting started": ("new", "demo", "completion"),
    "Charts": ("check", "simulate", "draw", "convert", "fmt", "schema", "types"),
    "Entities": ("create", "send", "show", "can", "ls", "journal", "tail", "replay"),
    "Operations": (
        *(
            "run",
            "serve",
            "lifecycle",
            "keys",
            "top",
            "stuck",
            "export",
            "effects",
            "hold",
            "resume",
            "holds",
            "doctor",
            "verify",
            "audit",
            "archive",
            "prune",
            "compact",
        ),
        *("bundle", "db"),
    ),
    "Personal data": ("erase", "keyring"),
    "Changes": ("diff", "shadow", "migrate", "rollout", "refold"),
}
"""The sections of `--help`, in the order in which a user needs the commands."""

_COMPLETION = "_INTERLOCK_COMPLETE"
_NOT_A_NUMBER = re.compile(r"is not a valid (?:float|integer)(?: range)?$")
"""What click says about `--rate fast`."""

_REPORT = "this is a bug in Interlock; please report it with the command and its output with -v"


class LazyGroup(click.Group):
    """A group with a table of commands; it imports only the command that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        """Return the names of all commands, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the signature is click's
        """Import a command and add its help line."""
        if cmd_name not in COMMANDS:
            return None
        place, line = COMMANDS[cmd_name]
        module, _, name = place.partition(":")
        command: click.Command = getattr(import_module(module), name)
        _add_help_line(command, line)
        if isinstance(command, click.Group):
            _add_help_lines(command, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the arguments; an unknown one fails with the most similar name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = suggestion(args[0], COMMANDS)
            ctx.fail(f'unknown command "{args[0]}"' + (f", {hint}" if hint else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the signature is click's
        """List the commands of the table, without importing them."""
        width = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", COMMANDS[name][1]) for name in names])


def _add_help_lines(group: click.Group, name: str) -> None:
    """Add the help lines of the commands of a group, and of groups in it."""
    for subcommand, line in SUBCOMMANDS[name].items():
        inner = group.commands[subcommand]
        _add_help_line(inner, line)
        if isinstance(inner, click.Group):
            _add_help_lines(inner, subcommand)


def _add_help_line(command: click.Command, line: str) -> None:
    """Put the help line before the docstring of the command. Commands are imported once, and called often in tests."""
    if command.short_help != line:
        command.help = f"{line}.\n\n{inspect.cleandoc(command.help)}" if command.help else f"{line}."
        command.short_help = line


def _print_version(context: click.Context, parameter: click.Parameter, value: object) -> None:  # noqa: ARG001 - the signature is click's
    if not value or context.resilient_parsing:
        return
    click.echo(f"interlock {version_text()}")
    context.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Show the version."
)
@common
@click.pass_context
def commands(context: click.Context) -> None:
    """Durable statecharts: check, convert, draw and simulate charts; create, inspect and operate entities in stores.

    Start with `interlock new shop`, or try `interlock demo`. The help of each command has examples: `interlock send
    --help`. FILE may be - for stdin (with --from FORMAT). Data goes to stdout, messages to stderr.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(exit_codes.USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; nothing is raised."""
    terminal = Terminal()
    _use_utf8()
    code = _run(terminal, sys.argv[1:] if arguments is None else list(arguments))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
    except OSError as error:
        _discard_stdout()
        return _report_error(OSError(error.errno, error.strerror, "stdout"), terminal)
    return code


def _run(terminal: Terminal, arguments: list[str]) -> int:
    """Run one command line. Click's own `main` is not used: it ends with an error when a pipe is closed."""
    try:
        if _COMPLETION in os.environ:
            commands.main(arguments, "interlock", _COMPLETION)  # completion of a shell: click answers and exits
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
        text, hint = _usage_text(error, arguments)
        terminal.failure(text, hint)
        return exit_codes.USAGE
    except Exception as error:  # noqa: BLE001 - the top: every error becomes a line and a code
        return _report_error(error, terminal)
    assert isinstance(result, int)
    return result


def _report_error(error: Exception, terminal: Terminal) -> int:
    """Print an error and return its exit code."""
    code = exit_codes.exit_code(error)
    if code == exit_codes.INTERNAL:
        if terminal.verbose:
            for line in "".join(traceback.format_exception(error)).splitlines():
                terminal.note((f"  {line}", "dim"))
        text = str(error) if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
        terminal.failure(text, _REPORT)
    elif isinstance(error, DefinitionError):
        for finding in error.diagnostics:
            for parts in finding_lines(finding, None):
                terminal.note(*parts)
        terminal.failure(error.message.splitlines()[0])
    elif isinstance(error, InterlockError):
        if error.code == "chart.module" and isinstance(cause := error.__cause__, Exception):
            for line in user_traceback(cause):
                terminal.note((f"  {line}", "dim"))
        hint = error.hint or (exit_codes.CORRUPTION_HINT if code == exit_codes.CORRUPTION else None)
        terminal.failure(error.message, hint)
    else:
        assert isinstance(error, OSError)
        what = error.strerror or type(error).__name__
        terminal.failure(f"{error.filename}: {what}" if error.filename else what)
    return code


def _usage_text(error: click.ClickException, arguments: list[str]) -> tuple[str, str]:
    """The text and the hint for a wrong command line."""
    text = " ".join(error.format_message().split()).removesuffix(".")
    text = _NOT_A_NUMBER.sub("is not a number", text)
    context = error.ctx if isinstance(error, click.UsageError) else None
    named = next((each for each in arguments if each in COMMANDS), None)  # an error of the parser has no context
    path = context.command_path if context is not None else f"interlock {named}" if named else "interlock"
    return f"{text[:1].lower()}{text[1:]}", f"see {path} --help"


def _use_utf8() -> None:
    """Write UTF-8, as definitions are; a terminal that cannot show a character shows a replacement."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in {"utf-8", "utf8"}:
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8")


def _discard_stdout() -> None:
    """Redirect stdout to the null device, so that the flush at exit does not fail again."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        return
