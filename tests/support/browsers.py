"""A real browser and a real server: `interlock serve` and Chromium as processes.

Rule: both end with the test that started them, by their ids; everything goes over loopback.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import PATIENCE_SECONDS

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 1_000 * PATIENCE_SECONDS
"""Timeout for every wait: a machine that is ten times slower still passes."""


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[str]:
    """Yield the sign-in link of a server on the store and charts of a folder."""
    command = [sys.executable, "-m", "interlock", "serve", "--port", "0", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        if not link:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
        yield link
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@contextmanager
def browser() -> Iterator[Any]:
    """Yield Chromium, or skip if it is missing."""
    if not CHROMIUM.exists():
        pytest.skip(f"NO BROWSER: the pages are not tested, because there is no {CHROMIUM}")
    playwright = pytest.importorskip("playwright.sync_api", reason="NO PLAYWRIGHT: the pages are not tested")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        try:
            yield found
        finally:
            found.close()


class Visitor:
    """A tab that records errors, requests to other hosts, and dialogs."""

    def __init__(self, context: Any, link: str) -> None:
        self.base = link.partition("/#")[0]
        self.wrong: list[str] = []
        self.tab = context.new_page()
        self.tab.set_default_timeout(PATIENCE_MS)
        self.tab.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.tab.on("console", self._said)
        self.tab.on("dialog", self._shown)
        self.tab.on("request", self._asked)
        if link != self.base:  # a sign-in link
            self.open(link.removeprefix(self.base))

    def _said(self, message: Any) -> None:
        # The browser logs an error for every expected problem response.
        by_design = any(f"status of {status}" in message.text for status in (401, 403, 409, 422))
        if message.type == "error" and not by_design:
            self.wrong.append(f"console: {message.text}")

    def _shown(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.wrong.append(f"request: {request.url}")

    def open(self, path: str) -> Any:
        """Open a page and wait until it is rendered."""
        self.tab.goto(self.base + path)
        self.tab.wait_for_selector("main h1, main h2")
        return self.tab

    def close(self) -> None:
        """Close the tab and check that it recorded nothing."""
        self.tab.close()
        assert [] == self.wrong
