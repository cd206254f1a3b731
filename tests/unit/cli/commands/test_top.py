"""`interlock top` and `interlock stuck`: the whole store on one screen, and what on it needs somebody."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.cli.commands.stuck import is_waiting
from interlock.cli.commands.top import fleet_lines, short
from interlock.cli.output.terminal import Part
from interlock.model.journal.work import CHILD_WORK, Work, WorkId
from interlock.observe.fleet import FleetSummary, KindSummary, StateSummary, fleet, fleet_rate, stuck_entities
from interlock.ports.statistics import MinuteRates
from interlock.ports.store import EntityQuery
from interlock.ports.work import WorkRow
from interlock.testing.clock import VirtualClock
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.unit.cli.calls import Caller

HOUR_MS = 3_600_000
STORE = "sqlite:///orders.db"
ORDER = """
interlock: 1
kind: order
revision: 1.0.0
events:
  pay: {roles: [customer]}
  look: {roles: [support]}
initial: unpaid
states:
  unpaid: {on: {pay: charging}}
  charging:
    expect: {within: 1m}
    invoke: {id: charge, src: payment.charge, onDone: paid, onError: declined}
    on: {look: declined}
  paid: {type: final}
  declined: {expect: {within: 30m}, on: {pay: charging}}
"""
CHARTED = ("--chart", "order.yaml")
TRIP = """
interlock: 1
kind: trip
revision: 1.0.0
states:
  leg:
    expect: {within: 1m}
    on: {arrived: home}
    states:
      drive: {states: {fast: {}}}
  home: {type: final, expect: {within: 1m}}
"""
PAIR = """
interlock: 1
kind: pair
revision: 1.0.0
initial: both
states:
  both:
    type: parallel
    onDone: home
    states:
      one: {initial: waiting, states: {waiting: {on: {left: done}}, done: {type: final}}}
      two: {initial: waiting, states: {waiting: {on: {right: done}}, done: {type: final}}}
  home: {type: final}
"""
NOW = 1_700_000_000_000
ADA = {"id": "ada", "roles": ["customer"]}
JOAN = {"id": "joan", "roles": ["support"]}

FLEET = FleetSummary(
    (
        KindSummary(
            "order",
            "3.1+0a1b2c",
            10_012_345,
            False,
            1_842.4,
            0.003,
            1_318,
            False,
            (
                StateSummary("awaiting_payment", 301_000, 39_960_000),
                StateSummary("paid", 204_551, 7_200_000, 0),
                StateSummary("refunding", 4_012, 86_040_000, 1_204),
                StateSummary("waiting_for_a_person_of_support", 1, None, 114, True),
                StateSummary("shipped", 9_502_781, is_final=True),
            ),
        ),
        KindSummary("vm", None, None, states=(StateSummary("live", 7),), steps_per_second=0.04),
    ),
    0,
    1,
)
AT_80 = """\
order 3.1   10.0M entities   1,842 steps/s   conflicts 0.3%   ⚠ 1,318 stuck
  awaiting_payment               ████████   301k  p95 ≤11h6m
  paid                           █████▍     205k  p95 ≤2h
  refunding                      ▏         4,012  p95 ≤23h54m ⚠ 1,204
  waiting_for_a_person_of_suppo…               1              ⚠ 114+
  ended: shipped 9.5M

vm   0.0 steps/s   no chart here: name it with --chart
  live ████████      7

✗ 1 dead letter: interlock effects ls --dead
"""
AT_120 = """\
order 3.1   10.0M entities   1,842 steps/s   conflicts 0.3%   ⚠ 1,318 stuck
  awaiting_payment     ████████   301k  p95 ≤11h6m            paid                 █████▍     205k  p95 ≤2h
  refunding            ▏         4,012  p95 ≤23h54m ⚠ 1,204   waiting_for_a_perso…               1              ⚠ 114+
  ended: shipped 9.5M

vm   0.0 steps/s   no chart here: name it with --chart
  live ████████      7

