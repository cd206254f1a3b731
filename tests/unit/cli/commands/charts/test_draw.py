"""`draw` as a picture: formats, themes, what is lit, what is refused, and drawing again while a file changes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from interlock.cli.commands.charts import draw as drawing
from interlock.model.limits import STATES_MAX
from tests.support.cli import Caller


@pytest.mark.parametrize(("name", "beginning"), [("x.svg", b"<svg "), ("x.png", b"\x89PNG"), ("x.txt", b"lamp\n")])
def test_a_picture_is_drawn_by_its_suffix(call: Caller, folder: Path, name: str, beginning: bytes) -> None:
    ended = call("draw", "lamp.yaml", "-o", name)

    assert (0, f"wrote {name}\n") == (ended.code, ended.err)
    assert (folder / name).read_bytes().startswith(beginning)


def test_a_state_is_lit(call: Caller, folder: Path) -> None:
    svg = call("draw", "lamp.yaml", "--format", "svg", "--active", "bright").out
    ended = call("draw", "lamp.yaml", "--format", "svg", "--active", "brigth")

    assert '<g id="s-bright" class="state on">' in svg
    assert "  ● bright\n" in call("draw", "lamp.yaml", "--format", "text", "--active", "bright").out
    assert (2, True) == (ended.code, "bright" in ended.err)


def test_a_theme_is_chosen(call: Caller, folder: Path) -> None:
    plain = call("draw", "lamp.yaml", "--format", "svg").out
    dark = call("draw", "lamp.yaml", "--format", "svg", "--theme", "dark").out
    call("draw", "lamp.yaml", "-o", "light.png")
    call("draw", "lamp.yaml", "-o", "dark.png", "--theme", "dark")

    assert "prefers-color-scheme" in plain
    assert "prefers-color-scheme" not in dark
    assert (folder / "light.png").read_bytes() != (folder / "dark.png").read_bytes()


def test_levels_are_shut(call: Caller, folder: Path) -> None:
    (folder / "deep.yaml").write_text("interlock: 1\nkind: deep\nstates: {a: {states: {b: {}, c: {}}}, d: {}}\n")

    assert "2 states inside" in call("draw", "deep.yaml", "--format", "svg", "--collapse", "1").out
    assert "2 states inside" not in call("draw", "deep.yaml", "--format", "svg").out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--format", "dot", "--collapse", "1"), "--collapse"),
        (("--format", "text", "--theme", "dark"), "--theme"),
        (("--format", "png"), "png"),
        (("-o", "x.png", "--json"), "png"),
        (("-o", "x.png", "--theme", "vars"), "`vars`"),
        (("--watch",), "--watch"),
        (("--watch", "-o", "-"), "--watch"),
        (("-o", "x.jpeg"), '"jpeg"'),
        (("--format", "svg", "--collapse", "0"), "--collapse"),
    ],
)
def test_contradicting_options_are_refused(call: Caller, folder: Path, arguments: tuple[str, ...], named: str) -> None:
    ended = call("draw", "lamp.yaml", *arguments)

    assert (2, "") == (ended.code, ended.out)
    assert named in ended.err
    assert ["bad.yaml", "lamp.yaml"] == sorted(each.name for each in folder.iterdir())


def test_a_picture_as_json_has_its_format_and_kind(call: Caller, folder: Path) -> None:
    said = json.loads(call("draw", "lamp.yaml", "--format", "svg", "--json").out)

    assert ("svg", "lamp", True) == (said["format"], said["kind"], said["text"].startswith("<svg"))


@pytest.mark.slow
def test_a_chart_that_is_too_large_is_drawn_as_an_outline_with_a_message(call: Caller, folder: Path) -> None:
    count = STATES_MAX - 1
    states = "".join(f"  s{n}: {{on: {{a: s{(n + 1) % count}, b: s{(n + 501) % count}}}}}\n" for n in range(count))
    (folder / "large.yaml").write_text(f"interlock: 1\nkind: large\nstates:\n{states}")
    ended = call("draw", "large.yaml", "-o", "x.svg", "--from", "yaml")

    assert 0 == ended.code
    assert "drawn as an outline: the chart is too large to be laid out" in ended.err


def test_a_file_that_is_away_for_a_moment_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "x.yaml"
    path.write_text("one")
    pauses = iter([path.unlink, lambda: None, lambda: path.write_text("three")])
    monkeypatch.setattr(time, "sleep", lambda _: next(pauses)())  # type: ignore[no-untyped-call]  # of several types
    changes = drawing._changes(path)
    next(changes)
    next(changes)

    assert "three" == path.read_text()
    assert 0 == len(list(pauses))
    path.unlink()
    next(drawing._changes(path))
