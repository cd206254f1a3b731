"""`interlock effects`: how work stands, and what a person may do about it."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.cli.commands.entities import effects as command
from interlock.cli.output.terminal import Terminal
from interlock.errors import RejectedError
from interlock.model.journal.work import CHILD_WORK, Work, WorkDelta, WorkId
from interlock.ports.clock import SystemClock
from interlock.ports.work import Settlement, WorkQuery, WorkRow
from interlock.stores.memory import MemoryStore
from interlock.stores.sqlite.store import open_store
from interlock.testing.store_suite.samples import SampleEntity
from tests.support.audit import audit_rows
from tests.support.cli import Caller

NOW = 1_700_000_000_000
STORE = "sqlite:///work.db"
RETRY = {"max": 5, "backoff": "1s", "jitter": "none", "on": None}
GONE = {"code": "ConnectionError", "message": "gone\naway", "attempts": 2, "done": "unknown"}


LISTED = """\
order/A-1/1/0  waits                 overdue by 1m                                  1m old
order/A-1/1/1  held                  running on wwwwwwwwwwww, lease 30s             1m old
order/A-1/1/2  fails                 retry 2/5 in 3s                                1m old  ConnectionError: gone\\naway
order/A-1/1/3  mail                  dead letter for 2h                             1m30s old  ConnectionError
order/A-1/1/4  child network         waiting for child network/i4-de1295ca80a17a95  1m old
order/A-1/1/5  child storage         due in 1s; no handler                          1m old  kind.unknown: no `storage`
order/A-1/1/6  left                  cancelled                                      1m old
order/A-1/1/8  outbox entity/lamp/1  pending                                        5s old
order/A-1/1/9  outbox entity/lamp/2  queued behind earlier messages                 5s old
order/A-1/1/7  timer after.1h.new    due in 1h                                      -
order/B/2/1/0  mail                  dead letter for 2h                             1m old  ConnectionError
"""


class FixedClock(SystemClock):
    """It is always the same moment."""

    def now_ms(self) -> int:
        return NOW


def _invoke(ordinal: int, name: str, **body: Any) -> Work:
    return Work(WorkId("effect", 1, ordinal), name, {"id": f"i{ordinal}", **body}, NOW - 60_000)


async def _kept() -> None:
    """Work in every state that it can be in."""
    born = (
        _invoke(0, "waits", input={"secret": "s3cret"}),
        _invoke(1, "held"),
        _invoke(2, "fails", retry=RETRY),
        Work(WorkId("effect", 1, 3), "mail", {"name": "mail"}, NOW - 90_000),
        _invoke(4, CHILD_WORK, src="network"),
        _invoke(5, CHILD_WORK, src="storage"),
        _invoke(6, "left"),
        Work(WorkId("timer", 1, 7), "after.1h.new", {"event": "late"}, NOW + 3_600_000),
        Work(WorkId("outbox", 1, 8), "entity/lamp/1", {"event": {"name": "touched"}}, NOW - 5_000),
        Work(WorkId("outbox", 1, 9), "entity/lamp/2", {"event": {"name": "touched"}}, NOW - 5_000),
    )
    store = open_store(STORE)
    try:
        await store.append(replace(SampleEntity("order/A-1").create(), work=WorkDelta(born)))
        await store.append(replace(SampleEntity("order/B/2").create(), work=WorkDelta((_invoke(0, "mail"),))))

        async def claimed(name: str) -> Any:
            return (await store.claim("effect", (name,), owner="w" * 32, now_ms=NOW, until_ms=NOW + 30_000, limit=1))[0]

        async def settled(name: str, verdict: Any, **facts: Any) -> None:
            await store.settle((Settlement(await claimed(name), verdict, **facts),), now_ms=NOW - 7_200_000)

        await claimed("held")
        await settled("fails", "again", next_ms=NOW, error=GONE)
        await settled("fails", "again", next_ms=NOW + 3_000, error=GONE)
        for _ in range(2):
            await settled("mail", "dead", error={**GONE, "message": ""})
        children = await store.claim("effect", (CHILD_WORK,), owner="w1", now_ms=NOW, until_ms=NOW + 30_000, limit=2)
        missing = {"code": "kind.unknown", "message": "no `storage`"}
        await store.settle(
            (
                Settlement(children[0], "wait"),
                Settlement(children[1], "again", NOW + 1_000, missing, without_failure=True, started=False),
            ),
            now_ms=NOW,
        )
        await claimed("left")
        sample = SampleEntity("order/A-1")
        sample.create()
        await store.append(replace(sample.step(key="k"), work=WorkDelta(cancelled=(WorkId("effect", 1, 6),))))
    finally:
        await store.close()


@pytest.fixture
def work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with work in every state."""
    monkeypatch.setattr(command, "SystemClock", FixedClock)
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    asyncio.run(_kept())
    return folder / "work.db"


