"""Webhooks: signed, never redirected, limited in time; and the meaning of each status."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from http.client import HTTPResponse, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.buses import webhook
from interlock.errors import DeniedError, InterlockError, NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.journal.message import CONTENT_TYPE, Message, decode_message
from interlock.model.webhook_signature import ID_FORM, SecretTable, is_signed, parse_key, sign
from interlock.ports.replaced_file import replace_file
from interlock.trust.envelopes import Sender, SenderTable
from tests.support.eventually import PATIENCE_SECONDS

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + "c2VjcmV0" * 5
MESSAGE = Message(id="order/A.1/7/0", source="/shop/order", type="order.paid", data={"n": 1})


class Endpoint(ThreadingHTTPServer):
    """A receiver that answers as the test says, and records the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.status = 204
        self.location: str | None = None
        self.answer = b""
        self.closes = False
        self.silent = threading.Event()
        self.silent.set()
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has disconnected: some tests cut it off."""

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}/hook?tenant=7#private=1"


class Receiver(BaseHTTPRequestHandler):
    """One connection to the endpoint."""

    protocol_version = "HTTP/1.1"
    server: Endpoint

    def setup(self) -> None:
        """Count it."""
        super().setup()
        self.server.connections += 1

    def do_POST(self) -> None:
        """Keep what came, and answer."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        self.server.silent.wait(PATIENCE_SECONDS)
        self.send_response(self.server.status)
        if self.server.location is not None:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)
        self.close_connection = self.server.closes

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """A receiver on this machine, ended afterwards."""
    monkeypatch.setenv("INTERLOCK_WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # which must not be used
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.silent.set()
    server.shutdown()
    thread.join()
    server.server_close()


async def posted(url: str, *messages: Message) -> None:
    """Send messages, one after another."""
    bus = webhook.open_bus(url)
    try:
        for each in messages or (MESSAGE,):
            await bus.publish(each)
    finally:
        await bus.close()


def test_signatures_match_the_example_of_standard_webhooks() -> None:
    found = sign(webhook.keys_of(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == found


async def test_a_message_is_posted_signed_and_once(endpoint: Endpoint) -> None:
    await posted(endpoint.url)
    ((path, headers, body),) = endpoint.seen

    assert ("/hook?tenant=7", CONTENT_TYPE) == (path, headers["content-type"])
    assert MESSAGE == decode_message(body)
    assert "%2Fshop%2Forder%23order%2FA%2E1%2F7%2F0" == headers["webhook-id"]
    assert ID_FORM.fullmatch(headers["webhook-id"])
    seconds = int(headers["webhook-timestamp"])
    assert headers["webhook-signature"] == sign(webhook.keys_of(SECRET), headers["webhook-id"], seconds, body)


async def test_the_trace_of_a_message_is_a_header_if_it_is_a_traceparent(endpoint: Endpoint) -> None:
    sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await posted(endpoint.url, MESSAGE, replace(MESSAGE, trace=sent), replace(MESSAGE, trace="a\r\nb: c"))

    assert [None, sent, None] == [headers.get("traceparent") for _, headers, _ in endpoint.seen]
    assert [False, False, False] == ["b" in headers for _, headers, _ in endpoint.seen]


@pytest.mark.parametrize("path", ["a b", "käse", "x?q=\x7f"])
def test_a_path_with_invalid_characters_is_refused_when_opened(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("INTERLOCK_WEBHOOK_SECRET", SECRET)
    with pytest.raises(UsageError) as caught:
        webhook.open_bus(f"https://hooks.example/{path}")

    assert "bus.address" == caught.value.code


async def test_two_secrets_both_sign(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTATED", f"{OTHER} {SECRET}")
    await posted(f"{endpoint.url}&secret=ROTATED")
    ((_, headers, _),) = endpoint.seen

    assert 2 == len(set(headers["webhook-signature"].split()))


async def test_connections_are_reused_and_a_closed_one_is_replaced(endpoint: Endpoint) -> None:
    bus = webhook.open_bus(endpoint.url)
    try:
        await bus.publish(MESSAGE)
        endpoint.closes = True
        await bus.publish(MESSAGE)
        await bus.publish(MESSAGE)
    finally:
        await bus.close()

    assert 3 == len(endpoint.seen)
    assert endpoint.connections <= 3


ANSWERS: list[tuple[int, type[InterlockError], str]] = [
    (301, DeniedError, "bus.redirect"),
    (307, DeniedError, "bus.redirect"),
    (400, DeniedError, "bus.refused"),
    (401, DeniedError, "bus.denied"),
    (404, NotFoundError, "bus.stream"),
    (410, RejectedError, "bus.gone"),
    (413, RejectedError, "bus.size"),
    (429, UnavailableError, "bus.away"),
    (500, DeniedError, "bus.refused"),
    (503, UnavailableError, "bus.away"),
]


@pytest.mark.parametrize(("status", "kind", "code"), ANSWERS)
async def test_each_status_has_an_error_class(
    endpoint: Endpoint, status: int, kind: type[InterlockError], code: str
) -> None:
    endpoint.status, endpoint.location, endpoint.answer = status, endpoint.url, b"internal secrets"
    with pytest.raises(InterlockError) as caught:
        await posted(endpoint.url)

    assert (kind, code) == (type(caught.value), caught.value.code)
    assert "internal" not in str(caught.value)
    assert 1 == len(endpoint.seen)


async def test_an_endless_response_costs_its_connection_and_not_the_message(endpoint: Endpoint) -> None:
    endpoint.status, endpoint.answer = 200, b"x" * (webhook.RESPONSE_BYTES_MAX + 10)

    await posted(endpoint.url, MESSAGE, MESSAGE)
    assert (2, 2) == (len(endpoint.seen), endpoint.connections)


async def test_a_silent_endpoint_is_unreachable(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "SECONDS", 0.2)
    endpoint.silent.clear()
    with pytest.raises(UnavailableError) as caught:
        await posted(endpoint.url)
    endpoint.silent.set()

    assert "bus.away" == caught.value.code


@pytest.mark.parametrize(
    ("started", "sent"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\n\r\n", True),
    ],
)
async def test_an_endpoint_that_responds_byte_by_byte_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, started: bytes, sent: bool
) -> None:
    monkeypatch.setenv("INTERLOCK_WEBHOOK_SECRET", SECRET)
    monkeypatch.setattr(webhook, "SECONDS", 0.3)
    ending, ended = asyncio.Event(), asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(started)
        try:
            while not ending.is_set():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            pass
        finally:
            writer.close()
            ended.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with nullcontext() if sent else pytest.raises(UnavailableError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await posted(f"http://127.0.0.1:{port}/#private=1")
    finally:
        ending.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ended.wait()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("error", [ConnectionResetError, IncompleteRead(b"")], ids=["reset", "no chunk"])
async def test_a_response_that_breaks_off_after_its_status_counts(
    monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint, error: Exception
) -> None:
    def broken(self: HTTPResponse, amt: int | None = None) -> bytes:
        raise error

    monkeypatch.setattr(HTTPResponse, "read", broken)
    await posted(endpoint.url)

    assert 1 == len(endpoint.seen)


async def test_a_closed_port_and_garbage_mean_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_WEBHOOK_SECRET", SECRET)

    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x01 what?\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/#private=1"
    try:
        with pytest.raises(UnavailableError):
            await posted(url)
    finally:
        server.close()
        await server.wait_closed()
    with pytest.raises(UnavailableError):
        await posted(url)


async def test_a_system_that_refuses_threads_puts_the_message_off(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that sends, and the one that ends an attempt in time; then it is sent."""
    bus = webhook.open_bus(endpoint.url)
    message = MESSAGE

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    real = threading.Thread.start
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(UnavailableError) as first:
            await bus.publish(message)
        patch.setattr(
            threading.Thread, "start", lambda each: refuse(each) if isinstance(each, threading.Timer) else real(each)
        )
        with pytest.raises(UnavailableError) as second:
            await bus.publish(message)
    await bus.publish(message)
    await bus.close()

    assert ["process.threads"] * 2 == [first.value.code, second.value.code]


def secrets_file(folder: Path, *tables: str) -> Path:
    """Write a file of signing keys."""
    file = folder / "webhooks.toml"
    replace_file(file, "".join(f"[[secret]]\n{each}\n" for each in tables).encode(), mode=0o600)
    return file


async def test_a_message_is_signed_by_the_keys_that_are_valid_when_it_is_sent(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    ended, later = "not_after = 2020-01-01T00:00:00Z", "not_before = 2999-01-01T00:00:00Z"
    old, new = f'id = "old"\nsecret = "{SECRET}"', f'id = "new"\nsecret = "{OTHER}"'
    file = secrets_file(tmp_path, old, f"{new}\n{later}")
    bus = webhook.open_bus(f"{endpoint.url}&keys={file}")
    try:
        await bus.publish(MESSAGE)
        secrets_file(tmp_path, old, new)
        await bus.publish(MESSAGE)
        secrets_file(tmp_path, "no table")  # the last valid content counts
        await bus.publish(MESSAGE)
        secrets_file(tmp_path, f"{old}\n{ended}", new)
        await bus.publish(MESSAGE)
        secrets_file(tmp_path, f"{old}\n{ended}", f"{new}\n{later}")
        with pytest.raises(DeniedError) as caught:
            await bus.publish(MESSAGE)
    finally:
        await bus.close()

    found = []
    for _, headers, body in endpoint.seen:
        given = headers["webhook-id"], headers["webhook-timestamp"], body, headers["webhook-signature"]
        keys = (parse_key(each, "a test") for each in (SECRET, OTHER))
        found.append([is_signed([each], *given, now_ms=0) for each in keys])
    assert [[True, False], [True, True], [True, True], [False, True]] == found
    assert "bus.unsigned" == caught.value.code


@pytest.mark.parametrize(
    ("text", "mode", "code"),
    [
        (f'[[secret]]\nid = "a"\nsecret = "{SECRET}"\n', 0o644, "keys.mode"),
        ("", 0o600, "keys.malformed"),
        ('[[secret]]\nid = "a"\nsecret = "whsec_c2hvcnQ="\n', 0o600, "bus.secret"),
        (f'[[secret]]\nid = "a"\nsecret = "{SECRET}"\nnot_after = 2020-01-01T00:00:00\n', 0o600, "keys.malformed"),
        (f'[[secret]]\nid = "a"\nsecret = "{SECRET}"\nexpires = 5\n', 0o600, "keys.malformed"),
    ],
)
def test_an_unusable_file_of_keys_is_refused_when_opened(tmp_path: Path, text: str, mode: int, code: str) -> None:
    file = tmp_path / "webhooks.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    with pytest.raises(UsageError) as caught:
        webhook.open_bus(f"https://hooks.example/#keys={file}")

    assert code == caught.value.code
    assert "MfKQ" not in str(caught.value)


async def test_what_a_relay_sends_an_inbox_accepts(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    await posted(endpoint.url)
    ((_, headers, body),) = endpoint.seen
    sender = Sender(SenderTable(id="shop", secrets=(SecretTable("a", SECRET),), event="order.cancelled"))
    now_ms = int(headers["webhook-timestamp"]) * 1000

    assert (headers["webhook-id"], now_ms) == sender.check(headers, body, now_ms=now_ms)
