"""The HTTP part of the benchmark: its goals, its tables, its load, and the judgement of a kill."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.http import report, results, suite
from bench.http.goals import verdicts
from bench.http.kill import judged
from bench.http.load import Answer, Load, Question, Scan, WrongAnswerError, shares
from bench.http.results import HttpRun, Killed, Line, Sample
from bench.results import Machine
from bench.run import is_missed, main, parts

MACHINE = Machine(system="Linux", architecture="x86_64", processors=2, memory_gib=8.0, load_before=0.1, load_after=0.2)


def sample(
    *, rate: float = 1_000.0, p99: float = 50.0, hot: float = 200.0, share: float = 0.8, seconds: float = 60.0
) -> Sample:
    """A load of so many answers a second."""
    late = {"0.5": 20.0, "0.9": 30.0, "0.99": p99, "0.999": 70.0, "1.0": 80.0}
    return Sample(
        answers=int(rate * seconds),
        seconds=seconds,
        cpu_us=300.0,
        load_cpu_us=90.0,
        load_share=share,
        latencies_ms=late,
        own_latencies_ms={"0.99": p99},
        hot_latencies_ms={"0.99": hot},
    )


def killed(**changes: float) -> Killed:
    """A kill after which everything is right."""
    counts: dict[str, Any] = {"lost": 0, "doubled": 0, "unsent": 0, "damaged": 0, "in_doubt": 64, "in_doubt_kept": 3}
    given = {"seconds": 61.0, "acknowledged": 90_000, "back_s": 0.9} | counts | changes
    return Killed(**given)


def run_of(
    *,
    rate: float = 200.0,
    share: float = 0.8,
    minute: Sample | None = None,
    death: Killed | None = None,
    quick: bool = False,
    clients: int = 64,
) -> HttpRun:
    """A whole run, exactly at the bars unless told otherwise."""
    lines = {"hello": Line(samples=[sample(share=share)] * 5), "serve": Line(samples=[sample(rate=rate)] * 5)}
    return HttpRun(
        date="2026-11-16",
        quick=quick,
        partial=False,
        rounds=5,
        clients=clients,
        python="3.11.7",
        commit="abc",
        file_system="ext4",
        stack={"uvicorn": "0.54.0", "asyncio": ""},
        machine=MACHINE,
        left_out={},
        lines=lines,
        minute=minute or sample(),
        killed=death or killed(),
    )


def test_a_run_at_the_bars_passes_every_goal() -> None:
    """A bar is met by its own value."""
    assert ["pass"] * 6 == [each.word for each in verdicts(run_of())]
    assert not is_missed(run_of())


@pytest.mark.parametrize(
    "run",
    [
        run_of(rate=199.0),
        run_of(share=0.81),
        run_of(minute=sample(p99=50.1)),
        run_of(minute=sample(hot=200.1)),
        run_of(death=killed(lost=1)),
        run_of(death=killed(doubled=1)),
        run_of(death=killed(unsent=1)),
        run_of(death=killed(damaged=1)),
    ],
)
def test_each_goal_can_be_missed(run: HttpRun) -> None:
    """By a little; what is lost or doubled has no little."""
    assert 1 == sum(each.met is False for each in verdicts(run))
    assert is_missed(run)


@pytest.mark.parametrize(
    ("run", "unmeasured"),
    [
        (run_of(minute=sample(seconds=59.0)), 2),
        (run_of(clients=63), 2),
        (run_of(death=killed(seconds=59.0)), 2),
        (run_of(death=killed(acknowledged=0)), 2),
        (run_of(death=killed(in_doubt=0)), 2),
    ],
)
def test_a_shorter_load_or_a_kill_that_met_nobody_says_nothing(run: HttpRun, unmeasured: int) -> None:
    """What was not measured is not a pass."""
    assert unmeasured == sum(each.met is None for each in verdicts(run))
    assert is_missed(run)


def test_lines_that_failed_are_not_judged_and_told() -> None:
    """Without one of the two there is no ratio."""
    run = run_of()
    run.lines["serve"] = Line(error="no port")
    run.left_out["serve"] = "no port"

    assert ["no port"] == [each.figure for each in verdicts(run) if each.met is None]
    assert "FAILED: no port" in report.text(run)
    assert [] == verdicts(run_of(quick=True))


def test_a_run_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    """And a quick one never stands for a whole."""
    whole, quick = run_of(), run_of(quick=True)
    paths = [results.write(each, tmp_path) for each in (whole, quick)]

    assert whole == results.read(paths[0])
    assert paths[0] == results.newest(tmp_path)
    assert ["2026-11-16-http.json", "2026-11-16-http-quick.json"] == [each.name for each in paths]


def test_the_tables_show_both_lines_the_minute_and_the_kill() -> None:
    """In the text and on the page."""
    run = run_of()
    page = "\n".join(report.section(run))

    assert ["", *report.NAMES.values(), "the same, 60 s without a pause"] == [
        row[0] for row in report.rounds_table(run)
    ]
    assert "a durable event on SQLite | 200 | 200..200 | 0.20x | 20.0 | 50.0 | 80.0 | 50.0 | 200.0 | 300 | 90 |" in page
    assert "| 61 | 90,000 | 0 | 0 | 0 | 0 | 64 | 3 | 0.9 |" in page
    assert "bench: 6 pass, 0 MISS, 0 not measured" in report.text(run)


def test_a_load_without_shared_entities_has_no_figure_of_them() -> None:
    """A blank is not a zero."""
    run = run_of()
    run.lines["serve"].samples = [msgspec.structs.replace(sample(rate=300.0), hot_latencies_ms={})] * 5

    assert "| 50.0 | 80.0 | 50.0 |  | 300 | 90 |" in "\n".join(report.section(run))


def test_only_chooses_the_part_and_its_loads(capsys: pytest.CaptureFixture[str]) -> None:
    """A name of no load ends the run before anything is started."""
    assert {"http": []} == parts("http")
    assert {"http": ["kill"]} == parts("http, kill")
    with pytest.raises(SystemExit, match="nothing of http is named 'fast'"):
        suite.measured(["fast"], suite.QUICK, quick=True, commit="", computer=lambda: MACHINE)


def test_the_latencies_that_are_told_are_those_of_the_samples() -> None:
    """In milliseconds; the last share is the slowest of all."""
    found = shares(array("d", [each / 1000 for each in reversed(range(1_000))]))

    assert {"0.5": 500, "0.9": 900, "0.99": 990, "0.999": 999, "1.0": 999} == {
        share: round(each) for share, each in found.items()
    }
    assert {} == shares(array("d"))


# The judgement of a kill


def told(*scans: Scan, journals: dict[str, list[str]], doubts: int = 0) -> Killed:
    """What is found of these receipts in these journals."""
    answer = Answer(
        answers=len(scans),
        wall_s=1.0,
        server_cpu_s=0.0,
        own_cpu_s=0.0,
        latencies_ms={},
        doubts=[("parcel/a", "k")] * doubts,
        scans=list(scans),
    )
    return judged(answer, journals, 0)


def test_receipts_that_are_in_the_journal_at_their_versions_are_right() -> None:
    """Entry 1 is the creation, so the first event is version 2; one in doubt may have been kept before."""
    found = told(
        Scan("parcel/a", "a-1", 2, "applied"),
        Scan("parcel/a", "a-2", 3, "duplicate"),
        Scan("parcel/b", "b-1", 2, "applied"),
        journals={"parcel/a": ["a-1", "a-2"], "parcel/b": ["b-1"]},
        doubts=2,
    )

    assert (3, 0, 0, 0) == (found.acknowledged, found.lost, found.doubled, found.unsent)
    assert (2, 1) == (found.in_doubt, found.in_doubt_kept)


@pytest.mark.parametrize(
    "scan",
    [
        Scan("parcel/a", "a-3", 4, "applied"),
        Scan("parcel/a", "a-1", 3, "applied"),
        Scan("parcel/a", "a-1", 1, "applied"),
        Scan("parcel/b", "a-1", 2, "applied"),
    ],
)
def test_a_receipt_that_the_journal_does_not_bear_out_is_a_loss(scan: Scan) -> None:
    """Behind its end, at another version, before its beginning, in another entity."""
    assert 1 == told(scan, journals={"parcel/a": ["a-1", "a-2"]}).lost


def test_an_entry_that_stands_twice_or_that_nobody_sent_is_found() -> None:
    """In one journal or in two."""
    once = Scan("parcel/a", "a-1", 2, "applied")

    assert 1 == told(once, journals={"parcel/a": ["a-1", "a-1"]}).doubled
    assert 1 == told(once, journals={"parcel/a": ["a-1"], "parcel/b": ["a-1"]}).doubled
    assert 1 == told(once, journals={"parcel/a": ["a-1", "other"]}).unsent


# The load

Reply = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


def http(body: bytes, status: bytes = b"200 OK") -> bytes:
    """An answer as it goes over the wire."""
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


async def loaded(reply: Reply, *, clients: int = 1, answers: int = 3, resends: bool = False) -> tuple[Answer, int]:
    """What a load finds at a server that replies like this; and how often half was told."""
    halves: list[int] = []
    serving: set[asyncio.Task[Any] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.rpartition(b"Content-Length: ")[2])
                await reply(head + await reader.readexactly(length), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone, or the reply was to let it go
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        question = Question(
            port=server.sockets[0].getsockname()[1],
            server_pid=0,
            bearer="ilk",
            name="t",
            clients=clients,
            seconds=20.0,
            answers=answers,
            hot=1,
            hot_every=2,
            resends=resends,
        )
        try:
            return await Load(question, lambda: halves.append(1)).run(), len(halves)
        finally:
            await asyncio.gather(*(each for each in serving if each is not None))


async def test_the_load_sends_keys_to_its_own_and_to_shared_entities() -> None:
    """Every key once, and half is told once."""
    asked: list[bytes] = []

    async def reply(request: bytes, writer: asyncio.StreamWriter) -> None:
        asked.append(request)
        writer.write(http(b'{"outcome":"applied","version":2}'))

    answer, halves = await loaded(reply, answers=4)

    assert [b"own-0", b"hot-0", b"own-0", b"hot-0"] == [
        each.partition(b" HTTP")[0].rpartition(b"/")[2] for each in asked
    ]
    assert [b"t-0-1", b"t-0-2", b"t-0-3", b"t-0-4"] == [each.rpartition(b'"key":"')[2][:-2] for each in asked]
    assert (4, 1, [], None) == (answer.answers, halves, answer.doubts, answer.back_s)
    assert all(b"Authorization: Bearer ilk\r\n" in each for each in asked)


async def test_an_answer_in_pieces_is_read_whole() -> None:
    """Wherever it is cut."""
    whole = http(b'{"outcome":"applied","version":7}')

    async def reply(request: bytes, writer: asyncio.StreamWriter) -> None:
        for position in range(len(whole)):
            writer.write(whole[position : position + 1])
            await writer.drain()
            await asyncio.sleep(0)

    answer, _ = await loaded(reply)

    assert 3 == answer.answers


@pytest.mark.parametrize(
    "wrong",
    [
        http(b'{"code":"internal"}', b"500 Internal Server Error"),
        http(b'{"outcome":"rejected","version":2}'),
        http(b'{"outcome":"duplicate","version":2}'),
        http(b"applied"),
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
async def test_a_wrong_answer_ends_the_load(wrong: bytes) -> None:
    """An error is not fast; what was never in doubt cannot be a duplicate."""

    async def reply(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(wrong)

    with pytest.raises(WrongAnswerError):
        await loaded(reply)


async def test_a_broken_connection_ends_a_load_that_does_not_expect_it() -> None:
    """A server that closes in between is not measured."""

    async def reply(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.close()

    with pytest.raises(WrongAnswerError, match="broke a connection"):
        await loaded(reply)


async def test_what_is_in_doubt_is_sent_again_under_its_key() -> None:
    """Once in doubt, a duplicate is as good as applied; the time it took counts for nothing."""
    keys: list[bytes] = []

    async def reply(request: bytes, writer: asyncio.StreamWriter) -> None:
        keys.append(request.rpartition(b'"key":"')[2][:-2])
        if len(keys) in (2, 3):
            writer.close()
            return
        writer.write(http(b'{"outcome":"%b","version":2}' % (b"duplicate" if len(keys) == 4 else b"applied")))

    answer, _ = await loaded(reply, answers=3, resends=True)

    assert [b"t-0-1", b"t-0-2", b"t-0-2", b"t-0-2", b"t-0-3"] == keys
    assert [("parcel/hot-0", "t-0-2")] == answer.doubts
    assert ["applied", "duplicate", "applied"] == [each.outcome for each in answer.scans]
    assert answer.back_s is not None


# All of it


@pytest.mark.slow
def test_both_servers_are_measured_for_real() -> None:
    """As processes, in turn; every request of the load is answered."""
    effort = suite.Effort(
        rounds=1, seconds=0.2, minute_seconds=0.2, kill_seconds=1.0, warm_seconds=0.1, clients=4, hot=1
    )

    run = suite.measured(["hello", "serve"], effort, quick=True, commit="", computer=lambda: MACHINE)

    assert ({}, ["hello", "serve"]) == (run.left_out, list(run.lines))
    assert all(each.samples[0].answers > 0 for each in run.lines.values())
    assert {"starlette", "uvicorn", "asyncio"} < set(run.stack)


def test_a_server_that_does_not_start_is_left_out_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are measured, and its last words are kept without the machine's folders."""
    monkeypatch.setattr("bench.http.servers.CHART", tmp_path / "missing.yaml")
    monkeypatch.setattr("bench.http.suite.prepared", lambda *_: None)

    assert 0 == main(["--quick", "--only", "http,minute", "--results", str(tmp_path), "--page", str(tmp_path / "page")])

    (kept,) = tmp_path.glob("*-http-partial.json")
    assert ["minute"] == list(results.read(kept).left_out)
    assert str(tmp_path) not in kept.read_text(encoding="utf-8")
    assert "FAILED: http minute" in capsys.readouterr().err
