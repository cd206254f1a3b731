"""The durable part of the benchmark: its goals, its tables, its choices, and what it does when a part is missing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.durable import report, results, servers, suite
from bench.durable.goals import verdicts
from bench.durable.measure import COMMANDS, FULL, QUICK, WORKLOADS, driven, without_folders
from bench.durable.order import EVENTS, STATES, WrongStateError, fleet, sequence, step, tree_cpu_s
from bench.durable.results import DurableRun, Figure
from bench.measure import PeerUnavailableError
from bench.run import is_missed, parts
from tests.unit.bench.durable_runs import figure, good_run


def words(run: DurableRun) -> dict[str, str]:
    """The verdict of each goal, by its goal."""
    return {each.goal: each.word for each in verdicts(run)}


# Goals


def test_a_run_at_the_bars_passes_every_goal() -> None:
    """A bar is met by its own value."""
    assert {"pass"} == set(words(good_run()).values())
    assert 10 == len(words(good_run()))
    assert not is_missed(good_run())


def _slow_files(run: DurableRun) -> None:
    run.figures["seq1"]["interlock-file"] = figure(749, 749, 749)


def _slow_sqlite(run: DurableRun) -> None:
    run.figures["seq1"]["interlock-sqlite"] = figure(499, 499, 499)


def _small_groups(run: DurableRun) -> None:
    run.figures["fleet"]["interlock-sqlite-each"] = figure(1_001, 1_001, 1_001)


def _quick_dbos(run: DurableRun) -> None:
    run.figures["fleet"]["dbos-sqlite"] = figure(41, 41, 41)


def _slow_postgres(run: DurableRun) -> None:
    run.figures["fleet"]["interlock-postgres"] = figure(2_499, 2_499, 2_499)


def _slow_journal(run: DurableRun) -> None:
    run.recovery["file"].journal_ms = [2_000.0]


def _short_journal(run: DurableRun) -> None:
    run.recovery["sqlite"].entries = 99_999


def _slow_snapshot(run: DurableRun) -> None:
    run.recovery["sqlite"].snapshot_ms = [50.0]


def _steep(run: DurableRun) -> None:
    run.scale[-1].recent_us = [126.0] * 3


@pytest.mark.parametrize(
    ("spoil", "goal"),
    [
        (_slow_files, "files, one caller, to raw write + fdatasync"),
        (_slow_sqlite, "SQLite, one caller, to a raw insert per transaction"),
        (_small_groups, "SQLite, 64 callers, to a commit per step"),
        (_quick_dbos, "SQLite, 64 callers, to DBOS on SQLite"),
        (_slow_postgres, "PostgreSQL, 64 callers, to a statement per step"),
        (_slow_journal, "file: 100,000 entries recovered from the journal"),
        (_short_journal, "sqlite: 100,000 entries recovered from the journal"),
        (_slow_snapshot, "sqlite: the same from the snapshot"),
        (_steep, "SQLite: CPU of a step of the newest entities, 1,000,000 in the file to 1,000"),
    ],
)
def test_one_step_beyond_a_bar_is_a_miss(spoil: Callable[[DurableRun], None], goal: str) -> None:
    """Each goal has a bar of its own, and the run as a whole is then not fine."""
    run = good_run()
    spoil(run)

    assert "MISS" == words(run)[goal]
    assert is_missed(run)


def test_rates_are_compared_round_by_round() -> None:
    """A slow spell that hits both engines of one round does not change their ratio."""
    run = good_run()
    run.figures["seq1"]["raw-file"] = figure(1_000, 100, 1_200)
    run.figures["seq1"]["interlock-file"] = figure(800, 80, 960)

    assert 0.8 == pytest.approx(run.ratio("seq1", "interlock-file", "raw-file"))


def test_an_engine_left_out_leaves_its_goal_open_and_says_why() -> None:
    """Faster than an engine that did not run is no claim; a whole run is not fine then, a partial one may be."""
    run = good_run()
    run.left_out = {"dbos-sqlite": "no such module"}
    del run.figures["fleet"]["dbos-sqlite"]
    verdict = next(each for each in verdicts(run) if "DBOS" in each.goal)

    assert ("not measured", "no such module") == (verdict.word, verdict.figure)
    assert is_missed(run)

    run.partial = True

    assert not is_missed(run)


def test_large_workloads_that_did_not_run_are_open() -> None:
    """No recovery, no scale, or one of too few entities: nothing is claimed."""
    run = good_run()
    run.recovery = {}
    run.scale = run.scale[:1]
    open_goals = [goal for goal, word in words(run).items() if word == "not measured"]

    assert 5 == len(open_goals)


def test_a_quick_run_is_not_judged() -> None:
    """Its sizes say nothing about speed."""
    run = good_run()
    run.quick = True

    assert [] == verdicts(run)
    assert not is_missed(run)


# Tables and files


def test_a_run_survives_its_file(tmp_path: Path) -> None:
    """What was kept is what was measured, every sample of it."""
    run = good_run()

    assert run == results.read(results.write(run, tmp_path))


def test_only_a_whole_run_becomes_the_page(tmp_path: Path) -> None:
    """Quick and partial runs are kept under names of their own."""
    quick, partial = good_run(), good_run()
    quick.quick, partial.partial = True, True
    names = {results.write(quick, tmp_path).name, results.write(partial, tmp_path).name}

    assert {"2026-01-31-durable-quick.json", "2026-01-31-durable-partial.json"} == names
    assert results.newest(tmp_path) is None

    whole = results.write(good_run(), tmp_path)

    assert whole == results.newest(tmp_path)


def test_the_page_gives_verdicts_rates_and_spread() -> None:
    """Median, low and high, latencies, CPU time of both sides, the verdict of each goal, and what was left out."""
    run = good_run()
    run.figures["seq1"]["raw-file"] = figure(900, 1_000, 1_100, count=1_234)
    run.left_out = {"temporal": "not installed"}
    page = "\n\n".join(report.section(run))

    assert "| raw file 1.0 | 1,000 | 900..1,100 | 1.00 | 2.00 | 50 + 5 | 1,234 |" in page
    assert "| SQLite, 64 callers, to a commit per step | >= 4x | 4.00x (4,000 to 1,000 steps/s) | pass |" in page
    assert "- Left out: temporal (not installed)." in page
    assert "| file | 100,000 | 1,999 | 49.0 |" in page
    assert "| 1,000,000 | 900 | 125 | 180 |" in page


def test_a_failure_stands_in_its_line() -> None:
    """An engine in the wrong state is not a slow one."""
    run = good_run()
    run.figures["fleet"]["temporal"] = Figure(count=5, error="WrongStateError: pay led to created")

    assert "FAILED: WrongStateError: pay led to created" in report.text(run)


# Choices


def test_only_names_a_part_or_what_is_in_it() -> None:
    """`durable` and `inprocess` choose a part; further names narrow it; other names are of the in-process part."""
    assert [(part, []) for part in ("inprocess", "durable", "shm", "timers", "http", "pages")] == list(
        parts("").items()
    )
    assert {"durable": []} == parts("durable")
    assert {"durable": ["fleet", "raw"]} == parts("durable, fleet,raw")
    assert {"inprocess": []} == parts("inprocess")
    assert {"inprocess": ["W2", "interlock"]} == parts("W2,interlock")


def test_names_stand_for_all_that_begin_with_them() -> None:
    """Workloads, engines and large workloads; none named is all."""
    assert (list(WORKLOADS), list(COMMANDS), list(suite.LARGE)) == suite.chosen([])
    assert (["fleet"], ["raw-file", "raw-sqlite", "raw-postgres", "raw-postgres-step"], []) == suite.chosen(
        ["fleet", "raw"]
    )
    assert ([], [], ["recovery-file", "recovery-sqlite"]) == suite.chosen(["recovery"])
    with pytest.raises(SystemExit, match="nothing durable is named 'cobol'"):
        suite.chosen(["cobol"])


# Workloads


class Remembering:
    """An engine that keeps orders in a dictionary; it may be told to be wrong."""

    def __init__(self, *, wrong: bool = False) -> None:
        self.states: dict[str, str] = {}
        self.keys: list[str] = []
        self.wrong = wrong

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Nothing to close."""

    async def create(self, order: str) -> None:
        """Begin an order."""
        self.states[order] = "created"

    async def send(self, order: str, event: str, key: str) -> str:
        """Give an event to an order."""
        self.keys.append(key)
        state, _ = step(self.states[order], event)
        self.states[order] = "created" if self.wrong else state
        return self.states[order]


