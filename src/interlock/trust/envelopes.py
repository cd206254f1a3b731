"""Signed envelopes from outside (Standard Webhooks): who sent one, is it authentic and recent, and what does it mean.

    [[sender]]
    id = "till"
    secrets = [{id = "2026-11", secret = "whsec_..."}]
    roles = ["payments"]
    entity = "= 'order/' + event.data.order"
    event = "payment.confirmed"

Rule 1: checks have one order: length, form of the timestamp, form of the id, signature over the raw bytes, age, JSON,
the meaning; then the runtime checks the payload and authorizes the event.
Rule 2: the principal is that of the table, never of the message.
Rule 3: until the signature is verified, every refusal is the same, and nothing of the body is parsed.
Rule 4: the id of an envelope becomes the key of the event (`model.keys.envelope_key`), which the append remembers.
Nothing is remembered before, so the retry of a failed delivery is not a duplicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from interlock.errors import UsageError
from interlock.expression.codegen import Compiled, EvaluationError, Meter, compile_parsed
from interlock.expression.parser import ExpressionError, parse
from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.event import Event
from interlock.model.limits import ENVELOPE_AGE_MS_MAX, PAYLOAD_BYTES_MAX, SIGNATURES_MAX, WORK_MAX
from interlock.model.webhook_signature import ID_FORM, TIMESTAMP_FORM, SecretTable, is_signed, signing_keys
from interlock.trust.users import Roles, User, role_names, timed_roles

Name = Annotated[str, Meta(min_length=1, max_length=200)]


class SenderTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A `[[sender]]`. `entity`, `event` and `payload` are texts, or expressions over the body, `event.data`."""

    id: Annotated[str, Meta(pattern="^[A-Za-z0-9_~-]{1,64}$")]
    secrets: Annotated[tuple[SecretTable, ...], Meta(min_length=1, max_length=SIGNATURES_MAX)]
    kind: Literal["service", "user"] = "service"
    roles: Roles = ()
    kinds: tuple[Name, ...] | None = None
    entity: str = "= event.data.subject"
    event: str = "= event.data.type"
    payload: str = '= get(event.data, "data", null)'


class Delivery(Struct, frozen=True):
    """What an envelope asks for."""

    entity: str
    event: str
    payload: Any


class EnvelopeError(Exception):
    """An envelope is not authentic or not recent. `code` is for the log; the caller learns nothing."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Sender:
    """A sender of envelopes. Raises UsageError for an invalid key or expression."""

    def __init__(self, table: SenderTable) -> None:
        self.table = table
        self.keys = signing_keys(table.secrets, f"the table of the sender `{table.id}`")
        names = role_names(table.roles)
        self.user = User(
            principal={"id": table.id, "kind": table.kind, "roles": names},
            rights=frozenset({"send"}),
            kinds=None if table.kinds is None else frozenset(table.kinds),
            timed_roles=timed_roles(table.roles),
        )
        self._fields = {name: _field(table, name) for name in ("entity", "event", "payload")}

    def check(self, headers: Mapping[str, str], body: bytes, *, now_ms: int) -> tuple[str, int]:
        """Return the id and the time of an authentic, recent envelope. Raises EnvelopeError.

        `headers` has `webhook-id`, `webhook-timestamp` and `webhook-signature`.
        """
        if len(body) > PAYLOAD_BYTES_MAX:
            raise EnvelopeError("envelope.size")
        message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if TIMESTAMP_FORM.fullmatch(timestamp) is None:
            raise EnvelopeError("envelope.timestamp")
        if ID_FORM.fullmatch(message_id) is None:
            raise EnvelopeError("envelope.id")
        signatures = headers.get("webhook-signature", "")
        if not is_signed(self.keys, message_id, timestamp, body, signatures, now_ms=now_ms):
            raise EnvelopeError("envelope.signature")
        sent_ms = int(timestamp) * 1000
        if abs(now_ms - sent_ms) > ENVELOPE_AGE_MS_MAX:
            raise EnvelopeError("envelope.age")
        return message_id, sent_ms

    def delivery(self, body: bytes) -> Delivery:
        """Return what the body of a checked envelope asks for. Raises UsageError."""
        try:
            data = msgspec.json.decode(body)
        except UNDECODABLE:
            raise UsageError("the body is not JSON", code="envelope.malformed") from None
        event = Event("envelope", data)
        found = {name: self._value(name, event) for name in self._fields}
        for name in ("entity", "event"):
            if not isinstance(found[name], str):
                hint = f"set `{name}` of the sender to a text, or to an expression over event.data"
                raise UsageError(f"the envelope names no {name}", code="envelope.meaning", hint=hint)
        return Delivery(found["entity"], found["event"], found["payload"])

    def _value(self, name: str, event: Event) -> Any:
        given = self._fields[name]
        if isinstance(given, str):
            return given
        try:
            return given.function({}, event, None, frozenset(), Meter(WORK_MAX), {})
        except (EvaluationError, LookupError, TypeError, ArithmeticError, AttributeError):
            return None


def _field(table: SenderTable, name: str) -> str | Compiled:
    text: str = getattr(table, name)
    if not text.startswith("="):
        return text
    try:
        return compile_parsed(parse(text[1:].strip(), names=frozenset({"event"})), inside={})
    except ExpressionError as error:
        what = str(error)[:200]
        raise UsageError(f"`{name}` of the sender `{table.id}` is invalid: {what}", code="envelope.field") from None
