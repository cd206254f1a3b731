"""The HTTP part of the benchmark: its goals, its tables, its load, and the judgement of a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench.http import servers, suite
from bench.http.kill import Killed, judged
from bench.http.load import Answer, Load, Question, Scan, WrongAnswerError
from bench.measure import Measurement

# The judgement of a kill


def judge_scans(*scans: Scan, journals: dict[str, list[str]], doubts: int = 0) -> Killed:
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
    found = judge_scans(
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
    """Behind its end, at another version, before the first event, in another entity."""
    assert 1 == judge_scans(scan, journals={"parcel/a": ["a-1", "a-2"]}).lost


def test_an_entry_that_stands_twice_or_that_nobody_sent_is_found() -> None:
    """In one journal or in two."""
    once = Scan("parcel/a", "a-1", 2, "applied")

    assert 1 == judge_scans(once, journals={"parcel/a": ["a-1", "a-1"]}).doubled
    assert 1 == judge_scans(once, journals={"parcel/a": ["a-1"], "parcel/b": ["a-1"]}).doubled
    assert 1 == judge_scans(once, journals={"parcel/a": ["a-1", "other"]}).unsent


# The load

Reply = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


def http(body: bytes, status: bytes = b"200 OK") -> bytes:
    """An answer as it goes over the wire."""
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


async def loaded(reply: Reply, *, clients: int = 1, answers: int = 3, resends: bool = False) -> tuple[Answer, int]:
    """What a load finds at a server that replies like this; and how often it reported half."""
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
            pass  # the client has disconnected, or the reply was to disconnect it
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
    """Every key once, and half is reported once."""
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


# Failures


def test_a_server_that_does_not_start_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its error contains no folder of this machine."""
    monkeypatch.setattr(servers, "CHART", tmp_path / "missing.yaml")
    monkeypatch.setattr(suite, "prepared", lambda *_: None)
    measurement = Measurement(names=["minute"], effort=suite.QUICK)
    suite.run(measurement)

    assert ["minute"] == list(measurement.left_out)
    assert str(tmp_path) not in measurement.left_out["minute"]
    assert "LEFT OUT: minute" in capsys.readouterr().err
