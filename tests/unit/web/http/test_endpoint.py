"""Bodies in pieces, incomplete bodies, and the options of accepted sockets."""

import asyncio
import logging
import socket
from typing import Any

import pytest
from starlette.types import Message

from interlock.web.listening import bind_socket
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.web.consoles import KEY, Client, create_orders, open_console


async def sent(client: Client, *messages: Message) -> tuple[int, bytes]:
    """Return status and body of the response to a send in these ASGI messages."""
    left, answers = list(messages), list[Any]()

    async def receive() -> Message:
        return left.pop(0)

    async def send(message: Message) -> None:
        answers.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/send/order/A-1",
        "query_string": b"",
        "headers": [(b"host", b"console.test"), (b"authorization", f"Bearer {KEY}".encode())],
    }
    await client.app(scope, receive, send)
    return answers[0]["status"], b"".join(each.get("body", b"") for each in answers)


def piece(text: bytes, *, more: bool) -> Message:
    """Return a part of a body."""
    return {"type": "http.request", "body": text, "more_body": more}


async def test_body_in_pieces_is_joined() -> None:
    async with open_console() as client:
        await create_orders(client)
        whole = b'{"event":"payment.confirmed","payload":{"id":"p-9"}}'
        status, _ = await sent(client, piece(whole[:7], more=True), piece(b"", more=True), piece(whole[7:], more=False))
        now = await client.runtime.state("order/A-1")

    assert (200, 2, "p-9") == (status, now.version, now.context["payment"])


async def test_incomplete_body_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with open_console() as client:
        await create_orders(client)
        with caplog.at_level(logging.DEBUG, "interlock.web"):
            whole = b'{"event":"payment.confirmed","payload":{"id":"p-9"}}'
            status, body = await sent(client, piece(whole, more=True), {"type": "http.disconnect"})
        now = await client.runtime.state("order/A-1")

    assert (400, 1) == (status, now.version)
    assert b'"code":"body.cut"' in body
    assert [] == caplog.records


async def test_accepted_sockets_have_nagle_disabled() -> None:
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken: socket.socket = writer.get_extra_info("socket")
        found.set_result(taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listening = bind_socket("127.0.0.1", 0)
    async with await asyncio.start_server(accepted, sock=listening):
        with socket.create_connection(listening.getsockname()):
            is_set = await asyncio.wait_for(found, PATIENCE_SECONDS)

    assert is_set


async def test_a_repeated_query_parameter_is_refused() -> None:
    """A proxy in front might check another one of them than we use."""
    async with open_console() as client:
        response = await client.get("work?limit=5&limit=200")

    assert (400, "query.malformed") == (response.status_code, response.json()["code"])