async def test_a_fleet_drives_every_order_to_its_end() -> None:
    """Six steps for each, every key used once, however few orders or callers there are."""
    engine = Remembering()
    answer = await fleet(engine, 7, (), clients=3)

    assert ["delivered"] * 7 == list(engine.states.values())
    assert 35 == len(set(engine.keys)) == len(engine.keys)
    assert 42 == answer["steps"]


async def test_a_sequence_drives_one_order() -> None:
    """As many events as asked for, after five that are not measured."""
    engine = Remembering()
    answer = await sequence(engine, 12, ())

    assert 1 == len(engine.states)
    assert 17 == len(set(engine.keys))
    assert 12 == answer["steps"]


async def test_an_engine_in_the_wrong_state_has_failed() -> None:
    """A state that the chart does not have ends the question."""
    with pytest.raises(WrongStateError, match="submit led to created, not to submitted"):
        await fleet(Remembering(wrong=True), 1, ())


def test_the_table_is_the_chart() -> None:
    """Peers step by a table, Interlock by its chart: both say the same about every state and event."""
    from bench.durable.engines.interlock_stores import CHART

    for state in STATES:
        for event in EVENTS:
            snapshot = CHART.start(entity="order/1").snapshot
            for before in EVENTS[: STATES.index(state)]:
                snapshot = CHART.step(snapshot, before).snapshot
            found = CHART.step(snapshot, event)
            try:
                wanted, effects = step(state, event)
            except KeyError:
                assert "applied" != found.outcome
                continue

            assert (wanted,) == found.snapshot.configuration
            assert list(effects) == [each.name for each in found.effects if each.type == "call"]


