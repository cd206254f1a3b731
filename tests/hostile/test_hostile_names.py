"""Names and texts that try to control a terminal, a diagram, a page or a build log are shown as text."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import interlock
from interlock.assemble.charts import FORMATS, get_format
from tests.hostile.processes import interlock as command

NAMES = r"""
interlock: 1
kind: names
states:
  a:
    id: "x\e[2J<b>\"]"
    description: "line\n\e[1A```\n<script>alert(1)</script>\n%%{init: {}}%%\n\"];"
    tags: ["\e[5m", "<i>"]
    entry: [{log: "\e[2J"}, "do\e[31m<b>\""]
    on:
      "go\e[31mred": b
      "x\x9b2J": b
      "a\"];evil[\"b": b
      "<script>alert(1)</script>": b
      "end%%{init:x}%%": b
      "]]>&amp;<!--": b
      "@enduml": b
  b:
    id: "click\"javascript:alert(1)\""
    on: {"go\e[31mred": {target: a, guard: "ev\e[31mil\"]<b>"}}
"""
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
BAD = NAMES.replace("on: {", "on: {nowhere\\e[31m: nowhere, ").replace("nowhere\\e[31m", '"nowhere\\e[31m"')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the chart in it, once whole and once with an error."""
    (tmp_path / "names.yaml").write_text(NAMES, encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(BAD, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("check", "-v", "names.yaml"),
        ("check", "bad.yaml"),
        ("check", "--github", "bad.yaml"),
        ("check", "--json", "bad.yaml"),
        ("--color", "always", "check", "bad.yaml"),
        ("draw", "names.yaml", "--format", "mermaid"),
        ("draw", "names.yaml", "--format", "dot"),
        ("draw", "names.yaml", "--format", "plantuml"),
        ("convert", "names.yaml", "--to", "yaml"),
        ("simulate", "names.yaml", "--script", "/dev/null"),
    ],
    ids=" ".join,
)
def test_no_control_character_of_a_definition_is_printed(words: tuple[str, ...], folder: Path) -> None:
    """Whatever people read is free of them, but for the colours that we put in ourselves."""
    ended = command(*words, folder=folder)

    said = re.sub(r"\x1b\[[0-9;]*m", "", ended.out + ended.err) if "always" in words else ended.out + ended.err
    assert ended.code in (0, 1)
    assert "Traceback" not in said
    assert [] == CONTROLS.findall(said)


@pytest.mark.slow
@pytest.mark.parametrize("format", [each for each in FORMATS if not get_format(each).is_read_only])
def test_a_converted_definition_is_shown_harmless_on_a_terminal(format: str, folder: Path) -> None:
    """A file gets the text as it is; a terminal gets it with control characters written out."""
    shown = _on_a_terminal("-q", "convert", "names.yaml", "--to", format, folder=folder)

    assert "alert(1)" in shown
    assert [] == CONTROLS.findall(shown.replace("\r\n", "\n"))


def _on_a_terminal(*words: str, folder: Path) -> str:
    ours, theirs = pty.openpty()
    command_line = [sys.executable, "-m", "interlock", *words]
    environment = os.environ | {"NO_COLOR": "1", "TERM": "dumb"}
    with subprocess.Popen(command_line, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 65_536):
                parts.append(part)
        except OSError:  # how a terminal says that the other side has closed
            pass
        os.close(ours)
    return b"".join(parts).decode("utf-8", "replace")


def test_markup_in_names_is_text_in_every_drawing() -> None:
    """No tag, no directive, no end of the diagram, and no quote that closes a label."""
    chart = interlock.loads(NAMES)
    drawn = {name: _drawn(chart, name) for name in ("mermaid", "dot", "plantuml")}

    assert [] == [name for name in ("mermaid", "plantuml") if "<script" in drawn[name] or "<b>" in drawn[name]]
    assert "%%{" not in drawn["mermaid"]
    assert "click" not in drawn["mermaid"]
    assert 1 == drawn["plantuml"].count("@enduml")
    assert [] == [line for line in drawn["dot"].splitlines() if line.count('"') - line.count('\\"') not in (0, 2, 4, 6)]


def _drawn(chart: interlock.BoundChart, name: str) -> str:
    from interlock.render.diagram import dot, mermaid, plantuml

    modules = {"mermaid": mermaid.mermaid, "dot": dot.dot, "plantuml": plantuml.plantuml}
    return modules[name](chart.chart)


def test_what_is_written_stays_well_formed() -> None:
    document = interlock.loads(NAMES).document
    scxml = get_format("scxml").write(document)

    assert "scxml" in ET.fromstring(scxml.text.encode()).tag
    assert "export.characters" in {each.code for each in scxml.diagnostics}
    for name in ("yaml", "xstate"):
        back = get_format(name).read(get_format(name).write(document).text, source=f"names.{name}").document
        assert back is not None
        assert document.root.states[0].id == back.root.states[0].id