✗ 1 dead letter: interlock effects ls --dead
"""


def text(width: int) -> str:
    """The screen without colours."""
    return "".join("".join(map(_plain, line)) + "\n" for line in fleet_lines(FLEET, width))


def _plain(part: Part) -> str:
    return part if isinstance(part, str) else part[0]


@pytest.fixture
def orders(folder: Path) -> Path:
    """Four orders: one waits for money, two for a charge that nobody performs, one for a person; three kept waiting."""
    (folder / "order.yaml").write_text(ORDER, encoding="utf-8")
    clock = VirtualClock(interlock_now() - 3 * HOUR_MS)
    chart = interlock.load("order.yaml")
    with interlock.open(STORE, charts=[chart], clock=clock, work=False) as runtime:
        for number in (1, 2, 3):
            runtime.create(f"order/{number}")
        clock.time_ms += HOUR_MS
        runtime.send("order/2", "pay", principal=ADA)
        runtime.send("order/3", "pay", principal=ADA)
        runtime.send("order/2", "look", principal=JOAN)
        clock.time_ms += 2 * HOUR_MS
        runtime.create("order/4")
        runtime.send("order/4", "pay", principal=ADA)
    return folder


def interlock_now() -> int:
    """The clock that the commands go by."""
    from interlock.ports.clock import SystemClock

    return SystemClock().now_ms()


@pytest.mark.parametrize(("width", "screen"), [(80, AT_80), (120, AT_120)])
def test_the_screen_fits_its_width(width: int, screen: str) -> None:
    """As many states beside each other as there is room for."""
    assert screen == text(width)
    assert max(map(len, text(width).splitlines())) <= width


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (10_000, "10.0k"),
        (99_949, "99.9k"),
        (99_950, "100k"),
        (999_499, "999k"),
        (999_500, "1.0M"),
        (10**9, "1.0G"),
        (10**13, "10000G"),
    ],
)
def test_numbers_stay_short(count: int, told: str) -> None:
    """Six characters, however many there are."""
    assert told == short(count)


def test_steps_a_second_are_those_of_the_last_minute() -> None:
    """The minute before counts for the part of it that is less than a minute ago."""
    minutes = (MinuteRates(0, 10_000, 0, 0), MinuteRates(60_000, 600, 0, 0), MinuteRates(120_000, 300, 100, 0))

    assert (10.0, 1 / 7) == fleet_rate(minutes, 150_000)
    assert (0.0, 0.0) == fleet_rate((), 150_000)


def test_top_tells_the_moment_where_there_is_no_terminal(call: Caller, orders: Path) -> None:
    """Populations, what is stuck, and what is not: a state without `expect` never is."""
    ended = call("top", STORE, *CHARTED)
    lines = ended.out.splitlines()

    assert 0 == ended.code, ended.err
    assert lines[0].startswith("order 1.0.0   4 entities   ")
    assert lines[0].endswith("⚠ 2 stuck")
    assert [("unpaid", "1"), ("charging", "2"), ("declined", "1")] == [
        (each.split()[0], each.replace("█", " ").replace("▌", " ").split()[1]) for each in lines[1:4]
    ]


def test_colour_changes_no_text(call: Caller, orders: Path) -> None:
    """It comes when it is wanted, and only adds to what is there."""
    plain, painted = (call("top", STORE, *CHARTED, "--color", color).out for color in ("never", "always"))

    assert "\x1b[" in painted
    assert plain == re.sub(r"\x1b\[[\d;]*m", "", painted)


def test_a_shell_completes_the_new_names() -> None:
    """They are in the table of commands, as all others."""
    asked = {**os.environ, "_INTERLOCK_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    found = set()
    for letters in ("d", "n", "s", "t"):
        command = [sys.executable, "-m", "interlock"]
        ended = subprocess.run(
            command, env={**asked, "COMP_WORDS": f"interlock {letters}"}, capture_output=True, text=True, check=False
        )
        found |= {line.removeprefix("plain,") for line in ended.stdout.splitlines()}

    assert {"demo", "doctor", "new", "stuck", "top"} <= found


def test_top_without_a_chart_still_tells_populations(call: Caller, orders: Path) -> None:
    """And that the chart is not here."""
    ended = call("top", STORE)

    assert "no chart here" in ended.out
    assert {"unpaid", "charging", "declined"} == {each.split()[0] for each in ended.out.splitlines()[1:] if each}


def test_top_as_json_is_one_document(call: Caller, orders: Path) -> None:
    """For programs."""
    found = json.loads(call("top", STORE, *CHARTED, "--json").out)
    (order,) = found["kinds"]

    assert (4, 2, 0) == (order["entities"], order["stuck"], found["dead"])
    assert [1, None, 1] == [
        next(each for each in order["states"] if each["state"] == state)["stuck"]
        for state in ("charging", "unpaid", "declined")
    ]


def test_top_works_on_a_folder_of_files(call: Caller, folder: Path) -> None:
    """Where no counters are kept, entities are counted, and rates are not told."""
    call("create", "file:lamps", "lamp/1", "--chart", "lamp.yaml")
    ended = call("top", "file:lamps", "--chart", "lamp.yaml")

    assert (0, "lamp ") == (ended.code, ended.out[:5])
    assert "1 entity\n" in ended.out
    assert "steps/s" not in ended.out


def test_only_what_ends_the_whole_entity_counts_as_ended(call: Caller, folder: Path) -> None:
    """One region is at its end; the entity goes on."""
    (folder / "pair.yaml").write_text(PAIR, encoding="utf-8")
    call("create", "sqlite:///pairs.db", "pair/1", "--chart", "pair.yaml")
    call("send", "sqlite:///pairs.db", "pair/1", "left", "--chart", "pair.yaml")
    going = call("top", "sqlite:///pairs.db", "--chart", "pair.yaml").out
    call("send", "sqlite:///pairs.db", "pair/1", "right", "--chart", "pair.yaml")
    ended = call("top", "sqlite:///pairs.db", "--chart", "pair.yaml").out

    assert (True, False) == ("  both.one.done" in going, "ended" in going), going
    assert "  ended: home 1\n" in ended


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("top", "sqlite:///none.db"), 6),
        (("stuck", "sqlite:///none.db"), 6),
        (("top", "sqlite:///orders.db", "ordre"), 6),
        (("top", "sqlite:///orders.db", "--every", "1ms"), 2),
        (("top", "sqlite:///orders.db", "a", "b"), 2),
        (("stuck", "sqlite:///orders.db", "ordre", "--chart", "order.yaml"), 6),
    ],
)
def test_wrong_calls_are_told_and_make_nothing(call: Caller, orders: Path, words: tuple[str, ...], code: int) -> None:
    """Looking at what is not there makes nothing."""
    assert code == call(*words).code
    assert not (orders / "none.db").exists()


def test_a_terminal_is_drawn_on_until_interrupted(orders: Path) -> None:
    """On the other screen, which goes away; Ctrl-C ends it with 130."""
    master, slave = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-m", "interlock", "top", STORE, *CHARTED, "--every", "200ms"],
        stdout=slave,
        stderr=subprocess.PIPE,
        env=environment,
    )
    try:
        screen = drawn(master, process, twice="⚠ 2 stuck")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        screen += drawn(master, process)
    finally:
        process.kill()
        process.communicate()
        os.close(slave)
        os.close(master)

    assert (130, b"interrupted\n") == (process.returncode, said)
    assert "\x1b[?1049h" in screen
    assert screen.count("\x1b[?1049l") == 1


def drawn(master: int, process: subprocess.Popen[bytes], twice: str | None = None) -> str:
    """What a terminal was told: until a text stands there twice, or all that there is."""
    found = b""
    while twice is None or found.decode(errors="replace").count(twice) < 2:
        wait = 0.2 if twice is None else 30
        if not select.select([master], [], [], wait)[0]:
            break
        found += os.read(master, 65_536)
    return found.decode(errors="replace")


# What is stuck


def test_the_latest_comes_first_with_what_to_do_next(call: Caller, orders: Path) -> None:
    """By how long it is late, not by how long it rests; then work that nobody takes up."""
    ended = call("stuck", STORE, *CHARTED)
    lines = ended.out.splitlines()

    assert 0 == ended.code, ended.err
    assert [
        "longer than expected",
        "  order/3  charging  for 2h  expected 1m   takes look",
        "  order/2  declined  for 2h  expected 30m  takes pay",
        "  next: interlock show order/3, then interlock send order/3 look --principal you:support",
        "due, and nobody takes it up",
    ] == lines[:5]
    assert lines[5].startswith("  order/3/2/0  payment.charge  due for 2h, nobody took it up")
    assert "  next: interlock run, with these handlers and the charts of these entities" == lines[-1]


def test_stuck_as_json_names_all_three(call: Caller, orders: Path) -> None:
    """One document; what an effect was given stays out of it."""
    found = json.loads(call("stuck", STORE, "order", *CHARTED, "--json", "--limit", "1").out)

    assert {"now_ms", "entities", "work", "dead", "partial"} == set(found)
    assert [("order/3", 60_000)] == [(each["entity"], each["expect_ms"]) for each in found["entities"]]
    assert ["order/3/2/0"] == [each["key"] for each in found["work"]]
    assert [] == found["dead"]


@pytest.mark.parametrize(
    ("row", "waits"),
    [
        ({"next_ms": NOW - 9_000}, False),
        ({"next_ms": NOW - 11_000}, True),
        ({"next_ms": NOW - 11_000, "failures": 1}, True),
        ({"next_ms": NOW - 11_000, "owner": "w"}, True),
        ({"next_ms": NOW + 30_000, "owner": "w"}, False),
        ({"next_ms": NOW - 11_000, "dead_ms": NOW}, False),
        ({"next_ms": NOW - 11_000, "cancelled": True}, False),
        ({"next_ms": None}, False),
        ({"next_ms": NOW + 60_000}, False),
        ({"next_ms": NOW + 500, "due_ms": NOW - 60_000}, True),  # put off again and again: its chart is nowhere
        ({"next_ms": NOW + 500, "due_ms": NOW - 60_000, "attempts": 9, "lane": "timer"}, True),
        ({"next_ms": NOW + 60_000, "due_ms": NOW - 60_000, "lane": "timer"}, False),  # downtime moved it
        ({"next_ms": NOW - 500, "due_ms": NOW - 60_000, "attempts": 1}, False),  # put back by one that ended
        ({"next_ms": NOW + 500, "due_ms": NOW - 60_000, "name": CHILD_WORK}, False),
    ],
)
def test_work_is_stuck_when_somebody_should_have_taken_it_up_long_ago(row: dict[str, Any], waits: bool) -> None:
    """Looks are a second apart: ten without anybody are a sign. What is dead or called off is told elsewhere."""
    facts = {"failures": 0, "attempts": 0, "due_ms": row["next_ms"], "lane": "effect", "name": "charge", **row}
    place = WorkId(facts.pop("lane"), 1, 0)
    work = Work(place, facts.pop("name"), {"id": "charge"}, facts.pop("due_ms"))

    assert waits == is_waiting(WorkRow(entity="order/1", work=work, **facts), NOW)


def test_what_has_ended_or_only_repeats_its_children_is_not_told(call: Caller, folder: Path) -> None:
    """A compound state says nothing that its children do not, unless it expects something itself."""
    (folder / "trip.yaml").write_text(TRIP, encoding="utf-8")
    clock = VirtualClock()
    with interlock.open("sqlite:///trips.db", charts=[interlock.load("trip.yaml")], clock=clock, work=False) as trips:
        trips.create("trip/1")
        trips.create("trip/2")
        trips.send("trip/2", "arrived")
    words = ("sqlite:///trips.db", "--chart", "trip.yaml", "--json")
    (trip,) = json.loads(call("top", *words).out)["kinds"]
    late = json.loads(call("stuck", *words).out)["entities"]

    assert (["home", "leg", "leg.drive.fast"], 1) == (sorted(each["state"] for each in trip["states"]), trip["stuck"])
    assert [("trip/1", "leg")] == [(each["entity"], each["state"]) for each in late]


STAY = "interlock: 1\nkind: stay\ninitial: booked\nstates: {booked: {expect: {within: 1h}}}\n"
VISIT = """
interlock: 1
kind: visit
initial: planned
states:
  planned: {invoke: {id: stay, type: chart, src: stay}, on: {dropped: over}}
  over: {type: final}
