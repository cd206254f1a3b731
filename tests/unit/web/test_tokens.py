"""Tokens of issuers at the HTTP interface: requests, sessions, and what a caller learns of a refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from interlock.model.limits import KEY_FILE_AGE_MS
from interlock.ports.replaced_file import replace_file
from interlock.testing.clock import VirtualClock
from interlock.trust.tokens import LEEWAY_MS
from interlock.web.app import application
from interlock.web.auth import Authentication
from interlock.web.key_file_watcher import KeyFileWatcher
from tests.unit.trust.issuer_server import NOW_S, Issuer, claims, issuer_server, jwk, rsa_key, token
from tests.unit.web.consoles import ORIGIN, open_console

TABLE = """
[[issuer]]
issuer = "https://login.test/"
audience = "interlock"
algorithms = ["RS256"]
jwks = "{url}"
roles_claim = "groups"
role_names = {{cashiers = "payments"}}
rights_of_roles = {{payments = ["send"]}}
"""


@asynccontextmanager
async def server(folder: Path, clock: VirtualClock) -> AsyncIterator[tuple[Issuer, Path, httpx.AsyncClient]]:
    """An issuer, the key file of a console that uses it, and a client of the console without a session."""
    with issuer_server() as issuer:
        issuer.publish(jwk(rsa_key()))
        file = folder / "keys.toml"
        replace_file(file, TABLE.format(url=issuer.url).encode(), mode=0o600)
        async with open_console(clock=clock) as client:
            await client.runtime.create("order/1", {"amount": 1})
            access = Authentication(clock, key_file=KeyFileWatcher(file, clock))
            app, console = application(client.runtime, access, origins=[ORIGIN])
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ORIGIN) as http:
                yield issuer, file, http
            await console.close()


async def test_a_token_sends_with_its_mapped_roles_and_nothing_else_of_it_is_stored(tmp_path: Path) -> None:
    clock = VirtualClock(NOW_S * 1000)
    given = claims(groups=["cashiers", "drivers"], email="ada@secret.test", name="Ada Canary")
    async with server(tmp_path, clock) as (_, _, http):
        headers = {"Authorization": f"Bearer {token(given)}"}
        body = {"event": "payment.confirmed", "payload": {"id": "p-1"}}
        sent = await http.post("/api/v1/send/order/1", json=body, headers=headers)
        page = await http.get("/api/v1/journal/order/1", headers=headers)
        denied = await http.post("/api/v1/send/order/1", json={"event": "parcel.shipped"}, headers=headers)
        no_role = await http.post(
            "/api/v1/send/order/1", json=body, headers={"Authorization": f"Bearer {token(claims(sub='bob'))}"}
        )

    assert ("applied", 200) == (sent.json()["outcome"], page.status_code)
    assert '"ada"' in page.text
    assert not any(each in page.text for each in ("secret.test", "Canary", "drivers", "cashiers", "https://login"))
    assert (403, 403) == (denied.status_code, no_role.status_code)
    assert "right.missing" == no_role.json()["code"]


async def test_every_refused_token_gets_the_same_answer(tmp_path: Path) -> None:
    clock = VirtualClock(NOW_S * 1000)
    texts = ["x", "a.b.c", token(key=rsa_key(7)), token(claims(aud="x")), token(claims(exp=NOW_S + 10**7)), "il_k_s"]
    async with server(tmp_path, clock) as (_, _, http):
        answers = [await http.get("/api/v1/me", headers={"Authorization": f"Bearer {each}"}) for each in texts]

    assert {(401, answers[0].text)} == {(each.status_code, each.text) for each in answers}
    assert "login.missing" == answers[0].json()["code"]


async def test_without_the_keys_of_the_issuer_nobody_gets_in_and_the_caller_may_try_again(tmp_path: Path) -> None:
    clock = VirtualClock(NOW_S * 1000)
    async with server(tmp_path, clock) as (issuer, _, http):
        issuer.status = 500
        answer = await http.get("/api/v1/me", headers={"Authorization": f"Bearer {token()}"})

    assert (503, "token.keys") == (answer.status_code, answer.json()["code"])
    assert "127.0.0.1" not in answer.text


async def test_a_session_of_a_token_ends_with_it_or_with_its_key_or_issuer(tmp_path: Path) -> None:
    clock = VirtualClock(NOW_S * 1000)
    async with server(tmp_path, clock) as (_, file, http):

        async def sign_in(text: str) -> dict[str, str]:
            answer = await http.post("/api/v1/login", json={"secret": text}, headers={"Origin": ORIGIN})
            assert answer.status_code == 200, answer.text
            cookie = answer.headers["set-cookie"].partition(";")[0]
            http.cookies.clear()
            return {"Cookie": cookie, "X-Interlock-CSRF": answer.json()["csrf"]}

        async def is_in(headers: dict[str, str]) -> bool:
            return (await http.get("/api/v1/me", headers=headers)).status_code == 200

        short, long = await sign_in(token(claims(exp=NOW_S + 60))), await sign_in(token())
        assert [True, True] == [await is_in(each) for each in (short, long)]
        clock.time_ms += 60_000 + LEEWAY_MS
        assert [False, True] == [await is_in(each) for each in (short, long)]
        replace_file(file, file.read_bytes().replace(b'"interlock"', b'"another"'))
        clock.time_ms += KEY_FILE_AGE_MS
        assert not await is_in(long)
