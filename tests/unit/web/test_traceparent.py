"""The trace of a request: read from its header, and ignored where it is not valid."""

from __future__ import annotations

import pytest

from tests.unit.web.consoles import ORIGIN, open_console

SENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(("header", "stored"), [(SENT, SENT), ("not-a-trace", None), (SENT.replace("-01", "-1"), None)])
async def test_the_traceparent_of_a_request_is_that_of_its_entry(header: str, stored: str | None) -> None:
    headers = {"traceparent": header}
    async with open_console() as client:
        await client.post("kinds/order/entities", {"id": "9", "context": {"amount": 3}}, headers)
        sent = await client.post("send/order/9", {"event": "payment.confirmed", "payload": {"id": "p"}}, headers)
        entries = await client.runtime.journal("order/9")

    assert 200 == sent.status_code
    assert [stored, stored] == [each.trace for each in entries]


async def test_a_repeated_traceparent_is_ignored() -> None:
    async with open_console() as client:
        headers = [("Origin", ORIGIN), ("X-Interlock-CSRF", client.csrf), ("traceparent", SENT), ("traceparent", SENT)]
        body = {"id": "9", "context": {"amount": 3}}
        answer = await client.http.post("/api/v1/kinds/order/entities", json=body, headers=headers)
        (entry,) = await client.runtime.journal("order/9")

    assert (200, None) == (answer.status_code, entry.trace)