def test_the_cpu_time_of_a_process_tree_is_found() -> None:
    """Of this process it is something; of none it is nothing."""
    assert 0.0 == tree_cpu_s(())
    assert tree_cpu_s((os.getpid(),)) > 0.0


def test_a_file_system_is_told_by_the_longest_mount(tmp_path: Path) -> None:
    """The innermost mount counts; where the system tells nothing, it is unknown."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"a / ext4 rw\nb {tmp_path.parent.resolve()} tmpfs rw\nshort\n", encoding="ascii")

    assert "tmpfs" == suite.file_system(tmp_path, str(mounts))
    assert "ext4" == suite.file_system(Path("/"), str(mounts))
    assert "unknown" == suite.file_system(tmp_path, str(tmp_path / "none"))


def test_a_server_that_is_not_installed_is_left_out_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run goes on without it, and says why."""

    def missing() -> Path:
        raise PeerUnavailableError("no PostgreSQL server is installed")

    monkeypatch.setattr(servers, "postgres_binaries", missing)
    with servers.started(tmp_path, {"postgres"}) as running:
        assert {} == running.addresses
        assert "{}" == running.arguments("postgres")

    assert {"postgres": "no PostgreSQL server is installed"} == running.left_out
    assert "LEFT OUT: the server of postgres" in capsys.readouterr().err


@pytest.mark.slow
def test_a_quick_run_measures_sqlite_beside_its_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real processes, tiny sizes: the store, a commit per step, raw, recovery and scale; every answer was right."""
    from bench.run import main

    names = "durable,raw-sqlite,interlock-sqlite,recovery-sqlite,scale"
    arguments = ["--quick", "--only", names, "--results", str(tmp_path), "--page", str(tmp_path / "page.md")]

    assert 0 == main([*arguments, "--judge"])

    (kept,) = tmp_path.glob("*-durable-partial.json")
    run = results.read(kept)
    errors = {key: each.error for row in run.figures.values() for key, each in row.items() if each.error is not None}

    assert {} == errors
    assert {"raw-sqlite", "interlock-sqlite", "interlock-sqlite-each"} == set(run.figures["fleet"])
    assert QUICK.entries == run.recovery["sqlite"].entries
    assert list(QUICK.entities) == [each.entities for each in run.scale]
    assert report.text(run).strip() == capsys.readouterr().out.strip()


def test_an_engine_that_fails_once_has_no_figure() -> None:
    """A failure in any round takes the samples of the others with it: a half-broken engine is not measured."""

    class Failing:
        def __init__(self) -> None:
            self.asked = 0

        def ask(self, workload: str, count: int) -> dict[str, object]:
            self.asked += 1
            if self.asked == 2:
                return {"error": "boom"}
            return {"steps": count, "ns": 1e9, "p50_ms": 1, "p99_ms": 1, "cpu_us": 1, "server_cpu_us": 0}

    failing = Failing()
    figures = driven("seq1", {"raw-file": failing}, QUICK)  # type: ignore[dict-item]  # asks as a process does

    assert ("boom", []) == (figures["raw-file"].error, figures["raw-file"].samples)
    assert 2 == failing.asked


def test_what_is_kept_names_no_folder_of_the_machine() -> None:
    """Errors lose the folders of paths; addresses and relative names stay."""
    text = "cannot import 'WHAT' from 'a.b' (/somewhere/main/src/a/b.py) at http://127.0.0.1:80/x/y, see bench/run.py"

    assert "cannot import 'WHAT' from 'a.b' (b.py) at http://127.0.0.1:80/x/y, see bench/run.py" == without_folders(
        text
    )


def test_a_server_that_fails_to_start_is_told_by_its_last_words() -> None:
    """The program and what it said, without its folder; a time limit and an error of the system are told too."""
    failed = subprocess.CalledProcessError(3, ["/somewhere/bin/initdb"], stderr=b"a line\nno locale\n")
    silent = subprocess.CalledProcessError(1, ["initdb"])
    slow = subprocess.TimeoutExpired(["/somewhere/bin/initdb"], 30)

    assert "initdb ended with 3: no locale" == servers._told(failed)
    assert "initdb ended with 1: it ended without a word" == servers._told(silent)
    assert "TimeoutExpired: it took too long" == servers._told(slow)
    assert "PermissionError: Permission denied" == servers._told(PermissionError(13, "Permission denied", "/x/y"))


def test_a_lone_caller_has_more_rounds_and_the_page_says_so() -> None:
    """It waits for every single flush: five rounds are at the mercy of one slow spell."""
    run = good_run()
    for each in run.figures["seq1"].values():
        each.samples *= 3

    assert (15, 5) == (FULL.rounds_of("seq1"), FULL.rounds_of("fleet"))
    assert f"Median of {run.rounds} rounds, of seq1 {3 * run.rounds}." in "\n".join(report.facts(run))
