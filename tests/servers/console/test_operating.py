"""The console in a real browser: holds, attempts, the timeline, full dates, and drawings that fit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.testing.clock import VirtualClock
from tests.support.browsers import Visitor, browser, served

pytestmark = pytest.mark.slow

ORDER = """
interlock: 1
kind: order
initial: unpaid
states:
  unpaid: {on: {pay: charging}}
  charging:
    invoke: {src: charge, retry: {max: 4, backoff: 1s, jitter: none}, onDone: paid, onError: failed}
  paid: {on: {ship: shipped}}
  failed: {type: final}
  shipped: {type: final}
"""
CHARTS = ("network", "storage", "vm")
MINUTE_MS = 60_000
FULL = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+05:30")


async def fill(url: str) -> None:
    """Create an order that waited and was charged at the third attempt, one that is held, a free one, and a machine."""
    order = interlock.loads(ORDER)
    tries = []

    @order.handler("charge")
    async def charge(attempt: interlock.Attempt) -> None:
        tries.append(attempt.number)
        if len(tries) < 3:
            raise interlock.UnavailableError("the bank is closed", code="bank.closed")

    clock = VirtualClock(1_700_000_000_000, autojump=True)
    async with interlock.open(url, charts=[order], clock=clock) as orders:
        for number in (1, 2, 3):
            await orders.create(f"order/{number}")
        await clock.sleep_ms(10 * MINUTE_MS)
        await orders.send("order/1", "pay")
        while not (await orders.state("order/1")).matches("paid"):
            await clock.sleep_ms(1_000)
        await orders.send("order/1", "ship")
        await orders.hold("order/2", reason="case 117", principal={"id": "bob"})
    charts = [interlock.load(str(files("interlock.demo") / f"{each}.interlock.yaml")) for each in CHARTS]
    async with interlock.open(url, charts=charts, work=False) as machines:
        await machines.create("vm/1", {"image": "debian"})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and the chart of its orders."""
    place = tmp_path_factory.mktemp("operating")
    (place / "order.yaml").write_text(ORDER, encoding="utf-8")
    with ThreadPoolExecutor(1) as pool:  # the browser driver has an event loop in this thread
        pool.submit(lambda: asyncio.run(fill(f"sqlite:///{place}/o.db"))).result()
    return place


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser for all tests of this file."""
    with browser() as found:
        yield found


def arguments() -> list[str]:
    """Return the arguments of `interlock serve`."""
    paths = [str(files("interlock.demo") / f"{each}.interlock.yaml") for each in CHARTS]
    return ["sqlite:///o.db", *(part for each in ("order.yaml", *paths) for part in ("--chart", each))]


@pytest.fixture(scope="module")
def site(chromium: Any, home: Path) -> Iterator[tuple[Any, str]]:
    """A server, and a browser with a session, half an hour from every full one."""
    with served(home, *arguments()) as link:
        context = chromium.new_context(viewport={"width": 1440, "height": 900}, timezone_id="Asia/Kolkata")
        Visitor(context, link).close()
        yield context, link.partition("/#")[0]
        context.close()


@pytest.fixture
def visitor(site: tuple[Any, str]) -> Iterator[Visitor]:
    """A tab with a session."""
    found = Visitor(*site)
    yield found
    found.close()


def test_an_operator_holds_and_resumes_an_entity_with_a_reason(visitor: Visitor) -> None:
    tab = visitor.open("/e/order/3")
    banner = tab.get_by_test_id("entity-hold")
    assert 0 == banner.count()
    tab.click("button:has-text('Hold…')")
    tab.click("dialog button.primary")
    assert tab.locator("dialog #reason:invalid").count() == 1, "a reason is required"
    tab.fill("dialog #reason", "case 118")
    tab.click("dialog button.primary")
    banner.wait_for()
    text = banner.inner_text()
    assert "case 118" in text
    assert FULL.search(text)
    assert 0 == tab.locator("button:has-text('Hold…')").count()

    banner.locator("button").click()
    tab.fill("dialog #reason", "cleared")
    tab.click("dialog button.primary")
    banner.wait_for(state="detached")
    assert "cleared" in tab.inner_text("table[aria-label=Journal]")
    assert 1 == tab.locator("button:has-text('Hold…')").count()


def test_a_reader_sees_who_holds_an_entity_and_no_buttons(chromium: Any, home: Path) -> None:
    with served(home, *arguments(), "--read-only") as link:
        context = chromium.new_context()
        visitor = Visitor(context, link)
        tab = visitor.open("/e/order/2")
        banner = tab.get_by_test_id("entity-hold")
        banner.wait_for()
        assert "bob" in banner.inner_text()
        assert 0 == tab.locator("button:has-text('Resume…'), button:has-text('Hold…')").count()
        visitor.close()
        context.close()


def test_the_journal_shows_each_attempt_on_a_small_screen_too(visitor: Visitor) -> None:
    tab = visitor.open("/e/order/1")
    for wide in (1440, 360):
        tab.set_viewport_size({"width": wide, "height": 740})
        details = tab.locator("table[aria-label=Journal] details")
        details.evaluate("node => { node.open = true; }")
        text = details.inner_text()
        assert 3 == details.locator("li").count()
        assert 2 == text.count("bank.closed")
        assert 2 == len(re.findall(r"next try \S+ later", text))
        assert 3 == len(FULL.findall(text))
        assert wide == tab.evaluate("document.documentElement.scrollWidth")


def test_the_timeline_separates_waiting_from_running(visitor: Visitor) -> None:
    tab = visitor.open("/e/order/1")
    lanes = tab.locator(".timeline .lane")
    bars = {
        lane.locator(".name").inner_text(): [
            lane.locator(f"i.{kind}").count() for kind in ("waiting", "progress", "running", "failed")
        ]
        for lane in lanes.all()
    }
    assert [1, 0, 0, 0] == bars["unpaid"]
    assert [1, 1, 1, 2] == bars["charging"]
    assert "10m" == lanes.first.locator(".sum").inner_text()
    assert "3 attempts, 2 failed" in lanes.nth(1).locator(".sum").inner_text()

    lanes.nth(1).locator("i.progress").dispatch_event("click")
    tab.wait_for_selector(".story h3:text('pay')")
    assert tab.url.endswith("?version=2")


@pytest.mark.parametrize("path", ["/e/order/1", "/e/order/2", "/k/order/entities", "/audit"])
def test_every_time_has_its_date_and_zone(visitor: Visitor, path: str) -> None:
    tab = visitor.open(path)
    tab.wait_for_selector("main time, main il-age, main .empty")
    for text in tab.locator("main time").all_text_contents():
        assert FULL.fullmatch(text), text
    for title in tab.eval_on_selector_all("main il-age", "found => found.map(each => each.title)"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", title), title


DRAWN = """() => {
  const {canvas, svg, scale} = document.querySelector("il-diagram");
  const label = Math.min(...[...svg.querySelectorAll("text")].filter(each => each.textContent.trim())
    .map(each => parseFloat(getComputedStyle(each).fontSize)));
  const fits = (inner, outer) => inner <= outer;
  return {label: label * scale, wide: fits(canvas.scrollWidth, canvas.clientWidth),
    high: fits(canvas.scrollHeight, canvas.clientHeight)};
}"""


@pytest.mark.parametrize(
    ("path", "is_whole"), [("/k/order", True), ("/e/order/1", True), ("/k/vm", True), ("/e/vm/1", False)]
)
def test_a_drawing_opens_readable_and_is_cut_at_no_side(visitor: Visitor, path: str, is_whole: bool) -> None:
    """Above an entity's slider a very high drawing scrolls to the active state; all others are whole."""
    tab = visitor.open(path)
    tab.wait_for_function("document.querySelector('il-diagram')?.scale")
    drawn = tab.evaluate(DRAWN)

    assert drawn["label"] >= 9
    assert (True, is_whole) == (drawn["wide"], drawn["high"])
