"""The pages of saved reports in a real browser: the list, and each report with its groups, samples and verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.console.test_console import judged
from tests.servers.console.worlds import reported
from tests.support.browsers import Visitor, browser, served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """A server with reports, and a browser with a session."""
    home = tmp_path_factory.mktemp("reports")
    reported(home)
    with browser() as chromium, served(home, "sqlite:///o.db", "--chart", "account.yaml") as link:
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


def test_reports_are_listed_with_their_verdicts(visitor: Visitor) -> None:
    tab = visitor.open("/reports")
    tab.wait_for_selector("main a.row")
    text = " ".join(tab.locator("main table").all_inner_texts())

    assert 3 == tab.locator("main a.row").count()
    assert "shadow run" in text
    assert "shadow replay" in text
    assert "refold" in text
    assert [] == judged(tab)


@pytest.mark.parametrize(
    ("what", "verdict", "sample"),
    [
        ("shadow run", "steps differ", "110"),
        ("shadow replay", "no difference", None),
        ("refold", "entities differ", "110"),
    ],
)
def test_a_report_shows_its_groups_and_evidence(visitor: Visitor, what: str, verdict: str, sample: str | None) -> None:
    tab = visitor.open("/reports")
    tab.click(f"main a.row:has-text('{what}')")
    tab.wait_for_selector("h2 [data-testid=verdict]")

    assert verdict in tab.locator("h2 [data-testid=verdict]").inner_text()
    if sample is not None:
        assert sample in " ".join(tab.locator("del.before").all_inner_texts())
        assert tab.locator("ins.after").count() >= 1
        assert tab.locator(".sample a.mono").count() >= 1
    if what != "refold":
        assert 1 == tab.locator("h2:has-text('Evidence')").count()
    assert [] == judged(tab)
