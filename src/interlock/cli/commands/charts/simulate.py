"""`interlock simulate`: simulate a chart in the terminal, or from a script that always prints the same output."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from interlock.assemble.charts import BoundChart
from interlock.cli import exit_codes
from interlock.cli.commands.charts.check import require_sound
from interlock.cli.input import STDIN, read_bytes, read_json_object, read_source
from interlock.cli.options import common, example, format_option, json_option, pass_terminal, src_option
from interlock.cli.output import entity as entity_output
from interlock.cli.output import simulation as output
from interlock.cli.output.terminal import Line, Terminal
from interlock.cli.output.values import json_line
from interlock.errors import InterlockError, RejectedError, UsageError
from interlock.model.charts.chart import Chart
from interlock.model.charts.sites import event_names
from interlock.model.diagnostics import suggestion
from interlock.model.duration import format_duration, require_duration
from interlock.model.encoding.codec import UNDECODABLE
from interlock.testing.playback import (
    Act,
    AdvanceClock,
    CompleteEffect,
    FailEffect,
    Playback,
    SendEvent,
    SetGuard,
)
from interlock.testing.simulation import SimulationRecord

ACTS = ("advance", "done", "fail", "guard", "send")
VIEWS: dict[str, Callable[[Playback], Iterable[Line]]] = {
    "context": lambda playback: entity_output.context_lines(playback.chart, playback.snapshot),
    "effects": output.effect_lines,
    "events": output.event_lines,
    "timers": lambda playback: [*output.waiting_lines(playback)] or [("  no timers",)],
    "tree": lambda playback: entity_output.tree_lines(playback.chart, playback.active(), playback.visited()),
}
COMMANDS = (*ACTS, *VIEWS, "back", "help", "quit")


@example(
    "interlock simulate order.interlock.yaml --context '{\"amount\": 4990}'",
    "interlock simulate order.interlock.yaml --script life.txt",
)
@click.command
@click.argument("file", metavar="FILE")
@click.option("--script", metavar="FILE", help="Read the lines from FILE, - for stdin.")
@click.option("--context", metavar="JSON", help="The initial context, or @FILE.")
@json_option
@format_option
@src_option
@common
@pass_terminal
def simulate(
    terminal: Terminal,
    file: str,
    *,
    script: str | None,
    context: str | None,
    as_json: bool,
    source_format: str | None,
    allow_src: bool,
) -> int:
    """Type `help` for the commands. The clock is virtual, and no handler runs: you complete invokes yourself.

    --json prints one JSON object for each line.
    """
    if file == STDIN and script in {None, STDIN}:
        raise click.UsageError("stdin cannot be both the definition and the script; use a file for one of them")
    document, chart = require_sound(read_source(file, source_format, allow_src=allow_src), terminal)
    is_interactive = script is None and sys.stdin.isatty()
    lines = iter(()) if is_interactive else _script_lines(script)
    playback = _start(BoundChart(chart, document), read_json_object(context, "--context"))
    view = _JsonView(terminal, playback) if as_json else _TextView(terminal, playback)
    view.start()
    if is_interactive:
        return _run_interactive(view, playback)
    name = "<stdin>" if script in {None, STDIN} else str(script)
    return _run_script(view, name, lines)


def _start(bound: BoundChart, context: dict[str, Any] | None) -> Playback:
    try:
        return Playback(bound, context)
    except RejectedError as error:
        hint = error.hint or ("pass it with --context JSON" if error.code.startswith("context.") else None)
        raise RejectedError(error.message, code=error.code, hint=hint) from error


# Lines


def parse_line(line: str, chart: Chart) -> Act:
    """Return the action of a line. Raises UsageError if the line is invalid."""
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    name, _, text = rest.partition(" ")
    match word:
        case "advance":
            return AdvanceClock(None if not rest else require_duration(rest, what="advance", code="duration.syntax"))
        case "done":
            return CompleteEffect(name, parse_payload(text))
        case "fail":
            code, _, message = text.strip().partition(" ")
            return FailEffect(name, code or "failed", message.strip())
        case "guard":
            if text.strip() not in {"true", "false"}:
                raise UsageError("write: guard NAME true|false", code="play.guard")
            return SetGuard(name, text.strip() == "true")
        case "send":
            if not name:
                raise UsageError("missing event, as in: send order.paid", code="play.event")
            return SendEvent(name, parse_payload(text, _string_fields(chart, name)))
        case _:
            return SendEvent(word, parse_payload(rest, _string_fields(chart, word)))


def _string_fields(chart: Chart, event: str) -> frozenset[str]:
    declared = next((each.payload for each in chart.events or () if each.name == event), None)
    return frozenset(field.name for field in declared or () if field.type == "string")


def parse_payload(text: str, string_fields: frozenset[str] = frozenset()) -> Any:
    """Return the payload of a line: JSON, or `name=value` pairs, or None for no text.

    Values of `string_fields` stay strings. Raises UsageError if the text is neither.
    """
    text = text.strip()
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except UNDECODABLE as error:
        pairs = _parse_pairs(text, string_fields)
        if pairs is None:
            problem = str(error).removeprefix("JSON is malformed: ")
            message = f"the payload is neither JSON ({problem}) nor name=value pairs: {text[:60]}"
            raise UsageError(message, code="play.payload") from None
        return pairs


def _parse_pairs(text: str, string_fields: frozenset[str]) -> dict[str, Any] | None:
    """`id=p1 amount=3` as a mapping, or None. A value that is JSON is decoded; otherwise it is a string."""
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            return None
        found[name] = value if name in string_fields else _parse_value(value)
    return found


def _parse_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except UNDECODABLE:
        return text


# Views


class _TextView:
    """Prints a simulation for people."""

    def __init__(self, terminal: Terminal, playback: Playback) -> None:
        self.terminal = terminal
        self.playback = playback
        self._lines: list[str] = []

    def start(self) -> None:
        """Print the first step and the possible events."""
        self._print(output.assumption_lines(self.playback))
        self._print(output.record_lines(self.playback.simulation.trace, self.playback, {}))
        self._print_status()

    def line(self, line: str) -> None:
        """Run and print one line. Raises UsageError if it is invalid; nothing has changed then."""
        playback = self.playback
        word = line.partition(" ")[0]
        if word == "help":
            self._print(output.help_lines())
        elif word == "back":
            self.terminal.report(f"undone: {self.undo()}")
            self._print_status()
        elif word in VIEWS and word == line:
            self._print(VIEWS[word](playback))
        else:
            before = dict(playback.simulation.snapshots)
            records = self.apply(line)
            self._print(output.record_lines(records, playback, before))
            self._print_suggestion(records)
            if word == "advance":
                self.terminal.report(("  clock    ", "dim"), f"now {format_duration(playback.simulation.time_ms)}")
            self._print_status()

    def apply(self, line: str) -> list[SimulationRecord]:
        """Apply the action of a line. Raises UsageError if it is not possible; nothing has changed then."""
        try:
            records = self.playback.apply(parse_line(line, self.playback.chart))
        except InterlockError:
            self.playback.replay()
            raise
        self._lines.append(line)
        return records

    def undo(self) -> str:
        """Undo the last line and return it."""
        self.playback.undo()
        return self._lines.pop()

    def echo(self, line: str) -> None:
        """Print a line of a script."""
        self.terminal.report((f"> {line}", "bold"))

    def _print_suggestion(self, records: list[SimulationRecord]) -> None:
        """Print a similar name for an unknown event."""
        if records and records[0].event is not None and records[0].step.outcome == "rejected":
            name, known = records[0].event.name, event_names(self.playback.chart)
            hint = None if name in known else suggestion(name, [*known, *COMMANDS])
            if hint is not None:
                self.terminal.report(("  hint: ", "green"), hint)

    def _print_status(self) -> None:
        if not self.terminal.quiet:
            self._print(output.status_lines(self.playback))

    def _print(self, lines: Iterable[Line]) -> None:
        for parts in lines:
            self.terminal.report(*parts)


class _JsonView(_TextView):
    """Prints a simulation for programs: one JSON object per line."""

    def start(self) -> None:
        """Print the first step."""
        self._print_turn("start", self.playback.simulation.trace)

    def line(self, line: str) -> None:
        """Run one line and print its steps; a view prints the simulation as it is."""
        word = line.partition(" ")[0]
        if word == "back":
            self.undo()
            self._print_turn(line, [])
        elif word == "help" or line in VIEWS:
            self._print_turn(line, [])
        else:
            self._print_turn(line, self.apply(line))

    def echo(self, line: str) -> None:
        """Print nothing: each object has its line."""

    def _print_turn(self, line: str, records: list[SimulationRecord]) -> None:
        self.terminal.data(json_line(output.turn_json(self.playback, line, records)))


# Input


def _script_lines(script: str | None) -> Iterator[str]:
    """The lines of a script; a file is read as a whole, stdin line by line. Raises UsageError for invalid UTF-8."""
    if script is None or script == STDIN:
        return _decode_lines("<stdin>", sys.stdin.buffer)
    return _decode_lines(script, read_bytes(Path(script)).splitlines())


def _decode_lines(name: str, lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{name}:{number}: invalid UTF-8", code="file.encoding") from None


def _run_script(view: _TextView, name: str, lines: Iterable[str]) -> int:
    """Run the lines of a script; the first invalid line ends it."""
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line == "quit":
            break
        view.echo(line)
        try:
            view.line(line)
        except UsageError as error:
            raise UsageError(f"{name}:{number}: {error.message}", code=error.code, hint=error.hint) from error
    return exit_codes.OK


def _run_interactive(view: _TextView, playback: Playback) -> int:
    """Run typed lines until quit or the end of input; an invalid line is reported."""
    _enable_completion(playback)
    while True:  # the user ends it
        try:
            line = input(f"{playback.entity} v{playback.snapshot.version}> ").strip()
        except EOFError:
            view.terminal.message("")
            return exit_codes.OK
        if line == "quit":
            return exit_codes.OK
        if line:
            try:
                view.line(line)
            except InterlockError as error:
                view.terminal.failure(error.message, error.hint)


def _enable_completion(playback: Playback) -> None:
    """Complete events and commands with the tab key, if the interpreter has readline."""
    try:
        import readline
    except ImportError:
        return
    words = sorted({*event_names(playback.chart), *COMMANDS})

    def complete(text: str, position: int) -> str | None:
        found = [word for word in words if word.startswith(text)]
        return found[position] if position < len(found) else None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