"""


async def visited(visits: Any, clock: VirtualClock) -> None:
    """Two visits, each with a stay; the first is dropped, so its stay is cancelled. The other is late."""
    for number in (1, 2):
        await visits.create(f"visit/{number}")
        await stays(visits, clock, [None] if number == 1 else ["cancelled", None])
        if number == 1:
            await visits.send("visit/1", "dropped")
            await stays(visits, clock, ["cancelled"])
    clock.time_ms += 2 * HOUR_MS


async def stays(visits: Any, clock: VirtualClock, ends: list[str | None]) -> None:
    """Wait until there are stays, and they ended in these ways."""

    async def is_so() -> bool:
        await clock.advance(10)
        rows = (await visits.store.find(EntityQuery(kind="stay"))).rows
        return sorted(map(str, ends)) == sorted(str(each.ended) for each in rows)

    await eventually(is_so, f"stays that ended as {ends}")


@pytest.mark.parametrize("url", ["memory:", "sqlite:///stays.db", "file:./stays"])
async def test_who_was_cancelled_hides_nobody_who_is_stuck(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that its parent left is in no state any more; or, where lists are walks, it is passed over."""
    monkeypatch.chdir(tmp_path)
    clock, charts = VirtualClock(), [interlock.loads(VISIT), interlock.loads(STAY)]
    async with interlock.open(url, charts=charts, clock=clock) as visits:
        await visited(visits, clock)
        ends = {each.entity: each.ended for each in (await visits.store.find(EntityQuery(kind="stay"))).rows}
        late = await stuck_entities(visits, None, 1)

    assert {"cancelled", None} == set(ends.values())
    assert [None] == [ends[each.entity] for each in late]


