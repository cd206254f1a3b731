"""What a newcomer gets wrong on the first day: each raises at the call, with a code, and with the fix in its text.

One table, so that a change of an interface shows what it does to all of them. The details are tested where they belong.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.runtime.blocking import BlockingRuntime

ORDER = """
interlock: 1
kind: order
context: {amount: {type: string, format: decimal, default: "1"}}
states:
  unpaid:
    on:
      payment.confirmed: {target: paid, roles: [staff]}
      cancelled: gone
  paid: {entry: [mail], type: final}
  gone: {type: final}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[BlockingRuntime]:
    """A runtime with one order."""
    with interlock.connect(f"sqlite:///{tmp_path}/shop.db", charts=[chart()]) as runtime:
        runtime.create("order/1")
        yield runtime


def chart() -> Any:
    """The chart of an order, whose mail has a handler."""
    found = interlock.loads(ORDER)
    found.handler("mail")(mail)
    return found


def mail(attempt: interlock.Attempt) -> None:
    """Send nothing."""


def in_a_coroutine(shop: BlockingRuntime) -> None:
    async def view() -> None:
        shop.state("order/1")

    asyncio.run(view())


def before_it_is_open(_: Any) -> None:
    pending: Any = interlock.open("memory:", charts=[chart()])
    pending.send("order/1", "cancelled")


def sent(event: Any, payload: Any = None, **options: Any) -> Callable[[Any], object]:
    return lambda shop: shop.send("order/1", event, payload, **options)


def registered(name: Any, function: Any = mail) -> Callable[[Any], object]:
    return lambda _: interlock.loads(ORDER).handler(name)(function)


def opened(url: Any, charts: Any = None) -> Callable[[Any], object]:
    return lambda _: interlock.connect(url, charts=[chart()] if charts is None else charts)


def found(**query: Any) -> Callable[[Any], object]:
    return lambda shop: shop.list(interlock.EntityQuery(**{"kind": "order", **query}))


USAGE, REJECTED, DENIED, MISSING = (
    interlock.UsageError,
    interlock.RejectedError,
    interlock.DeniedError,
    interlock.NotFoundError,
)

MISUSES: list[tuple[Callable[[Any], object], type[interlock.InterlockError], str, str]] = [
    (sent("payment.confirmd"), USAGE, "event.unknown", '"payment.confirmed"'),
    (sent("cancelled", {"x": {"y": object()}}), USAGE, "event.payload", "x.y"),
    (sent("cancelled", {"at": datetime(2026, 1, 1)}), USAGE, "event.payload", "zone"),  # noqa: DTZ001 - the point
    (sent("cancelled", {"a": [1, float("nan")]}), USAGE, "event.payload", "a[1]"),
    (sent("cancelled", {"a": {1, 2}}), USAGE, "event.payload", "sorted"),
    (sent("cancelled", kye="k"), USAGE, "argument.unknown", '"key"'),
    (sent("cancelled", key=5), USAGE, "key.malformed", "str("),
    (sent("cancelled", expected="1"), USAGE, "expected.malformed", ".version"),
    (sent(["cancelled"]), USAGE, "event.malformed", 'send("order/1"'),
    (sent("payment.confirmed", principal={"roles": "staff"}), USAGE, "principal.malformed", "['staff']"),
    (lambda shop: shop.send("order/1", "payment.confirmed").expect(), DENIED, "denied.roles", "staff"),
    (lambda shop: [shop.send("order/1", "cancelled").expect() for _ in "12"], REJECTED, "rejected.ended", "cancelled"),
    (lambda shop: shop.send("order/2", "cancelled"), MISSING, "entity.unknown", "create"),
    (lambda shop: shop.create("ordr/2"), MISSING, "kind.unknown", '"order"'),
    (lambda shop: shop.create("order"), USAGE, "entity.malformed", "order/1"),
    (lambda shop: shop.create("order/3", {"amout": "2"}), REJECTED, "context.unknown", "amout"),
    (lambda shop: shop.create("order/3", {"amount": "two"}), REJECTED, "context.refused", "19.90"),
    (lambda shop: shop.state("order/1", at="yesterday"), USAGE, "at.malformed", "2026-11-15T12:00:00Z"),
    (lambda shop: shop.state("order/1").matches("payed"), USAGE, "state.unknown", '"paid"'),
    (found(state="payed"), USAGE, "state.unknown", '"paid"'),
    (found(kind="ordr"), MISSING, "kind.unknown", '"order"'),
    (found(where={"amount": Decimal(1)}), USAGE, "index.unknown", "index: true"),
    (registered("mial"), USAGE, "handler.unknown", '"mail"'),
    (registered(mail), USAGE, "handler.unknown", '@chart.handler("name")'),
    (registered("mail", lambda: None), USAGE, "handler.signature", "attempt"),
    (registered("mail", lambda a, b, c: None), USAGE, "handler.signature", "`c`"),
    (lambda _: chart().handler("mail")(lambda attempt: None), USAGE, "handler.twice", "remove one"),
    (opened("sqlite:///a.db", "order.yaml"), USAGE, "charts.malformed", "interlock.load('order.yaml')"),
    (opened("sqlite:///a.db", []), USAGE, "charts.missing", "interlock.load"),
    (opened("sqlite://a.db"), USAGE, "url.malformed", "three slashes"),
    (opened("orders.db"), USAGE, "store.unknown", "sqlite:///orders.db"),
    (lambda shop: shop.join("shop.db"), USAGE, "join.unsupported", "SQLAlchemy"),
    (in_a_coroutine, USAGE, "runtime.running_loop", "interlock.open"),
    (before_it_is_open, USAGE, "runtime.not_open", "async with"),
]


@pytest.mark.parametrize(
    ("misuse", "cls", "code", "fix"), MISUSES, ids=[f"{number} {row[2]}" for number, row in enumerate(MISUSES)]
)
def test_a_misuse_raises_with_the_fix(misuse: Any, cls: type[Exception], code: str, fix: str, shop: Any) -> None:
    with pytest.raises(cls) as caught:
        misuse(shop)
    error: Any = caught.value

    assert code == error.code
    assert fix in str(error)


def test_an_open_transaction_of_the_program_is_named(shop: Any, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(interlock.UsageError) as caught:
            shop.send("order/1", "cancelled")

    assert "store.own_transaction" == caught.value.code
    assert "runtime.join(connection)" in str(caught.value)


def test_work_without_a_handler_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with interlock.connect(f"sqlite:///{tmp_path}/shop.db", charts=[interlock.loads(ORDER)], work=True):
        pass

    assert any("mail" in each.getMessage() for each in caplog.records if each.levelname == "WARNING")
