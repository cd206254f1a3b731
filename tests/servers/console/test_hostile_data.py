"""Objects where pages expect text are shown as text and never become part of the page.

Data is put into the answers on their way to a real browser. So the test does not depend on what today's kernel lets
into a store; stores are older than kernels.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import interlock
from interlock.ports.work import Settlement
from tests.support.browsers import Visitor, browser, served

pytestmark = pytest.mark.slow

HOSTILE: dict[str, Any] = {
    "class": "toast owned",
    "id": "owned",
    "hidden": True,
    "data-owned": "yes",
    "href": "javascript:alert(1)",
    "onclick": "alert(1)",
    "onmouseover": "alert(1)",
    "style": {"position": "fixed", "inset": "0", "z-index": "99999", "background": "red"},
    "given": {"data-owned": "yes", "class": "owned"},
    "value": {"data-owned": "yes"},
    "toString": 1,
    "valueOf": 1,
    "length": 1,
    "name": {"data-owned": "yes"},
}
"""Attributes, an overlay over the whole page, and names that break conversions to text."""

WORDS = ("constructor", "__proto__", "toString", '"><b data-owned=yes>', "\u202egnp.exe\u2066")
"""Texts that are JavaScript names, markup, or bidirectional control characters."""

ORDER = """
interlock: 1
kind: order
revision: 1.0.0
context: {amount: {type: integer, default: 1}, note: {type: object, nullable: true}}
initial: open
states:
  open:
    entry: [mail, {emit: {type: order.opened, data: {a: 1}}}]
    invoke: {id: payment, src: pay}
    after: {48h: over}
    on: {paid: over, wrong: {target: over, guard: "= context.amount > 5"}}
  over: {type: final}
"""
PAGES = (
    "/e/order/1",
    "/effects",
    "/k/order/entities",
    "/k/order",
    "/k/order/simulate",
    "/audit",
    "/bulk",
    "/sagas",
    "/",
)

ANY = {"payload", "error", "data", "output", "input", "values", "result"}
"""Fields of responses that contain any JSON."""

TEXTS = {"principal", "reason_given", "reason", "who", "what", "owner", "trace", "outcome", "code", "message", "key"}
"""Fields of responses whose text comes from a sender, a handler or a chart."""


async def fill(url: str) -> None:
    """Create an entity with effects, a dead letter and a refused event."""
    chart = interlock.loads(ORDER)
    chart.handler("mail")(lambda attempt: None)
    chart.handler("pay")(lambda attempt: None)
    async with interlock.open(url, charts=[chart], work=False) as orders:
        await orders.create("order/1", principal={"id": "ada"})
        await orders.create("order/2")
        await orders.send("order/1", "wrong", principal={"id": "eve"})
        await orders.send("order/2", "paid", {"id": 1}, principal={"id": "eve"})
        store = orders.store
        assert store.work is not None
        now_ms = orders.clock.now_ms()
        claims = await store.work.claim("effect", None, owner="w", now_ms=now_ms, until_ms=now_ms + 9, limit=9)
        dead = tuple(Settlement(each, "dead", error={"code": "no", "message": "no"}) for each in claims)
        await store.work.settle(dead, now_ms=now_ms)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The sign-in link of a server on that store."""
    home = tmp_path_factory.mktemp("hostile")
    (home / "order.yaml").write_text(ORDER, encoding="utf-8")
    with ThreadPoolExecutor(1) as pool:  # the driver of the browser has an event loop in this thread
        pool.submit(lambda: asyncio.run(fill(f"sqlite:///{home}/o.db"))).result()
    with served(home, "sqlite:///o.db", "--chart", "order.yaml") as found:
        yield found


@pytest.fixture(scope="module")
def visitor(link: str) -> Iterator[Visitor]:
    """A tab with a session."""
    with browser() as chromium:
        found = Visitor(chromium.new_context(), link)
        yield found
        found.close()


def turned(value: Any, word: str, name: str = "") -> Any:
    """Return a response with an object in place of any JSON, and a word in place of user text."""
    if name in ("payload", "error") and isinstance(value, dict):
        return dict.fromkeys(("name", "src", "event", "type", "code", "message", *value), HOSTILE)
    if name in ANY and value is not None and not (name == "payload" and isinstance(value, dict)):
        return HOSTILE
    if name in ("context", "context_before") and isinstance(value, dict):
        return {"data-owned": HOSTILE, **dict.fromkeys(value, HOSTILE)}
    if name in TEXTS and isinstance(value, str):
        return word
    if isinstance(value, dict):
        return {key: turned(each, word, key) for key, each in value.items()}
    if isinstance(value, list):
        return [turned(each, word, name if name in TEXTS else "") for each in value]
    return value


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("path", PAGES)
def test_page_shows_objects_as_text(visitor: Visitor, path: str, word: str) -> None:
    changed = []

    def answer(route: Any) -> None:
        response = route.fetch()
        if "json" not in response.headers.get("content-type", "") or response.status != 200:
            route.fulfill(response=response)
            return
        body = response.json()
        if not route.request.url.endswith(("/me", "/login")):
            body = turned(body, word)
            changed.append(route.request.url)
        route.fulfill(response=response, body=json.dumps(body))

    tab = visitor.tab
    tab.route("**/api/v1/**", lambda route: route.continue_() if "streams" in route.request.url else answer(route))
    try:
        visitor.open(path)
        owned = tab.locator("[data-owned], .owned, #owned, [onclick], [onmouseover], [href^='javascript:']").count()
        title = tab.locator("main h1, main h2").first.inner_text()
        first = tab.locator("nav a, header a").first.bounding_box()
        on_top = tab.evaluate(
            "([x, y]) => { const e = document.elementFromPoint(x, y); return !!e && !!e.closest('a'); }",
            [first["x"] + first["width"] / 2, first["y"] + first["height"] / 2],
        )
        text = tab.locator("main").inner_text()
    finally:
        tab.unroute_all(behavior="wait")

    assert changed
    assert (0, True) == (owned, on_top)
    assert "Something went wrong" not in title
    if path in ("/e/order/1", "/effects"):
        assert '"data-owned":"yes"' in text
    assert [] == visitor.wrong


@pytest.mark.parametrize("hostile", [HOSTILE, [HOSTILE], "<b data-owned=yes>", 7, {"given": HOSTILE}])
def test_element_builder_takes_no_attributes_from_data(visitor: Visitor, hostile: Any) -> None:
    visitor.open("/")
    found = visitor.tab.evaluate(
        """async (hostile) => {
          const {attrs, h, fill} = await import("/static/dom.js");
          const made = [h("p", hostile), h("p", [hostile]), fill(h("p"), hostile), h("p", attrs({title: hostile}))];
          return made.map((each) => [each.getAttributeNames().join(), each.children.length, each.textContent !== ""]);
        }""",
        hostile,
    )

    assert [["", 0, True]] * 3 + [["title", 0, False]] == found
