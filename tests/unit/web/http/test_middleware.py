"""Checks of every request and headers of every response."""

import pytest

from interlock.errors import UsageError
from interlock.web.app import application, normalize_origin
from interlock.web.http.middleware import BODY_BYTES_MAX
from tests.unit.web.consoles import ORIGIN, open_console


@pytest.mark.parametrize(
    "path",
    ["/", "/e/order/A-1", "/static/app.css", "/static/none.js", "/api/v1/kinds", "/none", "/api/v1/openapi.json"],
)
async def test_every_response_has_the_security_headers(path: str) -> None:
    async with open_console() as client:
        headers = (await client.http.get(path)).headers

    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert ("nosniff", "no-referrer", "same-origin", "DENY") == tuple(
        headers[each]
        for each in ("x-content-type-options", "referrer-policy", "cross-origin-opener-policy", "x-frame-options")
    )


@pytest.mark.parametrize("host", ["evil.test", "console.test:99", "127.0.0.1", ""])
async def test_unknown_host_is_refused(host: str) -> None:
    async with open_console() as client:
        response = await client.http.get("/api/v1/kinds", headers={"Host": host})

    assert (421, "host.unknown") == (response.status_code, response.json()["code"])


@pytest.mark.parametrize("hosts", [("console.test", "evil.test"), ("evil.test", "console.test"), ("console.test",) * 2])
@pytest.mark.parametrize("path", ["/api/v1/kinds", "/effects/"])
async def test_request_with_two_hosts_is_refused(hosts: tuple[str, str], path: str) -> None:
    async with open_console() as client:
        response = await client.http.get(path, headers=[("Host", each) for each in hosts])

    assert (400, "host.repeated") == (response.status_code, response.json()["code"])
    assert "location" not in response.headers


@pytest.mark.parametrize("length", ["9" * 5_000, "-1", "ten", "1e3"])
async def test_invalid_content_length_is_refused(length: str) -> None:
    async with open_console() as client:
        response = await client.http.get("/api/v1/kinds", headers={"Content-Length": length})

    assert (413, "body.size") == (response.status_code, response.json()["code"])


async def test_problems_are_not_cached() -> None:
    async with open_console() as client:
        found = [await client.http.get(path) for path in ("/api/v1/none", "/api/v1/entity/order/none", "/api/v1/me")]

    assert {"no-store"} == {each.headers["cache-control"] for each in found}


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("http://127.0.0.1:80", "http://127.0.0.1"),
        ("https://Console.Example.org:443/", "https://console.example.org"),
        ("https://console.example.org:8443", "https://console.example.org:8443"),
        ("http://[::1]:8470", "http://[::1]:8470"),
    ],
)
def test_origin_is_normalized_like_in_browsers(text: str, origin: str) -> None:
    assert origin == normalize_origin(text)


@pytest.mark.parametrize(
    "text", ["console.example.org", "ftp://x", "https://", "https://x/console", "https://a@x", "https://x:0x1", ""]
)
def test_invalid_origin_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        normalize_origin(text)

    assert "serve.origin" == caught.value.code


async def test_body_with_a_too_large_length_is_refused() -> None:
    async with open_console() as client:
        response = await client.post("send/order/A-1", {"event": "x", "payload": "y" * BODY_BYTES_MAX})

    assert (413, "body.size") == (response.status_code, response.json()["code"])


async def test_body_without_a_length_is_limited() -> None:
    async def pieces() -> object:
        for _ in range(BODY_BYTES_MAX // 1_000 + 2):
            yield b"x" * 1_000

    async with open_console() as client:
        headers = {"Origin": ORIGIN, "X-Interlock-CSRF": client.csrf, "Content-Type": "application/json"}
        response = await client.http.post("/api/v1/send/order/A-1", content=pieces(), headers=headers)  # type: ignore[arg-type]  # an async generator of bytes is what it takes

    assert (413, "body.size") == (response.status_code, response.json()["code"])


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[" * 100_000, b'{"event": ', b"null", b"5" * 5_000])
async def test_invalid_body_is_a_problem(body: bytes) -> None:
    async with open_console() as client:
        headers = {"Origin": ORIGIN, "X-Interlock-CSRF": client.csrf, "Content-Type": "application/json"}
        response = await client.http.post("/api/v1/send/order/A-1", content=body, headers=headers)

    assert (400, "body.malformed") == (response.status_code, response.json()["code"])


async def test_cookie_is_http_only_and_same_site() -> None:
    async with open_console() as client:
        cookie = (await client.post("logout")).headers["set-cookie"]

    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


@pytest.mark.parametrize(
    ("origins", "name"),
    [
        (["https://console.test"], "__Host-interlock"),
        (["http://127.0.0.1:8470", "http://localhost:8470"], "interlock-8470"),
        (["http://127.0.0.1:8471"], "interlock-8471"),
        (["http://console.test"], "interlock"),
        (["http://a.test:1", "http://b.test:2"], "interlock"),
    ],
)
async def test_servers_on_two_ports_have_different_cookies(origins: list[str], name: str) -> None:
    async with open_console() as client:
        _, console = application(client.runtime, client.console.access, origins=origins)

    assert name == console.cookie


async def test_wrong_method_is_a_problem() -> None:
    async with open_console() as client:
        response = await client.get("send/order/A-1")

    assert 405 == response.status_code
    assert "path.unknown" == response.json()["code"]
