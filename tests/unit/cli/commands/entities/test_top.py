"""`interlock top` and `interlock stuck`: the screen. The scenario `operations` shows their output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.cli.commands.entities.top import overview_lines
from interlock.cli.output.terminal import Part
from interlock.cli.output.values import short_number
from interlock.observe.population import Overview, Population, StatePopulation
from interlock.testing.clock import VirtualClock
from tests.support.cli import Caller
from tests.support.eventually import eventually_blocking

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


def state(name: str, entities: int, p95_ms: int | None = None, **fields: Any) -> StatePopulation:
    """A state of a chart without hierarchy."""
    return StatePopulation(name, fields.pop("type", "atomic"), 1, None, entities, p95_ms=p95_ms, **fields)


OVERVIEW = Overview(
    (
        Population(
            "order",
            "3.1+0a1b2c",
            10_012_345,
            steps_per_second=1_842.4,
            conflict_share=0.003,
            stuck=1_318,
            states=(
                state("awaiting_payment", 301_000, 39_960_000),
                state("paid", 204_551, 7_200_000, stuck=0),
                state("refunding", 4_012, 86_040_000, stuck=1_204),
                state("waiting_for_a_person_of_support", 1, None, stuck=114, stuck_more=True),
                state("shipped", 9_502_781, type="final"),
            ),
        ),
        Population("vm", states=(state("live", 7),), steps_per_second=0.04),
    ),
    0,
    1,
)


def screen_text(width: int) -> str:
    """The screen without colours."""
    return "".join("".join(map(_plain, line)) + "\n" for line in overview_lines(OVERVIEW, width))


def _plain(part: Part) -> str:
    return part if isinstance(part, str) else part[0]


@pytest.fixture
def orders(folder: Path) -> Path:
    """Four orders: one unpaid, two charging without a worker, one declined."""
    (folder / "order.yaml").write_text(ORDER, encoding="utf-8")
    clock = VirtualClock(interlock_now() - 3 * HOUR_MS)
    chart = interlock.load("order.yaml")
    with interlock.open(STORE, charts=[chart], clock=clock, work=False).blocking() as runtime:
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
    """The clock of the commands."""
    from interlock.ports.clock import SystemClock

    return SystemClock().now_ms()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_screen_fits_its_width_and_shows_every_state(width: int) -> None:
    screen = screen_text(width)

    assert max(map(len, screen.splitlines())) <= width
    assert all(each in screen for each in ("awaiting_payment", "paid", "refunding", "waiting_for_a", "shipped 9.5M"))
    assert all(each in screen for each in ("10.0M", "1,842", "0.3%", "1,318", "301k", "205k", "4,012", "1,204", "114+"))


@pytest.mark.parametrize(
    ("count", "text"),
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
def test_numbers_have_at_most_six_characters(count: int, text: str) -> None:
    assert text == short_number(count)


def test_colour_adds_only_escape_codes(call: Caller, orders: Path) -> None:
    plain, colored = (call("top", STORE, *CHARTED, "--color", color).out for color in ("never", "always"))

    assert "\x1b[" in colored
    assert plain == re.sub(r"\x1b\[[\d;]*m", "", colored)


def test_an_entity_with_one_ended_region_is_not_ended(call: Caller, folder: Path) -> None:
    (folder / "pair.yaml").write_text(PAIR, encoding="utf-8")
    call("create", "sqlite:///pairs.db", "pair/1", "--chart", "pair.yaml")
    call("send", "sqlite:///pairs.db", "pair/1", "left", "--chart", "pair.yaml")
    going = call("top", "sqlite:///pairs.db", "--chart", "pair.yaml").out
    call("send", "sqlite:///pairs.db", "pair/1", "right", "--chart", "pair.yaml")
    ended = call("top", "sqlite:///pairs.db", "--chart", "pair.yaml").out

    assert (True, False) == ("  both.one.done" in going, "ended" in going), going
    assert "  ended: home 1\n" in ended


def test_a_compound_state_is_shown_only_if_it_has_an_expectation(call: Caller, folder: Path) -> None:
    (folder / "trip.yaml").write_text(TRIP, encoding="utf-8")
    clock = VirtualClock()
    with interlock.open(
        "sqlite:///trips.db", charts=[interlock.load("trip.yaml")], clock=clock, work=False
    ).blocking() as trips:
        trips.create("trip/1")
        trips.create("trip/2")
        trips.send("trip/2", "arrived")
    words = ("sqlite:///trips.db", "--chart", "trip.yaml", "--json")
    (trip,) = json.loads(call("top", *words).out)["kinds"]
    late = json.loads(call("stuck", *words).out)["entities"]

    assert (["home", "leg", "leg.drive.fast"], 1) == (sorted(each["state"] for each in trip["states"]), trip["stuck"])
    assert [("trip/1", "leg")] == [(each["entity"], each["state"]) for each in late]


def test_stuck_lists_dead_letters_with_their_key(call: Caller, orders: Path) -> None:
    (orders / "mail.yaml").write_text(
        "interlock: 1\nkind: mail\nrevision: 1.0.0\nstates: {sent: {entry: [post], expect: {within: forever}}}\n"
    )
    chart = interlock.load("mail.yaml")

    @chart.handler("post")
    async def post(attempt: interlock.Attempt) -> None:
        raise interlock.RejectedError("no such address", code="post.refused")

    with interlock.open(STORE, charts=[chart]).blocking() as mails:
        mails.create("mail/1")
        eventually_blocking(lambda: call("effects", "ls", STORE, "--dead").out)
    ended = call("stuck", STORE, "mail", "--chart", "mail.yaml")

    assert "dead letters" == ended.out.splitlines()[0]
    assert "post.refused: no such address" in ended.out
    assert "next: interlock effects retry mail/1/1/0, or drop" in ended.out
    assert "✗ 1 dead letter:" in call("top", STORE, "mail").out
