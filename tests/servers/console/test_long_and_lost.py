"""The console in a real browser: long journals, interrupted jobs, unknown pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.console.worlds import interrupted, long
from tests.support.browsers import Visitor, browser, served

pytestmark = pytest.mark.slow

ENTRIES = 230


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """A server on both stores, and a browser with a session."""
    home = tmp_path_factory.mktemp("worlds")
    interrupted(home, orders=3)
    long(home, entries=ENTRIES)
    charts = ("--chart", "order.yaml", "--chart", "counter.yaml", "--principal", "ada:support")
    with browser() as chromium, served(home, "sqlite:///o.db", *charts) as link:
        context = chromium.new_context()
        Visitor(context, link).close()
        yield context, link.partition("/#")[0]
        context.close()


@pytest.fixture
def visitor(site: tuple[Any, str]) -> Iterator[Visitor]:
    """A tab with a session."""
    found = Visitor(*site)
    yield found
    found.close()


def rows(tab: Any) -> int:
    """Return the number of entries that the journal shows."""
    count: int = tab.locator("table[aria-label=Journal] tbody tr").count()
    return count


def test_interrupted_bulk_is_shown_and_resumed(visitor: Visitor) -> None:
    tab = visitor.open("/")
    tab.click("main a[href='/bulk']")
    tab.click("button:has-text('send order.cancelled to order')")
    tab.wait_for_selector("[data-testid=job-advice]")
    tab.get_by_test_id("resume-job").click()
    tab.wait_for_selector(".report .pill:has-text('applied 3')")
    tab.wait_for_selector("main table .pill:has-text('done')")
    tab = visitor.open("/")

    assert 0 == tab.locator("main a[href='/bulk']").count()


def without_changes(route: Any) -> None:
    """Respond like the server for a journal that is too long to be replayed automatically."""
    response = route.fetch()
    route.fulfill(
        response=response,
        json={**response.json(), "context_before": None, "transitions": [], "replay_distance": ENTRIES - 1},
    )


def test_long_journal_starts_at_its_end_and_loads_older_pages(visitor: Visitor) -> None:
    visitor.tab.route("**/api/v1/entity/counter/1", without_changes)
    tab = visitor.open("/e/counter/1")
    first, unknown = rows(tab), tab.locator(".diff .plus").count()
    tab.get_by_test_id("older-entries").click()
    tab.wait_for_selector(f"button[aria-label='Go to version {ENTRIES - 150}']")
    second = rows(tab)
    tab.get_by_test_id("replay").click()
    tab.wait_for_selector(f".diff .plus:has-text('{ENTRIES - 1}')")
    tab.wait_for_selector(f".diff .minus:has-text('{ENTRIES - 2}')")

    assert (100, 200, 0) == (first, second, unknown)
    assert 0 == tab.get_by_test_id("replay").count()


def test_unknown_page_links_back_to_the_overview(site: tuple[Any, str]) -> None:
    context, address = site
    tab = context.new_page()
    answer = tab.goto(f"{address}/k/order/nowhere/<img src=x onerror=alert(1)>")
    tab.wait_for_selector("main [role=alert] h1")
    injected = tab.locator("main img").count()
    tab.click("main [role=alert] a[href='/']")
    tab.wait_for_selector("main .cards")
    tab.close()

    assert (404, 0) == (answer.status, injected)
