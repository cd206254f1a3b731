"""Screenshots of every page of the console: `make screenshots`.

    python -m tests.servers.console.screenshots [folder]

Three worlds: `demo`, which runs and fails until it has a thousand entities; `one`, a single entity; `none`, a
chart without any. Each page in light and dark, in a wide window and in one of 360 pixels.
Rule: what it starts it ends, by its id; everything goes over loopback.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import interlock
from tests.servers.console.worlds import interrupted, reported
from tests.support.browsers import ARGUMENTS, CHROMIUM, Visitor, served
from tests.unit.web.consoles import ORDER

FOLDER = Path("build/screenshots")
WIDTHS = {"wide": 1280, "narrow": 360}
HIGH = 900
ENTITIES = 1_000
WAIT_LOOKS = 120
"""Seconds to wait until the demo has its entities."""

PAGES = {
    "overview": "/",
    "kind": "/k/order",
    "list": "/k/order/entities",
    "effects": "/effects",
    "dead": "/effects?dead=true",
    "sagas": "/sagas",
    "bulk": "/bulk",
    "audit": "/audit",
    "reports": "/reports",
    "diff": "/k/order/diff",
    "simulate": "/k/order/simulate",
    "simulator": "/simulator",
    "unknown": "/nowhere",
}

NEXT = (
    ORDER.replace("2.0.0", "2.1.0").replace("48h", "72h").replace("shipped: shipped}", "shipped: under_way}")
    + "  under_way: {expect: {within: 5d}, on: {parcel.shipped: shipped}}\n"
)
"""The next revision of the chart: a changed timer and a new state."""

COUNTED = """async () => {
  const login = {headers: {"X-Interlock-CSRF": localStorage.getItem("interlock-token")}};
  const found = await (await fetch("/api/v1/kinds", login)).json();
  return found.kinds.reduce((sum, each) => sum + each.entities, 0);
}"""
OLDEST = """async () => {
  const login = {headers: {"X-Interlock-CSRF": localStorage.getItem("interlock-token")}};
  const found = await (await fetch("/api/v1/kinds/order/entities?limit=200", login)).json();
  const longest = found.rows.sort((one, other) => other.version - one.version)[0];
  return longest ? "/e/" + longest.entity : null;
}"""
QUIET = """Promise.all(document.getAnimations()
  .filter(each => each.effect.getTiming().iterations < 9).map(each => each.finished.catch(() => null)))"""


def main(folder: Path) -> None:
    """Take all screenshots."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver, TemporaryDirectory() as place:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        try:
            for name, world in {"none": none, "one": one, "reported": compared, "demo": demo}.items():
                home = Path(place) / name
                home.mkdir()
                with world(home) as link:
                    taken(browser, link, folder, name)
        finally:
            browser.close()
    sys.stdout.write(f"{len(list(folder.glob('*.png')))} screenshots in {folder}\n")


@contextmanager
def none(home: Path) -> Iterator[str]:
    """A server with a chart and no entities."""
    (home / "order.yaml").write_text(ORDER, encoding="utf-8")
    with interlock.open(f"sqlite:///{home}/o.db", charts=[interlock.loads(ORDER)], work=False).blocking():
        pass  # creates the file
    with served(home, "sqlite:///o.db", "--chart", "order.yaml") as link:
        yield link


@contextmanager
def one(home: Path) -> Iterator[str]:
    """A server with one entity, an interrupted bulk, and two revisions."""
    interrupted(home)
    (home / "next.yaml").write_text(NEXT, encoding="utf-8")
    with served(home, "sqlite:///o.db", "--chart", "order.yaml", "--chart", "next.yaml") as link:
        yield link


@contextmanager
def compared(home: Path) -> Iterator[str]:
    """A server with the reports of a shadow run, a shadow replay and a refold."""
    reported(home)
    with served(home, "sqlite:///o.db", "--chart", "account.yaml") as link:
        yield link


@contextmanager
def demo(home: Path) -> Iterator[str]:
    """A running `interlock demo`."""
    command = [sys.executable, "-m", "interlock", "demo", "--no-browser", "--port", "0", "--rate", "60"]
    with subprocess.Popen(
        command,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            yield next(line.strip() for line in process.stdout if "/#login=" in line)
        finally:
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)


def taken(browser: Any, link: str, folder: Path, world: str) -> None:
    """Take the screenshots of one server."""
    context = browser.new_context(viewport={"width": WIDTHS["wide"], "height": HIGH}, color_scheme="light")
    visitor = Visitor(context, link[link.index("http") :])
    tab = visitor.tab
    pages = dict(PAGES)
    if world == "demo":
        for _ in range(WAIT_LOOKS):  # a slow machine has fewer entities
            if tab.evaluate(COUNTED) >= ENTITIES:
                break
            tab.wait_for_timeout(1_000)
    found = tab.evaluate(OLDEST)
    if found is not None:
        pages["entity"] = found
    if world == "demo":
        worked(visitor)
    if world == "reported":
        pages = {"reports": "/reports", **dict(enumerated(visitor))}
    for name, path in pages.items():
        visitor.open(path)
        if name == "bulk" and world != "none":
            tab.click("main table button.link")
            tab.wait_for_selector("main .report")
        if name == "simulate":
            played(tab)
        for width, pixels in WIDTHS.items():
            tab.set_viewport_size({"width": pixels, "height": HIGH})
            for theme in ("light", "dark"):
                tab.emulate_media(color_scheme=theme)
                tab.evaluate(QUIET)
                tab.screenshot(path=folder / f"{world}-{name}-{width}-{theme}.png", full_page=True)
        tab.set_viewport_size({"width": WIDTHS["wide"], "height": HIGH})
        tab.emulate_media(color_scheme="light")
    tab.close()
    context.close()


def enumerated(visitor: Visitor) -> Iterator[tuple[str, str]]:
    """The pages of the saved reports."""
    tab = visitor.open("/reports")
    for number, link in enumerate(tab.query_selector_all("main a.row"), start=1):
        yield f"report-{number}", link.get_attribute("href")


def played(tab: Any) -> None:
    """Start the simulation with an initial context."""
    for each in tab.query_selector_all("main form [required]"):
        each.fill("5")
    tab.get_by_test_id("start").click()
    tab.wait_for_selector("main .events")


def worked(visitor: Visitor) -> None:
    """Run a verification and a dry run, so that their pages have content."""
    tab = visitor.open("/audit")
    tab.get_by_test_id("verify").click()
    tab.wait_for_selector("main p.good, main p.bad")
    tab = visitor.open("/bulk")
    tab.select_option("#bulk-kind", "order")
    tab.get_by_test_id("dry-run").click()
    tab.wait_for_selector("main .report table, main .report .empty")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