async def test_who_was_cancelled_is_told_among_the_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a chart and without; the bars are of the living, and a list by that word leads to the others."""
    monkeypatch.chdir(tmp_path)
    clock, charts = VirtualClock(), [interlock.loads(VISIT), interlock.loads(STAY)]
    async with interlock.open("sqlite:///stays.db", charts=charts, clock=clock) as visits:
        await visited(visits, clock)
        known = await fleet(visits, "stay")
        off = await visits.store.find(EntityQuery(kind="stay", state=":cancelled"))
    async with interlock.open("sqlite:///stays.db", charts=charts[:1], clock=clock, work=False) as strangers:
        unknown = await fleet(strangers, "stay")
    (stay,), (strange,) = known.kinds, unknown.kinds

    assert (2, 1) == (stay.entities, stay.stuck)
    for kind in (stay, strange):
        assert {("booked", 1, False), (":cancelled", 1, True)} == {
            (each.state, each.entities, each.is_final) for each in kind.states
        }
    assert "  ended: :cancelled 1" == "".join(map(_plain, list(fleet_lines(known, 80))[-1]))
    assert ["cancelled"] == [each.ended for each in off.rows]


def test_without_a_chart_only_work_is_judged(call: Caller, orders: Path) -> None:
    """And that is said."""
    ended = call("stuck", STORE)

    assert ended.out.startswith("due, and nobody takes it up\n")
    assert "no chart here" in ended.err


def test_dead_letters_are_told_with_their_key(call: Caller, orders: Path) -> None:
    """A handler that says no for good leaves one, when nobody waits for it."""
    (orders / "mail.yaml").write_text(
        "interlock: 1\nkind: mail\nrevision: 1.0.0\nstates: {sent: {entry: [post], expect: {within: forever}}}\n"
    )
    chart = interlock.load("mail.yaml")

    @chart.handler("post")
    async def post(attempt: interlock.Attempt) -> None:
        raise interlock.RejectedError("no such address", code="post.refused")

    with interlock.open(STORE, charts=[chart]) as mails:
        mails.create("mail/1")
        wait_for_dead(call)
    ended = call("stuck", STORE, "mail", "--chart", "mail.yaml")

    assert "dead letters" == ended.out.splitlines()[0]
    assert "post.refused: no such address" in ended.out
    assert "next: interlock effects retry mail/1/1/0, or drop" in ended.out
    assert "✗ 1 dead letter:" in call("top", STORE, "mail").out


def wait_for_dead(call: Caller) -> None:
    """Until the letter is dead; the time limit of the test is the bound."""
    while "dead for" not in call("effects", "ls", STORE, "--dead").out:
        pass


def test_nothing_stuck_is_said(call: Caller, folder: Path) -> None:
    """On stderr: there is no data."""
    call("create", "sqlite:///lamps.db", "lamp/1", "--chart", "lamp.yaml")
    ended = call("stuck", "sqlite:///lamps.db", "--chart", "lamp.yaml")

    assert (0, "", "nothing is stuck\n") == (ended.code, ended.out, ended.err)
