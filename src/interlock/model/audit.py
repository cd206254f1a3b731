"""A row of the audit: an attempt that no journal records, or what an operator or the audit itself did.

Rule 1: an attempt that wrote an entry is not repeated here: the journal is its row. Everything else is one row, or is
counted in a summary row, which has `count`, `first_ms` and `last_ms`.
Rule 2: the head of a row is the hash over the head before it and over its bytes. The first row of a tenant follows
`chain_start(STREAM, tenant=...)`.
Rule 3: rows become bytes in `encode_row` and nowhere else. There, text is made storable and cut, so that no sender can
make a row that a store does not accept.
Rule 4: rows that an earlier release wrote keep their bytes and their heads. They have a `former` number: their place in
the one chain that all tenants shared.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import CorruptionError
from interlock.model.actor import Actor, ActorKind, actor_of
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE
from interlock.model.journal.record import chain_start
from interlock.model.limits import AUDIT_NAME_BYTES_MAX, AUDIT_REASON_BYTES_MAX

STREAM = "audit"
FORMER_STREAM = "audit_refusal"
"""What the genesis of a chain binds: the stream; and that of earlier releases."""

HTTP_EVENT = "_http"
"""Prefix of the event of a request that was refused before it became an event; its method and its path follow."""

CHECKPOINT = "_audit.checkpoint"
"""The event of a row that contains a signed checkpoint."""

LOGIN, LOGOUT = "_login", "_logout"
"""The events of rows about a session of the HTTP interface that started, and one that its user ended."""

FLOOD = "rate.refused"
"""The code of an attempt that was refused, before anything was read, because too many of its sender were."""

UNKNOWN_PLACES = frozenset({"entity.malformed", "entity.unknown", "kind.unknown", FLOOD})
"""Codes of attempts whose entity does not exist, or was not looked up."""

TIMER = Actor("timer", "system")
WORKER = Actor("worker", "system")
LOCAL = Actor("", "system")
"""Actors without a principal: a timer, a worker with a result, and a program that named no sender."""


class AuditRow(Struct, frozen=True, omit_defaults=True, rename={"originator": "for"}):
    """An attempt or an act. `outcome` is `rejected`, `denied` or, for an act, `applied`; `reason` is its code.

    `originator` is the principal whose event caused this one. `state_from` are the atomic states of the entity; a store
    adds them if they are missing. `note` is what the sender wrote about it. `data` is for rows of the audit itself.
    """

    entity: str
    event: str
    outcome: str
    reason: str
    time_ms: int
    actor: str | None = None
    actor_kind: ActorKind | None = None
    originator: Actor | None = None
    trace: str | None = None
    state_from: tuple[str, ...] | None = None
    state_to: tuple[str, ...] | None = None
    key: str | None = None
    note: str | None = None
    count: int = 1
    first_ms: int | None = None
    last_ms: int | None = None
    data: Any = None

    @property
    def is_summary(self) -> bool:
        """Whether this row counts attempts."""
        return self.first_ms is not None

    @property
    def kind(self) -> str:
        """The kind of the entity."""
        return self.entity.partition("/")[0]

    @property
    def is_refusal(self) -> bool:
        """Whether an attempt on a known kind changed nothing. Senders choose other kinds freely, so none is counted."""
        is_known = self.reason not in UNKNOWN_PLACES and not self.event.startswith(HTTP_EVENT)
        return self.outcome != "applied" and is_known and self.entity != ""

    @property
    def wants_states(self) -> bool:
        """Whether a store adds the states of the entity."""
        is_attempt = self.outcome != "applied" and not self.is_summary and self.reason not in UNKNOWN_PLACES
        return self.state_from is None and is_attempt and "/" in self.entity


class AuditRecord(Struct, frozen=True):
    """A row as a store keeps it: its number in the chain of its tenant, its bytes and its head.

    `time_ms` and `actor` are what the store finds it by; they repeat what the bytes say. `former`: see rule 4.
    """

    sequence: int
    time_ms: int
    actor: str | None
    body: bytes
    head: str
    former: int | None = None

    def decode(self) -> AuditRow:
        """Return the row. Raises CorruptionError if the bytes are none."""
        try:
            return _decode_former(self.body) if self.former is not None else _decode_row(self.body)
        except msgspec.MsgspecError as error:
            message = f"cannot decode row {self.sequence} of the audit: {error}"
            raise CorruptionError(message, code="audit.row") from error

    def indexed(self) -> AuditRecord:
        """Return the record with the time and the actor of its bytes, for a store that has no columns for them."""
        try:
            row = _decode_row(self.body)
        except msgspec.MsgspecError:
            return self
        return replace(self, time_ms=row.time_ms, actor=index_actor(row.actor))


class _FormerRow(Struct):
    """A row of a release that recorded refusals and actions of operators only."""

    entity: str
    event: str
    outcome: str
    reason: str
    time_ms: int
    principal: str | None = None
    trace: str | None = None


_rows = msgspec.json.Decoder(AuditRow)
_former_rows = msgspec.json.Decoder(_FormerRow)


def _decode_row(body: bytes) -> AuditRow:
    return _rows.decode(body)


def _decode_former(body: bytes) -> AuditRow:
    found = _former_rows.decode(body)
    return AuditRow(
        found.entity, found.event, found.outcome, found.reason, found.time_ms, actor=found.principal, trace=found.trace
    )


def decode_former_row(line: bytes) -> AuditRow | None:
    """Return the row of a line of an earlier release; None if it is not one."""
    try:
        return _decode_former(line)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def first_head(tenant: str) -> str:
    """Return the head before the first row of a tenant."""
    return chain_start(STREAM, tenant=tenant)


def next_head(head: str, body: bytes) -> str:
    """Return the head of a row, from the head before it and its bytes."""
    return blake2b(head.encode() + body, digest_size=16).hexdigest()


def build_record(row: AuditRow, *, sequence: int, previous: str) -> AuditRecord:
    """Return a row as it is stored after the head `previous`."""
    body = encode_row(row)
    return AuditRecord(sequence, row.time_ms, index_actor(row.actor), body, next_head(previous, body))


def encode_row(row: AuditRow) -> bytes:
    """Return the bytes of a row, its text made storable and cut."""
    try:
        body = encode(row)
    except UnicodeEncodeError:
        body = b""
    if not body or b"\\u0000" in body or len(body) > AUDIT_NAME_BYTES_MAX:  # seldom: then each text is looked at
        body = encode(_storable_row(row))
    return body


def _storable_row(row: AuditRow) -> AuditRow:
    return replace(
        row,
        entity=storable(row.entity),
        event=storable(row.event),
        reason=storable(row.reason, AUDIT_REASON_BYTES_MAX),
        actor=index_actor(row.actor),
        originator=None if row.originator is None else replace(row.originator, id=storable(row.originator.id)),
        trace=None if row.trace is None else storable(row.trace),
        key=None if row.key is None else storable(row.key),
        note=None if row.note is None else storable(row.note, AUDIT_REASON_BYTES_MAX),
    )


def storable(text: str, bytes_max: int = AUDIT_NAME_BYTES_MAX) -> str:
    """Return text that every store accepts: NUL and lone surrogates become U+FFFD; then it is cut."""
    valid = text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return valid.encode()[:bytes_max].decode(errors="ignore")


def index_actor(actor: str | None) -> str | None:
    """Return the id by which a store finds the rows of an actor: the id, or a digest if it is long."""
    if actor is None:
        return None
    name = storable(actor, len(actor) * 4)
    if len(name.encode()) <= AUDIT_NAME_BYTES_MAX:
        return name
    return f"sha:{blake2b(name.encode(), digest_size=16).hexdigest()}"


# Who acted


def actor_of_event(event: Event) -> Actor:
    """Return who caused an event: its principal; without one, the timer, worker, parent or local program."""
    found = actor_of(event.principal)
    if found is not None:
        return found
    if event.source is not None:
        return TIMER if event.source.startswith("timer/") else WORKER
    if event.name == CREATE:
        parent = event.data.get("parent") if isinstance(event.data, dict) else None
        return Actor(str(parent["entity"]), "system") if isinstance(parent, dict) and "entity" in parent else LOCAL
    return LOCAL if event.type == "external" else WORKER
