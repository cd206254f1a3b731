"""Colour where it is wanted, plain text elsewhere, and no file that steers the terminal."""

import io

import pytest

from interlock.cli.output.diagnostics import finding_lines, summary
from interlock.cli.output.terminal import Color, Terminal, escape
from interlock.errors import Diagnostic, Severity, SourceLocation


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@pytest.mark.parametrize(
    ("color", "environment", "terminal", "colorful"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour_is_decided_by_option_then_environment_then_terminal(
    color: Color, environment: dict[str, str], terminal: bool, colorful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert colorful is Terminal(color=color).has_color(Screen() if terminal else io.StringIO())


def test_a_coloured_line_is_the_plain_line_with_codes(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal(color="always").report(("[red]a[/]", "bold"), " b")
    Terminal(color="never").report(("[red]a[/]", "bold"), " b")
    painted, plain = capsys.readouterr().out.splitlines()

    assert "\x1b[1m[red]a[/]\x1b[0m b" == painted
    assert "[red]a[/] b" == plain


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal(color="never").report("a\x1b[2J\x9b\x07b\tc\r\n\u2028\u202eerror: d")

    assert "a\\x1b[2J\\x9b\\x07b\\tc\\r\\n\\u2028\\u202eerror: d\n" == capsys.readouterr().out
    assert "\n" == escape("\n")
    assert "a\\udcff" == escape("a\udcff")


def test_quiet_keeps_errors_and_drops_messages(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(quiet=True)
    terminal.message("by the way")
    terminal.failure("it failed")

    assert "error: it failed\n" == capsys.readouterr().err


def finding(line: int, column: int, end: int, severity: Severity = "error") -> Diagnostic:
    """A finding about a part of one line."""
    location = SourceLocation("x.yaml", line, column, line, end, "states.a")
    return Diagnostic(code="a.b", message="wrong", location=location, severity=severity, hint="do it right")


def text(lines: list[tuple[str | tuple[str, str], ...]]) -> list[str]:
    """The lines without their styles."""
    return ["".join(part if isinstance(part, str) else part[0] for part in line) for line in lines]


def test_the_caret_is_below_the_faulty_part() -> None:
    assert [
        "x.yaml:2:4 error a.b states.a: wrong",
        "  2 | a: bcd",
        "    |    ^^^",
        "  hint: do it right",
    ] == text(finding_lines(finding(2, 4, 7), ["first", "a: bcd"]))


def test_a_caret_counts_columns_of_the_screen() -> None:
    wide = text(finding_lines(finding(1, 5, 6), ["日e\u0301\tx"]))

    assert ["  1 | 日e\u0301    x", "    |        ^"] == wide[1:3]


def test_a_long_line_is_cut_around_the_place() -> None:
    line = "a" * 300 + "WRONG" + "b" * 300
    shown = text(finding_lines(finding(1, 301, 306), [line]))

    assert "WRONG" in shown[1]
    assert max(map(len, shown)) < 120
    assert shown[2].index("^^^^^") == shown[1].index("WRONG")


def test_a_long_line_that_is_wrong_at_its_start_keeps_its_start() -> None:
    shown = text(finding_lines(finding(1, 1, 4), ["bad" + "b" * 300]))

    assert shown[1].startswith("  1 | badb")
    assert shown[1].endswith("…")


@pytest.mark.parametrize(("line", "column"), [(0, 1), (9, 1)])
def test_a_place_outside_the_text_shows_no_line(line: int, column: int) -> None:
    assert 2 == len(finding_lines(finding(line, column, column + 1), ["a"]))


def test_a_column_behind_the_line_has_one_mark() -> None:
    shown = text(finding_lines(finding(1, 9, 12), ["abc"]))

    assert "    |    ^" == shown[2]


def test_a_place_over_several_lines_is_marked_to_the_end_of_the_first() -> None:
    location = SourceLocation("x.yaml", 1, 1, 3, 2)
    shown = text(finding_lines(Diagnostic(code="a.b", message="wrong", location=location), ["abc  ", "d", "e"]))

    assert "    | ^^^" == shown[2]


@pytest.mark.parametrize(
    ("severities", "names", "line"),
    [
        (("error", "error", "warning"), ("order.yaml",), "2 errors, 1 warning in order.yaml"),
        (("info",), ("a.yaml", "b.yaml"), "1 note in 2 files"),
        ((), ("order.yaml",), "no findings in order.yaml"),
    ],
)
def test_a_summary_counts_by_severity(severities: tuple[Severity, ...], names: tuple[str, ...], line: str) -> None:
    assert line == summary([finding(1, 1, 2, each) for each in severities], names)
