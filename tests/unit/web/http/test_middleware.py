"""What every request passes and every response carries."""

import pytest

from interlock.errors import UsageError
from interlock.web.app import application, normalize_origin
from interlock.web.http.middleware import BODY_BYTES_MAX
from tests.unit.web.consoles import ORIGIN, opened


@pytest.mark.parametrize(
    "path",
    ["/", "/e/order/A-1", "/static/app.css", "/static/none.js", "/api/v1/kinds", "/none", "/api/v1/openapi.json"],
)
async def test_every_response_forbids_what_does_not_come_from_here(path: str) -> None:
    """Scripts, styles, frames, referrers: the same for pages, answers and problems."""
    async with opened() as client:
        headers = (await client.http.get(path)).headers

    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert ("nosniff", "no-referrer", "same-origin", "DENY") == tuple(
        headers[each]
        for each in ("x-content-type-options", "referrer-policy", "cross-origin-opener-policy", "x-frame-options")
    )


@pytest.mark.parametrize("host", ["evil.test", "console.test:99", "127.0.0.1", ""])
async def test_a_host_that_is_not_ours_is_refused(host: str) -> None:
    """A name that somebody else points at this machine leads nowhere."""
    async with opened() as client:
        response = await client.http.get("/api/v1/kinds", headers={"Host": host})

    assert (421, "host.unknown") == (response.status_code, response.json()["code"])


@pytest.mark.parametrize("hosts", [("console.test", "evil.test"), ("evil.test", "console.test"), ("console.test",) * 2])
@pytest.mark.parametrize("path", ["/api/v1/kinds", "/effects/"])
async def test_a_request_with_two_hosts_is_refused(hosts: tuple[str, str], path: str) -> None:
    """One reader would believe the first and another the last; a redirect would lead to the foreign one."""
    async with opened() as client:
        response = await client.http.get(path, headers=[("Host", each) for each in hosts])

    assert (400, "host.repeated") == (response.status_code, response.json()["code"])
    assert "location" not in response.headers


@pytest.mark.parametrize("length", ["9" * 5_000, "-1", "ten", "1e3"])
async def test_a_length_that_is_none_is_refused(length: str) -> None:
    """So is one with more digits than a number may have."""
    async with opened() as client:
        response = await client.http.get("/api/v1/kinds", headers={"Content-Length": length})

    assert (413, "body.size") == (response.status_code, response.json()["code"])


async def test_no_problem_is_kept_by_what_stands_between() -> None:
    """It may hold a receipt, and what is not there for one may be there for another."""
    async with opened() as client:
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
def test_an_origin_is_known_as_browsers_write_it(text: str, origin: str) -> None:
    """They leave out the port that a scheme has anyway, in the origin and in the host."""
    assert origin == normalize_origin(text)


@pytest.mark.parametrize(
    "text", ["console.example.org", "ftp://x", "https://", "https://x/console", "https://a@x", "https://x:0x1", ""]
)
def test_an_origin_that_no_browser_sends_is_refused(text: str) -> None:
    """Else the server would start and refuse everybody."""
    with pytest.raises(UsageError) as caught:
        normalize_origin(text)

    assert "serve.origin" == caught.value.code


async def test_a_body_that_is_too_long_is_refused_by_its_length() -> None:
    """It is not read first."""
    async with opened() as client:
        response = await client.post("send/order/A-1", {"event": "x", "payload": "y" * BODY_BYTES_MAX})

    assert (413, "body.size") == (response.status_code, response.json()["code"])


async def test_a_body_without_a_length_is_counted_as_it_comes() -> None:
    """Sending it in pieces gets nobody around the bound."""

    async def pieces() -> object:
        for _ in range(BODY_BYTES_MAX // 1_000 + 2):
            yield b"x" * 1_000

    async with opened() as client:
        headers = {"Origin": ORIGIN, "X-Interlock-CSRF": client.csrf, "Content-Type": "application/json"}
        response = await client.http.post("/api/v1/send/order/A-1", content=pieces(), headers=headers)  # type: ignore[arg-type]  # an async generator of bytes is what it takes

    assert (413, "body.size") == (response.status_code, response.json()["code"])


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[" * 100_000, b'{"event": ', b"null", b"5" * 5_000])
async def test_a_body_that_does_not_read_is_a_problem(body: bytes) -> None:
    """Bad bytes, nesting without end, numbers without end: 400, never 500."""
    async with opened() as client:
        headers = {"Origin": ORIGIN, "X-Interlock-CSRF": client.csrf, "Content-Type": "application/json"}
        response = await client.http.post("/api/v1/send/order/A-1", content=body, headers=headers)

    assert (400, "body.malformed") == (response.status_code, response.json()["code"])


async def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites() -> None:
    """HttpOnly and SameSite=Strict."""
    async with opened() as client:
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
async def test_two_consoles_of_one_machine_have_two_cookies(origins: list[str], name: str) -> None:
    """Cookies know no ports: under one name each login would end that of the other."""
    async with opened() as client:
        _, console = application(client.runtime, client.console.access, origins=origins)

    assert name == console.cookie


async def test_a_get_changes_nothing_and_a_wrong_method_is_told() -> None:
    """Sending by GET is not possible."""
    async with opened() as client:
        response = await client.get("send/order/A-1")

    assert 405 == response.status_code
    assert "path.unknown" == response.json()["code"]