def test_work_is_listed_with_its_status(call: Caller, work: Path) -> None:
    ended = call("effects", "ls", STORE)

    assert 0 == ended.code
    assert [
        "2 dead letters need attention: interlock effects retry KEY, or drop KEY",
        "no handler for storage: start a worker that has it, with interlock run",
    ] == ended.err.splitlines()
    assert LISTED == ended.out


def test_work_is_listed_by_filter_and_page_by_page(call: Caller, work: Path) -> None:
    def keys(*options: str) -> list[str]:
        return [line.split()[0] for line in call("effects", "ls", STORE, *options).out.splitlines()]

    first = call("effects", "ls", STORE, "--limit", "10")
    after = first.err.partition("more: --after '")[2].removesuffix("'\n")

    assert ["order/A-1/1/3", "order/B/2/1/0"] == keys("--dead")
    assert ["order/A-1/1/3"] == keys("--name", "mail", "--entity", "order/A-1")
    assert ["order/A-1/1/7"] == keys("--lane", "timer")
    assert ["order/B/2/1/0"] == keys("--after", after)
    assert "no dead letters\n" == call("effects", "ls", STORE, "--dead", "--name", "x").err


def test_the_handlers_that_are_missing_are_named(
    call: Caller, work: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folder / "effects_of_mine.py").write_text(
        'import interlock\nlamp = interlock.loads("{interlock: 1, kind: k, states: {a: {entry: [waits]}}}")\n'
        'lamp.handler("waits")(lambda attempt: None)\n'
    )
    said = call("effects", "ls", STORE, "--chart", "effects_of_mine:lamp").out.splitlines()

    assert [False, True] == ["no handler" in said[0], "no handler" in said[3]]


def test_programs_get_json_without_what_may_be_secret(call: Caller, work: Path) -> None:
    ended = call("effects", "ls", STORE, "--json")
    rows = json.loads(ended.out)["rows"]

    assert "s3cret" not in ended.out
    assert {
        "key": "order/A-1/1/2",
        "entity": "order/A-1",
        "lane": "effect",
        "version": 1,
        "ordinal": 2,
        "name": "fails",
        "state": "retry",
        "missing": False,
        "attempts": 2,
        "failures": 2,
        "next_ms": NOW + 3_000,
        "owner": None,
        "dead_ms": None,
        "cancelled": False,
        "error": GONE,
    } == rows[2]
    words = "pending running retry dead waiting_child scheduled cancelled pending queued scheduled"
    assert words.split() == [each["state"] for each in rows[:-1]]


def _rows(**query: Any) -> list[Any]:
    async def asked() -> list[Any]:
        store = open_store(STORE)
        try:
            return list((await store.list_work(WorkQuery(**query))).rows)
        finally:
            await store.close()

    return asyncio.run(asked())


def _audit() -> list[tuple[str, str, str | None]]:
    async def asked() -> list[tuple[str, str, str | None]]:
        store = open_store(STORE)
        try:
            found = await audit_rows(store)
            return [(each.event, each.reason, each.actor) for each in reversed(found)]
        finally:
            await store.close()

    return asyncio.run(asked())


def test_a_dead_letter_is_retried_under_its_key(call: Caller, work: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="interlock.audit"):
        ended = call("effects", "retry", STORE, "order/B/2/1/0", "--principal", "bob")
    (row,) = _rows(entity="order/B/2")

    assert (0, "order/B/2/1/0 retried\n") == (ended.code, ended.out)
    assert (NOW, 0, 0, None, None) == (row.next_ms, row.attempts, row.failures, row.dead_ms, row.error)
    assert [("_work.retried", "order/B/2/1/0 mail (ConnectionError)", "bob")] == _audit()
    assert [("order/B/2/1/0", "bob")] == [(vars(each)["key"], vars(each)["principal"]) for each in caplog.records]


def test_a_dead_letter_is_dropped(call: Caller, work: Path) -> None:
    ended = call("effects", "drop", STORE, "order/A-1/1/3")

    assert (0, "order/A-1/1/3 dropped\n") == (ended.code, ended.out)
    assert [] == _rows(entity="order/A-1", name="mail")
    assert [("_work.dropped", "order/A-1/1/3 mail (ConnectionError)", "ada")] == _audit()


