"""Rate limits at the HTTP interface: per principal and class, and per address prefix without a principal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from interlock.model.limits import KEY_FILE_AGE_MS
from interlock.ports.replaced_file import replace_file
from interlock.testing.clock import VirtualClock
from interlock.trust.api_keys import key_digest
from interlock.web.app import application
from interlock.web.auth import Authentication
from interlock.web.http.request_rates import address_prefix
from interlock.web.key_file_watcher import KeyFileWatcher
from tests.unit.web.consoles import ORIGIN, open_console

RATES = "".join(f"[rates.{name}]\nper_second = 1\nburst = 3\n" for name in ("send", "read", "operate", "anonymous"))


class Caller:
    """A client of a console with keys of ada (two), bob and eve, who may only read."""

    def __init__(self, app: Any, clock: VirtualClock, file: Path) -> None:
        self._app = app
        self.clock = clock
        self.file = file

    async def ask(self, key: str | None, path: str, body: Any = None, address: str = "192.0.2.1") -> httpx.Response:
        """Return the response to one request."""
        transport = httpx.ASGITransport(app=self._app, client=(address, 1))
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers=headers) as http:
            method = "GET" if body is None else "POST"
            return await http.request(method, f"/api/v1/{path}", json=body, headers={"Origin": ORIGIN})

    async def statuses(self, count: int, *arguments: Any, **options: Any) -> list[int]:
        """Return the statuses of the same request several times."""
        return [(await self.ask(*arguments, **options)).status_code for _ in range(count)]


@asynccontextmanager
async def caller(folder: Path) -> AsyncIterator[Caller]:
    """Yield a client of a console with low rates."""
    clock, file = VirtualClock(10**12), folder / "keys.toml"
    keys = {"ada": "ada", "ada-2": "ada", "bob": "bob"}
    rights = 'rights = ["read", "send", "operate"]\nroles = ["support"]'
    tables = [f'[[key]]\nid = "{name}"\nsha256 = "{key_digest(key)}"\n{rights}\n' for key, name in keys.items()]
    tables.append(f'[[key]]\nid = "eve"\nsha256 = "{key_digest("eve")}"\n')
    replace_file(file, ("".join(tables) + RATES).encode(), mode=0o600)
    async with open_console(clock=clock) as client:
        await client.runtime.create("order/1", {"amount": 1})
        access = Authentication(clock, key_file=KeyFileWatcher(file, clock))
        app, console = application(client.runtime, access, origins=[ORIGIN])
        yield Caller(app, clock, file)
        await console.close()


CANCEL = {"event": "order.cancelled"}


async def test_a_user_has_one_rate_per_class_whatever_their_keys(tmp_path: Path) -> None:
    async with caller(tmp_path) as client:
        reads = [*await client.statuses(2, "ada", "kinds"), *await client.statuses(2, "ada-2", "kinds")]
        sends = await client.statuses(4, "ada", "send/order/1", CANCEL)
        others = await client.statuses(3, "bob", "kinds")
        client.clock.time_ms += 1_000
        later = await client.statuses(2, "ada", "kinds")

    assert [200, 200, 200, 429] == reads
    assert 429 not in sends[:3]
    assert 429 == sends[3]
    assert [200] * 3 == others
    assert [200, 429] == later


async def test_retry_after_is_enough_and_the_body_is_the_same_for_all(tmp_path: Path) -> None:
    async with caller(tmp_path) as client:
        await client.statuses(3, "ada", "kinds")
        await client.statuses(3, "bob", "send/order/1", CANCEL)
        await client.statuses(3, None, "kinds")
        refused = [
            await client.ask("ada", "kinds"),
            await client.ask("bob", "send/order/1", CANCEL),
            await client.ask("ada", "kinds/unknown"),
            await client.ask(None, "kinds"),
        ]
        client.clock.time_ms += 1_000 * int(refused[0].headers["retry-after"])
        again = await client.ask("ada", "kinds")

    assert {(429, refused[0].text, "1")} == {
        (each.status_code, each.text, each.headers["retry-after"]) for each in refused
    }
    assert "rate.limited" == refused[0].json()["code"]
    assert 200 == again.status_code


async def test_strangers_are_limited_by_address_prefix_and_users_behind_it_are_not(tmp_path: Path) -> None:
    login = {"secret": "wrong"}
    async with caller(tmp_path) as client:
        statuses = [
            *await client.statuses(1, "il_no_key", "kinds", address="192.0.2.7"),
            *await client.statuses(1, None, "kinds", address="192.0.2.8"),
            *await client.statuses(3, None, "login", login, address="192.0.2.9"),
        ]
        elsewhere = await client.statuses(1, None, "login", login, address="198.51.100.1")
        user = await client.statuses(1, "ada", "kinds", address="192.0.2.7")

    assert [401, 401, 401, 429, 429] == statuses
    assert ([401], [200]) == (elsewhere, user)


async def test_a_login_above_the_rate_is_refused_before_its_body_is_read(tmp_path: Path) -> None:
    async with caller(tmp_path) as client:
        await client.statuses(3, None, "login", {"secret": "wrong"})
        long = await client.ask(None, "login", {"secret": "x" * 100_000})

    assert 429 == long.status_code  # not 413


async def test_changed_rates_count_without_a_restart(tmp_path: Path) -> None:
    async with caller(tmp_path) as client:
        await client.statuses(4, "ada", "kinds")
        text = client.file.read_text(encoding="utf-8").replace("[rates.read]\nper_second = 1\nburst = 3", "")
        replace_file(client.file, text.encode())
        client.clock.time_ms += KEY_FILE_AGE_MS
        statuses = await client.statuses(20, "ada", "kinds")

    assert [200] * 20 == statuses


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("192.0.2.77", "192.0.2.0/24"),
        ("::ffff:192.0.2.77", "192.0.2.0/24"),
        ("2001:db8:1:2ff:3::4", "2001:db8:1:200::/56"),
        ("fe80::1%eth0", "fe80::/56"),
        (None, "local"),
        ("", "local"),
        ("testclient", "local"),
    ],
)
def test_prefix_of_an_address(address: str | None, prefix: str) -> None:
    assert prefix == address_prefix(address)
