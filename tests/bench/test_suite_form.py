"""The form of suites: goals and verdicts, tables, names of `--only`, and rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import report, results
from bench.inprocess.workloads import WORKLOADS, WrongResultError, check_regions, check_toggle, fitting
from bench.measure import Measurement, PeerUnavailableError, machine, run_rounds, selects
from bench.results import Figure, Line, Run
from bench.run import SUITES, chosen, main
from bench.suite import Column, Found, Goal, Suite, Workload, count, median, ratio, spread


def run_of(figures: dict[str, dict[str, Figure]], **changes: Any) -> Run:
    """Return a run with these figures."""
    keys = {key for row in figures.values() for key in row}
    values: dict[str, Any] = {
        "suite": "sample",
        "date": "2026-11-16",
        "quick": False,
        "partial": False,
        "rounds": 2,
        "python": "3.11.7",
        "commit": "abc",
        "machine": machine(0.0),
        "facts": [],
        "lines": {key: Line(name=f"line {key}", unsupported={"W9": "no sagas"}) for key in keys},
        "left_out": {"c": "it is not installed"},
        "figures": figures,
    }
    return Run(**values | changes)


FIGURES = {
    "w": {
        "a": Figure(count=1_000, samples={"ns": [10.0, 30.0]}),
        "b": Figure(samples={"ns": [5.0, 10.0]}),
        "broken": Figure(error="boom"),
    }
}
SUITE = Suite(
    name="sample",
    title="Sample",
    introduction="",
    method="",
    run=lambda measurement: None,
    efforts=(None, None),
    choices=(),
    workloads=(
        Workload(
            name="w",
            title="w: some work",
            columns=(median("ns", "ns"), spread("ns"), count(), Column("empty", lambda *_: "")),
        ),
    ),
    goals=(
        Goal("a to b", "<= 2.5x", ratio("w", "a", "b", "ns", form=".0f", unit="ns")),
        Goal("a to b, strictly", "< 2.5x", ratio("w", "a", "b", "ns", form=".0f", unit="ns")),
        Goal("many", ">= 1,000", lambda run: Found(run.figures["w"]["a"].count)),
        Goal("a to c", "<= 1x", ratio("w", "a", "c", "ns", form=".0f", unit="ns")),
    ),
)


def test_a_ratio_is_taken_round_by_round_and_compared_with_the_bar() -> None:
    verdicts = SUITE.verdicts(run_of(FIGURES))

    assert ["pass", "MISS", "pass", "not measured"] == [each.word for each in verdicts]
    assert ["2.50x (20 to 8 ns)", "it is not installed"] == [verdicts[0].figure, verdicts[3].figure]


def test_a_goal_that_was_not_measured_is_missed_by_a_whole_run_only() -> None:
    met = Suite(**{name: getattr(SUITE, name) for name in SUITE.__slots__} | {"goals": SUITE.goals[2:]})

    assert met.is_missed(run_of(FIGURES))
    assert not met.is_missed(run_of(FIGURES, partial=True))
    assert [] == SUITE.verdicts(run_of(FIGURES, quick=True))


def test_a_table_shows_failures_and_no_empty_column() -> None:
    assert [
        ("", "ns", "spread", "in a round"),
        ("line a", "20.0", "10.0..30.0", "1,000"),
        ("line b", "7.50", "5.00..10.0", "0"),
        ("line broken", "FAILED: boom", "", ""),
    ] == report.workload_table(run_of(FIGURES), SUITE.workloads[0])


def test_a_library_that_cannot_express_a_workload_is_named_with_the_reason() -> None:
    assert "- Not expressible in line a: no sagas." in report.unsupported(run_of(FIGURES), "W9").splitlines()


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    whole, partial = run_of(FIGURES), run_of(FIGURES, partial=True, date="2026-11-17")

    assert "2026-11-16-sample.json" == results.write(whole, tmp_path).name
    assert partial == results.read(results.write(partial, tmp_path))
    assert whole == results.newest(tmp_path, "sample")
    assert None is results.newest(tmp_path, "other")


def test_the_page_is_written_from_the_stored_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"

    assert 0 == main(["--page-only", "--page", str(page)])
    assert [f"## {suite.title}" for suite in SUITES.values() if f"## {suite.title}\n" in page.read_text("utf-8")]
    assert 2 == main(["--page-only", "--page", str(page), "--results", str(tmp_path)])


def test_names_select_by_prefix_without_cutting_numbers() -> None:
    assert [True, False, True, True] == [
        selects(*each) for each in [("W1", "W1"), ("W1", "W10"), ("W", "W10"), ("raw", "raw-file")]
    ]
    assert [("durable", ["fleet", "raw"])] == [(suite.name, names) for suite, names in chosen("fleet,durable,raw")]
    assert [("inprocess", ["W4"])] == [(suite.name, names) for suite, names in chosen("W4")]
    assert list(SUITES) == [suite.name for suite, _ in chosen("")]
    with pytest.raises(SystemExit, match="unknown name 'W99'"):
        chosen("W99")


def test_every_line_is_asked_once_in_each_round_after_the_warm_up() -> None:
    asked: list[tuple[str, int]] = []

    def ask(key: str, count: int) -> dict[str, float]:
        asked.append((key, count))
        return {"value": float(len(asked))}

    figures = run_rounds({key: lambda count, key=key: ask(key, count) for key in "ab"}, {"a": 40, "b": 100}, 2)  # type: ignore[misc]  # binds the key

    assert [("a", 10), ("b", 25), ("a", 40), ("b", 100), ("a", 40), ("b", 100)] == asked
    assert [{"value": [3.0, 5.0]}, {"value": [4.0, 6.0]}] == [each.samples for each in figures.values()]


@pytest.mark.parametrize("raises", [True, False])
def test_a_failure_in_any_round_drops_all_samples(raises: bool) -> None:
    answers: list[dict[str, Any]] = [{"value": 1.0}, {"value": 1.0}, {"error": "/some/folder/x.py: boom"}]

    def ask(count: int) -> dict[str, Any]:
        answer = answers.pop(0)
        if raises and "error" in answer:
            raise PeerUnavailableError(str(answer["error"]))
        return answer

    assert Figure(count=1, error="x.py: boom") == run_rounds({"a": ask}, {"a": 1}, 9)["a"]


def test_a_part_that_fails_is_left_out_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    measurement = Measurement(names=[], effort=SUITES["timers"].efforts[1])
    with measurement.or_left_out("part"):
        raise PeerUnavailableError("no room in /some/folder/file.db")

    assert {"part": "no room in file.db"} == measurement.left_out
    assert "LEFT OUT: part" in capsys.readouterr().err


def test_counts_fit_the_checks() -> None:
    """Whole cycles, and odd where a library that never moves would otherwise pass."""
    expected = {"W1": 99, "W3": 96, "W4": 99}
    assert {each: expected.get(each, 100) for each in WORKLOADS} == {each: fitting(each, 100) for each in WORKLOADS}
    assert {"W1": 1, "W2": 10, "W3": 6} == {each: fitting(each, 0) for each in ("W1", "W2", "W3")}


def test_a_library_that_never_moves_is_caught() -> None:
    with pytest.raises(WrongResultError):
        check_toggle("off", fitting("W1", 100))
    with pytest.raises(WrongResultError):
        check_regions(["on", "on", "on", "off"], fitting("W4", 100))
