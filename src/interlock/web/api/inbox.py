"""The inbox: signed envelopes of senders outside (Standard Webhooks) become events.

Rule 1: it needs no key and no session: the signature says who sends. A refusal before the signature is verified is
always the same 401; the log says why. It counts against the address of the caller.
Rule 2: an answer of the domain is 200 with the outcome, also `rejected`, because a sender repeats everything else for
days. 4xx means that the sender's side must change something, 429 and 503 that the same envelope can be sent again.
Rule 3: an envelope with an id that was used for the same entity is a `duplicate`, for as long as keys are remembered.
"""

from __future__ import annotations

import logging

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from interlock.errors import DeniedError
from interlock.model.encoding.codec import encode
from interlock.model.keys import envelope_key
from interlock.model.limits import PAYLOAD_BYTES_MAX
from interlock.runtime.request_checks import check_entity
from interlock.trust.envelopes import EnvelopeError
from interlock.trust.rate_limits import RequestClass
from interlock.web.http.console import Console
from interlock.web.http.endpoint import BASE, count_anonymous, read_body, record_stranger, traceparent_of
from interlock.web.http.errors import HttpProblem, problem_of, problem_response, retry_headers

_log = logging.getLogger("interlock.web")


class InboxView(Struct, frozen=True, omit_defaults=True):
    """The result of an envelope."""

    outcome: str
    entity: str
    version: int | None = None
    reason: str | None = None


def inbox_route(console: Console) -> Route:
    """Return the route of the inbox."""
    return Route(f"{BASE}/inbox/{{sender}}", _Inbox(console), methods=["POST"])


class _Inbox:
    def __init__(self, console: Console) -> None:
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            view = await self._take(request)
            answer = Response(encode(view), media_type="application/json", headers={"Cache-Control": "no-store"})
        except Exception as error:  # noqa: BLE001 - the edge: every error becomes a response
            status, body = problem_of(error)
            if body["code"] == "internal":
                _log.exception("an envelope failed")
            answer = problem_response(status, body, retry_headers(error))
        await answer(scope, receive, send)

    async def _take(self, request: Request) -> InboxView:
        console, name = self._console, str(request.path_params["sender"])
        await console.access.refresh()
        sender = console.access.senders.get(name)
        body = await read_body(request, bytes_max=PAYLOAD_BYTES_MAX)
        try:
            if sender is None:
                raise EnvelopeError("envelope.sender")
            message_id, sent_ms = sender.check(request.headers, body, now_ms=console.clock.now_ms())
        except EnvelopeError as error:
            _log.info("an envelope was refused", extra={"code": error.code})
            await record_stranger(console, request, error.code)
            count_anonymous(console, request)
            raise HttpProblem(401, "Unauthorized", "the envelope was refused", code="envelope.refused") from None
        console.rates.count(RequestClass.SEND, sender.user.name)
        if console.read_only:
            raise DeniedError("read-only console", code="console.read_only", hint="start it without --read-only")
        user = sender.user.at(console.clock.now_ms())
        assert user is not None  # a sender has no end
        delivery = sender.delivery(body)
        kind = check_entity(delivery.entity)
        if user.kinds is not None and kind not in user.kinds:
            raise DeniedError(f"`{name}` may not send to this kind", code="kind.foreign")
        console.check_sendable(kind)
        receipt = await console.runtime.submit(
            delivery.entity,
            delivery.event,
            delivery.payload,
            key=envelope_key(name, message_id),
            principal=dict(user.principal),
            trace=traceparent_of(request),
            sent_ms=sent_ms,
        )
        if receipt.outcome == "denied":
            raise DeniedError(f"`{name}` may not send this event", code="envelope.denied")
        is_refused = receipt.outcome == "rejected"
        version = None if is_refused else receipt.version
        return InboxView(receipt.outcome, receipt.entity, version, receipt.reason if is_refused else None)
