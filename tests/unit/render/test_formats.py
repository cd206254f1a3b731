"""The three formats: exact for a small chart, structural for a large one, unbreakable by any text."""

import re
import shutil
import subprocess
from collections.abc import Callable

import pytest

from interlock.model.charts.chart import Chart
from interlock.render.diagram.dot import dot
from interlock.render.diagram.mermaid import mermaid
from interlock.render.diagram.plantuml import plantuml
from tests.unit.render.charts import flat, hostile, nested, parallel_root

CHARTS = {"flat": flat, "nested": nested, "parallel_root": parallel_root, "hostile": hostile}


def test_mermaid_of_a_small_chart() -> None:
    """Initial dot, labels with delays, lines inside a state, final states, the lit state."""
    expected = """\
---
title: "order 1.0.0"
---
stateDiagram-v2
    s1: unpaid
    s2: paid<br/>output #123;ok#58; true#125;
    s2 --> [*]
    s3: expired
    s3 --> [*]
    [*] --> s1
    s1 --> s3: after 48h
    s1 --> s2: pay
    classDef active fill:#fde68a,stroke:#b45309,color:#111827,stroke-width:2px
    class s1 active
"""

    assert expected == mermaid(flat(), active=frozenset({"unpaid"}))


def test_dot_of_a_small_chart() -> None:
    body = dot(flat(), active=frozenset({"unpaid"})).splitlines()[4:]

    assert [
        '  label="order 1.0.0";',
        '  i0 [label="", shape=circle, style=filled, fillcolor=black, width=0.14, margin=0];',
        '  s1 [label="unpaid", fillcolor="#fde68a", color="#b45309"];',
        r'  s2 [label="paid\noutput {ok: true}\l", peripheries=2];',
        '  s3 [label="expired", peripheries=2];',
        "  i0 -> s1;",
        r'  s1 -> s3 [label="after 48h\l"];',
        r'  s1 -> s2 [label="pay\l"];',
        "}",
    ] == body


def test_plantuml_of_a_small_chart() -> None:
    expected = """\
@startuml
title order 1.0.0
hide empty description
state "unpaid" as s1 #fde68a
state "paid" as s2
s2 : output {ok: true}
s2 --> [*]
state "expired" as s3
s3 --> [*]
[*] --> s1
s1 --> s3 : after 48h
s1 --> s2 : pay
@enduml
"""

    assert expected == plantuml(flat(), active=frozenset({"unpaid"}))


def test_mermaid_puts_the_lines_of_a_compound_into_a_note() -> None:
    """A composite state of Mermaid holds no text, and draws no arrow to a state inside it."""
    text = mermaid(nested())
    note = text[text.index("note right of s5") : text.index("end note")]

    assert [
        "note right of s5",
        "entry / emit vm.live",
        "exit / cancel billing",
        "invoke hypervisor.watch (watch)",
        "note / note",
        "again → steady",
    ] == [line.strip() for line in note.strip().splitlines()]


def test_mermaid_separates_regions_and_keeps_histories_out_of_the_count() -> None:
    assert 1 == sum(line.strip() == "--" for line in mermaid(nested()).splitlines())


def test_several_targets_are_a_fork() -> None:
    text = mermaid(nested())
    fork = re.search(r"s13 --> (f\d+): split", text)

    assert fork is not None
    assert f"{fork[1]} --> s8" in text
    assert f"{fork[1]} --> s11" in text
    assert 'label="split' in dot(nested())
    assert "<<fork>>" in plantuml(nested())


def test_what_the_root_does_is_drawn_at_a_stand_in() -> None:
    """`any state` has the root's arrows and lines; a root without either has no stand-in."""
    assert "s0: any state<br/>ping / pong" in mermaid(nested())
    assert "s0 --> s14: delete [context.failures #60; 9]" in mermaid(nested())
    assert r's0 [label="any state\nping / pong\l", style="rounded,dashed"];' in dot(nested())
    assert 'state "any state" as s0' in plantuml(nested())
    assert "any state" not in mermaid(flat()) + dot(flat()) + plantuml(flat())


def test_a_parallel_root_is_a_frame() -> None:
    assert 'state "pair" as s0 {' in mermaid(parallel_root())
    assert "subgraph cluster_s0 {" in dot(parallel_root())
    assert 'state "pair" as s0 {' in plantuml(parallel_root())


def test_dot_cuts_an_arrow_at_the_border_of_a_cluster() -> None:
    text = dot(nested())

    assert r's1 -> s5 [label="done\l", ltail=cluster_s1, lhead=cluster_s5];' in text
    assert r's5 -> s7 [label="again\l"];' in text
    assert r's11 -> s5 [label="reset\l"];' in text


def test_a_highlighted_compound_state_is_filled() -> None:
    active = frozenset({"live", "live.power.steady"})

    assert "class s5,s7 active" in mermaid(nested(), active=active)
    assert 'style="rounded,filled"; fillcolor="#fef3c7"' in dot(nested(), active=active)
    assert 'state "live" as s5 #fde68a {' in plantuml(nested(), active=active)


def test_regions_have_dashed_borders() -> None:
    assert 'style="rounded,dashed"' in dot(nested())
    assert 'state "power" as s6 ##[dashed]gray {' in plantuml(nested())


@pytest.mark.parametrize("write", [mermaid, dot, plantuml])
@pytest.mark.parametrize("make", CHARTS.values(), ids=CHARTS.keys())
def test_the_same_chart_gives_the_same_text(write: Callable[[Chart], str], make: Callable[[], Chart]) -> None:
    assert write(make()) == write(make())
    assert write(make()).endswith("\n")


@pytest.mark.parametrize("write", [mermaid, plantuml])
def test_no_text_of_a_chart_becomes_syntax(write: Callable[[Chart], str]) -> None:
    """Quotes, brackets, arrows and comments in labels come out as code points; only our own arrows remain."""
    arrows = [line for line in write(hostile()).splitlines() if "-->" in line]

    assert 2 == len(arrows)
    assert not re.search(r"<b>|%%|\*\*|`|<<|\u2028", write(hostile()))


def test_quotes_and_backslashes_do_not_end_a_dot_string() -> None:
    outside = re.sub(r'"(?:\\.|[^"\\])*"', '""', dot(hostile()))

    assert 2 == outside.count("->")
    assert "@" not in outside


@pytest.mark.skipif(shutil.which("dot") is None, reason="SKIPPED: Graphviz (dot) is not installed")
@pytest.mark.parametrize("make", CHARTS.values(), ids=CHARTS.keys())
def test_graphviz_draws_every_chart_without_a_warning(make: Callable[[], Chart]) -> None:
    command = [shutil.which("dot") or "dot", "-Tsvg"]
    run = subprocess.run(command, input=dot(make()), capture_output=True, text=True, check=False)

    assert (0, "") == (run.returncode, run.stderr)
    assert run.stdout.rstrip().endswith("</svg>")