@pytest.mark.parametrize("act", ["retry", "drop"])
def test_work_that_is_not_dead_needs_force(call: Caller, work: Path, act: str) -> None:
    ended = call("effects", act, STORE, "order/A-1/1/2")
    forced = call("effects", act, STORE, "order/A-1/1/2", "--force")
    rows = _rows(entity="order/A-1", name="fails")

    assert (5, True) == (ended.code, "`order/A-1/1/2` is not a dead letter" in ended.err)
    assert 0 == forced.code
    assert ([(NOW, 2)] if act == "retry" else []) == [(each.next_ms, each.failures) for each in rows]


def test_force_breaks_a_lease(call: Caller, work: Path) -> None:
    ends = [call("effects", "retry", STORE, "order/A-1/1/1", *more) for more in ((), ("--force",))]
    (row,) = _rows(entity="order/A-1", name="held")

    assert [5, 0] == [each.code for each in ends]
    assert (None, NOW) == (row.owner, row.next_ms)


def test_work_that_waits_for_other_work_is_not_retried(call: Caller, work: Path) -> None:
    ends = [call("effects", "retry", STORE, f"order/A-1/1/{each}", "--force") for each in (4, 6, 9)]

    assert [5] * 3 == [each.code for each in ends]


@pytest.mark.parametrize("act", ["retry", "drop"])
def test_all_dead_letters_are_only_counted_without_yes(call: Caller, work: Path, act: str) -> None:
    verb = {"retry": "retried", "drop": "dropped"}[act]
    asked = call("effects", act, STORE, "--all", "--name", "mail")
    before = len(_rows(dead=True))
    done = call("effects", act, STORE, "--all", "--name", "mail", "--yes", "-v")

    assert (1, f"2 dead letters would be {verb}; add --yes to do it\n", 2) == (asked.code, asked.out, before)
    assert f"order/A-1/1/3 {verb}\norder/B/2/1/0 {verb}\n2 dead letters {verb}\n" == done.out
    assert ([], 2) == (_rows(dead=True), len(_audit()))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["retry", STORE], 2, "give keys of work"),
        (["drop", STORE, "order/A-1/1/3", "--all"], 2, "give keys of work"),
        (["drop", STORE, "--all", "--force"], 2, "--force needs a key"),
        (["retry", STORE, "order/A-1/x/3"], 2, "invalid work key"),
        (["retry", STORE, "order/1/3"], 2, "invalid work key"),
        (["retry", STORE, "order/A-1/1/99"], 6, "unknown work `order/A-1/1/99`"),
        (["ls", STORE, "--entity", "order"], 2, "kind/id"),
        (["ls", STORE, "--after", "nonsense"], 2, "invalid list cursor"),
        (["ls", STORE, "--after", '["order","A-1","effect",99999999999999999999,0]'], 2, "invalid list cursor"),
        (["ls", "sqlite:///nowhere.db"], 6, "store not found"),
        ([], 2, "missing command"),
    ],
)
def test_a_wrong_call_changes_nothing(call: Caller, work: Path, words: list[str], code: int, said: str) -> None:
    before = _rows()
    ended = call("effects", *words)

    assert (code, True) == (ended.code, said in ended.err)
    assert before == _rows()


def test_a_store_without_work_is_refused(call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(MemoryStore):
        work = None  # type: ignore[assignment]  # the point

    async def opened(url: str) -> Any:
        return Bare()

    monkeypatch.setattr(command, "open_store_url", opened)
    ended = call("effects", "ls", "memory:")

    assert (2, True) == (ended.code, ended.err.startswith("error: this store does not run effects\nhint: "))


async def test_a_rejected_row_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [WorkRow(f"order/{each}", Work(WorkId("effect", 2, 0), "mail", {}, 0), 1, 1, None) for each in range(3)]
    done: list[str] = []

    async def drop(row: WorkRow) -> None:
        if row.entity == "order/1":
            raise RejectedError("it must stay", code="work.compensation")
        done.append(row.entity)

    code = await command.act_on_rows(Terminal(), rows, drop, "dropped")
    printed = capsys.readouterr()

    assert (5, ["order/0", "order/2"]) == (code, done)
    assert ("2 dead letters dropped\n", True) == (printed.out, "it must stay" in printed.err)
