"""`interlock simulate`: play a chart in the terminal, or from a script with the same output every time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from interlock.assemble.charts import BoundChart
from interlock.cli import exit_codes
from interlock.cli.commands.check import sound
from interlock.cli.input import STDIN, read_bytes, read_source
from interlock.cli.options import common, example, format_option, json_option, pass_terminal, src_option
from interlock.cli.output import scene
from interlock.cli.output.terminal import Terminal
from interlock.cli.play import LOOKING, NOT_JSON, Playback, instant
from interlock.errors import InterlockError, RejectedError, UsageError

_VIEWS: dict[str, Callable[[Playback], Iterable[scene.Line]]] = {
    "context": lambda play: scene.context_lines(play.chart, play.snapshot),
    "effects": scene.effect_lines,
    "events": scene.event_lines,
    "timers": lambda play: [*scene.waiting_lines(play)] or [("  nothing waits",)],
    "tree": lambda play: scene.tree_lines(play.chart, play.snapshot, play.visited()),
}
assert set(_VIEWS) == set(LOOKING)


@example(
    "interlock simulate order.interlock.yaml --context '{\"amount\": 4990}'",
    "interlock simulate order.interlock.yaml --script life.txt",
)
@click.command(short_help="Play a chart: send events, advance time, go back.")
@click.argument("file", metavar="FILE")
@click.option("--script", metavar="FILE", help="Read the lines of the play from FILE, - for stdin.")
@click.option("--context", metavar="JSON", help="The context to begin with, or @FILE.")
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
    """Play a chart: send events, advance a virtual clock, answer invokes, go back a step. Type help for the commands.

    Nothing outside is touched. With --json every line gives one JSON object on one line.
    """
    if file == STDIN and script in {None, STDIN}:
        raise click.UsageError("stdin cannot be both the definition and the play; name a file for one of them")
    document, chart = sound(read_source(file, source_format, allow_src=allow_src), terminal)
    typed = script is None and sys.stdin.isatty()
    lines = iter(()) if typed else _script_lines(script)
    play = _begun(BoundChart(chart, document), _context(context))
    show = _JsonStage(terminal, play) if as_json else _Stage(terminal, play)
    show.opening()
    if typed:
        return _interactive(show, play)
    name = "<stdin>" if script in {None, STDIN} else str(script)
    return _scripted(show, name, lines)


def _context(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    said = read_bytes(Path(text[1:])) if text.startswith("@") else text
    try:
        return msgspec.json.decode(said, type=dict[str, Any])
    except NOT_JSON as error:
        hint = """write it like --context '{"amount": 5}'"""
        raise UsageError(f"--context is not a JSON object: {error}", code="simulate.context", hint=hint) from None


def _begun(bound: BoundChart, context: dict[str, Any] | None) -> Playback:
    try:
        return Playback(bound, context)
    except RejectedError as error:
        hint = error.hint or ("give it with --context JSON" if error.code.startswith("context.") else None)
        raise RejectedError(error.message, code=error.code, hint=hint) from error


class _Stage:
    """Shows a play to a person."""

    def __init__(self, terminal: Terminal, play: Playback) -> None:
        self.terminal = terminal
        self.play = play

    def opening(self) -> None:
        """The first step, and what there is to do."""
        self._lines(scene.assumption_lines(self.play))
        self._lines(scene.record_lines(self.play.simulation.trace, self.play.entity, {}, self.play.chart))
        self._status()

    def line(self, line: str) -> None:
        """Do and show one line. Raises UsageError when it makes no sense; nothing has changed then."""
        play = self.play
        word = line.partition(" ")[0]
        if word == "help":
            self._lines(scene.help_lines())
        elif word == "back":
            self.terminal.report(f"took back: {play.back()}")
            self._status()
        elif word in _VIEWS and word == line:
            self._lines(_VIEWS[word](play))
        else:
            before = dict(play.simulation.snapshots)
            records = play.change(line)
            self._lines(scene.record_lines(records, play.entity, before, play.chart))
            self._meant(records)
            if word == "advance":
                self.terminal.report(("  clock    ", "dim"), f"now {instant(play.simulation.time_ms)}")
            self._status()

    def echo(self, line: str) -> None:
        """Repeat a line that nobody typed, so that the output can be read by itself."""
        self.terminal.report((f"> {line}", "bold"))

    def _meant(self, records: list[Any]) -> None:
        """A near name for an event that nothing took."""
        if records and records[0].event is not None and records[0].step.outcome == "rejected":
            near = self.play.meant(records[0].event.name)
            if near is not None:
                self.terminal.report(("  hint: ", "green"), near)

    def _status(self) -> None:
        if not self.terminal.quiet:
            self._lines(scene.status_lines(self.play))

    def _lines(self, lines: Iterable[scene.Line]) -> None:
        for parts in lines:
            self.terminal.report(*parts)


class _JsonStage(_Stage):
    """Shows a play to a program: one JSON object to a line."""

    def opening(self) -> None:
        """The first step."""
        self._turn("start", self.play.simulation.trace)

    def line(self, line: str) -> None:
        """Do one line and print all it led to; looking prints the play as it stands."""
        word = line.partition(" ")[0]
        if word == "back":
            self.play.back()
            self._turn(line, [])
        elif word == "help" or line in _VIEWS:
            self._turn(line, [])
        else:
            self._turn(line, self.play.change(line))

    def echo(self, line: str) -> None:
        """Nothing: each object names its line."""

    def _turn(self, line: str, records: list[Any]) -> None:
        self.terminal.data(msgspec.json.encode(scene.turn(self.play, line, records)).decode() + "\n")


def _script_lines(script: str | None) -> Iterator[str]:
    """The lines of a script; a file is read now, stdin as it comes.

    Raises UsageError, when the line is taken, for one that is not UTF-8.
    """
    if script is None or script == STDIN:
        return _decoded("<stdin>", sys.stdin.buffer)
    return _decoded(script, read_bytes(Path(script)).splitlines())


def _decoded(name: str, lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{name}:{number}: this line is not UTF-8 text", code="file.encoding") from None


def _scripted(show: _Stage, name: str, lines: Iterable[str]) -> int:
    """Play the lines of a script; one that makes no sense ends it."""
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line == "quit":
            break
        show.echo(line)
        try:
            show.line(line)
        except UsageError as error:
            raise UsageError(f"{name}:{number}: {error.message}", code=error.code, hint=error.hint) from error
    return exit_codes.OK


def _interactive(show: _Stage, play: Playback) -> int:
    """Play what is typed, until quit or the end of input; a line that makes no sense is told and forgotten."""
    _complete(play)
    while True:  # endless by intent: the player decides when it ends
        try:
            line = input(f"{play.entity} v{play.snapshot.version}> ").strip()
        except EOFError:
            show.terminal.message("")
            return exit_codes.OK
        if line == "quit":
            return exit_codes.OK
        if line:
            try:
                show.line(line)
            except InterlockError as error:
                show.terminal.failure(f"{error.message}; {error.hint}" if error.hint else error.message)


def _complete(play: Playback) -> None:
    """Let the tab key complete events and commands, where the interpreter has readline."""
    try:
        import readline
    except ImportError:
        return

    def completed(text: str, position: int) -> str | None:
        found = [word for word in scene.words(play) if word.startswith(text)]
        return found[position] if position < len(found) else None

    readline.set_completer_delims(" ")
    readline.set_completer(completed)
    readline.parse_and_bind("tab: complete")
