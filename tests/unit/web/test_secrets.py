"""Keys, tokens, cookies and signatures appear in no log record, no answer, no journal and no error."""

from __future__ import annotations

import json
import logging
import pickle
from base64 import b64decode, b64encode
from pathlib import Path

import httpx
import pytest

from interlock.errors import InterlockError
from interlock.model.limits import KEY_FILE_AGE_MS
from interlock.model.webhook_signature import parse_key, sign
from interlock.ports.replaced_file import replace_file
from interlock.testing.clock import VirtualClock
from interlock.trust.api_keys import key_digest, new_key
from interlock.trust.key_file import read_key_file
from interlock.trust.used_keys import used_file
from interlock.web.app import application
from interlock.web.auth import Authentication
from interlock.web.key_file_watcher import KeyFileWatcher
from tests.support.cli import Caller
from tests.unit.trust.issuer_server import NOW_S, issuer_server, jwk, rsa_key, token
from tests.unit.web.consoles import ORIGIN, open_console

SECRET = f"whsec_{b64encode(b'canary of a shared secret').decode()}"
PAID = {"specversion": "1.0", "subject": "order/1", "type": "payment.confirmed", "data": {"id": "p-1"}}


def wrongly_written(key: str) -> list[str]:
    """Key files with a secret where something else belongs."""
    good = f'[[key]]\nid = "ada"\nsha256 = "{key_digest(key)}"\n'
    return [
        f'[[key]]\nid = "ada"\nsha256 = "{key}"\n',
        f'[[key]]\nid = "ada"\nkey = "{key}"\nsha256 = "{key_digest(key)}"\n',
        f"{good}[[key]]\n{key} = 5",
        f'{good}expires = "{key}"\n',
        f'{good}rights = ["{key}"]\n',
        f'{good}kind = "{SECRET}\'x"\n',
        f'{good}"{SECRET}`x" = 1\n',
        f'{good}[[sender]]\nid = "till"\nsecrets = "{SECRET}"\n',
        f'{good}[[sender]]\nid = "till"\nsecrets = [{{id = "a", secret = "{SECRET}!"}}]\n',
        f'{good}[[sender]]\nid = "till"\nsecrets = [{{id = "a", secret = "{SECRET}", not_after = "{SECRET}"}}]\n',
        f'{good}[[sender]]\nid = "{SECRET}"\nsecrets = [{{id = "a", secret = "{SECRET}"}}]\n',
    ]


def records_text(caplog: pytest.LogCaptureFixture) -> str:
    """Everything that the log records have, not only what a formatter shows."""
    return "\n".join(f"{each.getMessage()} {vars(each)!r} {each.exc_text}" for each in caplog.records)


async def test_no_output_of_a_server_has_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    clock, file = VirtualClock(NOW_S * 1000), tmp_path / "keys.toml"
    key_id, key = new_key()
    valid, forged = token(), token(key=rsa_key(7))
    seen: list[str] = []
    with issuer_server() as issuer:
        issuer.publish(jwk(rsa_key()))
        text = f"""
[[key]]
id = "ada"
key = "{key_id}"
sha256 = "{key_digest(key)}"
rights = ["read", "read:audit", "send"]
[[issuer]]
issuer = "https://login.test/"
audience = "interlock"
algorithms = ["RS256"]
jwks = "{issuer.url}"
[[sender]]
id = "till"
secrets = [{{id = "a", secret = "{SECRET}"}}]
roles = ["payments"]
"""
        replace_file(file, text.encode(), mode=0o600)
        async with open_console(clock=clock) as client:
            await client.runtime.create("order/1", {"amount": 1})
            access = Authentication(clock, key_file=KeyFileWatcher(file, clock))
            app, console = application(client.runtime, access, origins=[ORIGIN])
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers={"Origin": ORIGIN}) as http:
                bad = [f"{key}x", f"x{key}", forged, f"{valid}x", key.replace(key_id, "aaaaaaaa")]
                for each in (key, valid, *bad):
                    for path in ("me", "kinds", "refusals", "entity/order/1", "nowhere"):
                        answer = await http.get(f"/api/v1/{path}", headers={"Authorization": f"Bearer {each}"})
                        seen.append(answer.text + repr(answer.headers))
                    http.cookies.clear()
                    answer = await http.post("/api/v1/login", json={"secret": each})
                    seen.append(answer.text)  # the cookie is in its header, as it must be
                    answer = await http.post("/api/v1/login", content=f'{{"secret": ["{each}"]}}'.encode())
                    seen.append(answer.text + repr(answer.headers))
                cookie = http.cookies.get("interlock") or ""
                body, seconds = json.dumps(PAID).encode(), NOW_S
                header = sign([parse_key(SECRET, "a test")], "m-1", seconds, body)
                for signature in (header, header[:-4], f"v1,{SECRET}", SECRET):
                    headers = {
                        "webhook-id": "m-1",
                        "webhook-timestamp": str(seconds),
                        "webhook-signature": signature,
                    }
                    answer = await http.post("/api/v1/inbox/till", content=body, headers=headers)
                    seen.append(answer.text + repr(answer.headers))
                for wrong in wrongly_written(key):
                    replace_file(file, wrong.encode())
                    clock.time_ms += KEY_FILE_AGE_MS
                    await http.get("/api/v1/me", headers={"Authorization": f"Bearer {key}"})
            await console.close()
            seen.append(repr(await client.runtime.journal("order/1")))
    seen.append(used_file(file).read_text(encoding="utf-8"))
    seen.append(records_text(caplog))

    assert any("the changed key file cannot be used" in each for each in seen)  # there was something to find
    secrets = {
        "key": key.split("_", 2)[2],
        "digest": key_digest(key),
        "shared secret": SECRET.removeprefix("whsec_"),
        "shared secret, decoded": b64decode(SECRET.removeprefix("whsec_")).decode(),
        "signature": header.removeprefix("v1,")[:-4],
        "token": valid.split(".")[2],
        "claims": valid.split(".")[1],
        "forged token": forged.split(".")[2],
        "cookie": cookie or "a cookie",
    }
    found = [name for name, secret in secrets.items() for each in seen if secret in each]
    assert [] == found


def test_no_error_about_a_key_file_has_a_secret(tmp_path: Path) -> None:
    _, key = new_key()
    for number, text in enumerate(wrongly_written(key)):
        file = tmp_path / f"{number}.toml"
        replace_file(file, text.encode(), mode=0o600)
        with pytest.raises(InterlockError) as caught:
            read_key_file(file)
        shown = f"{caught.value} {caught.value!r} {vars(caught.value)!r} {pickle.dumps(caught.value)!r}"

        assert key.split("_", 2)[2] not in shown, text
        assert SECRET.removeprefix("whsec_") not in shown, text
        assert caught.value.__cause__ is None


def test_no_command_shows_a_secret_again(folder: Path, call: Caller) -> None:
    key = call("keys", "create", "ada").out.strip()
    secret = call("keys", "rotate", "--signing", "webhooks.toml").out.strip()
    ended = [
        call("keys", "list"),
        call("keys", "list", "--json"),
        call("keys", "revoke", key),
        call("keys", "rotate", "-v", key),
        call("keys", "rotate", "-v", "--signing", "webhooks.toml", "--overlap", "x"),
        call("keys", "list", "--key-file", "webhooks.toml"),
    ]

    for each in ended:
        assert key.split("_", 2)[2] not in each.out + each.err
        assert secret.removeprefix("whsec_") not in each.out + each.err
