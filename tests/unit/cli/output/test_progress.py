"""The progress line: on a terminal only, drawn a few times per second, and erased at the end."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from interlock.cli.output import progress
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import bar


class Screen(io.StringIO):
    """A terminal that records its output."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Stderr as a terminal of 60 columns, without colour, drawn on each time; stdout is a file."""
    found = Screen()
    # Not `sys.stderr` itself: pytest puts its own back between a fixture and its test.
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=found, stdout=io.StringIO()))
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return found


def test_a_known_end_has_a_bar_and_an_unknown_one_a_number(screen: Screen) -> None:
    with Progress(Terminal(), "entities", 4) as known:
        known.at(1)
        known.at(9)
    with Progress(Terminal(), "entries") as unknown:
        unknown.at(1_234, "2 corrupt")

    assert [
        "▕██████                  ▏  25%  1 of 4 entities",
        "▕████████████████████████▏ 100%  9 of 4 entities",
        "",
        "1,234 entries  2 corrupt",
        "",
    ] == screen.getvalue().split("\r\x1b[K")[1:]


def test_a_line_keeps_to_the_width_of_the_terminal(screen: Screen) -> None:
    with Progress(Terminal(), "") as shown:
        shown.line("x" * 200)

    assert 59 == screen.getvalue().count("x")


@pytest.mark.parametrize(
    ("terminal", "term", "is_seen"),
    [(Terminal(), "xterm", True), (Terminal(quiet=True), "xterm", False), (Terminal(), "dumb", False)],
)
def test_quiet_hides_progress(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, terminal: Terminal, term: str, is_seen: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    with Progress(terminal, "entities", 4) as shown:
        shown.at(1)
        shown.line("something")

    assert is_seen == bool(screen.getvalue())


def test_a_file_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=pipe, stdout=pipe))
    with Progress(Terminal(color="always"), "entities", 4) as shown:
        shown.at(1)

    assert "" == pipe.getvalue()


def test_progress_is_erased_before_other_output(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    with Progress(Terminal(), "entities") as shown:
        shown.at(1)
        shown.over(screen.write, "|")
        monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=screen, stdout=screen))
        shown.over(screen.write, "a line\n")

    assert "\r\x1b[K1 entities|\r\x1b[Ka line\n" == screen.getvalue()


def test_progress_is_drawn_a_few_times_per_second(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 3_600)
    monkeypatch.setattr(progress, "monotonic", lambda: 1_000_000.0)
    with Progress(Terminal(), "entities") as shown:
        for number in range(1_000):
            shown.at(number)

    assert "\r\x1b[K0 entities\r\x1b[K" == screen.getvalue()


def test_colour_follows_the_options_and_the_environment(screen: Screen) -> None:
    with Progress(Terminal(color="always"), "") as shown:
        shown.line("x")

    assert "\x1b[2mx\x1b[0m" in screen.getvalue()


@pytest.mark.parametrize(
    ("part", "text"),
    [(-1, "    "), (0, "    "), (0.26, "█   "), (0.5, "██  "), (0.53, "██▏ "), (1, "████"), (7, "████")],
)
def test_a_bar_is_filled_in_eighths(part: float, text: str) -> None:
    assert text == bar(part, 4)
