"""The request for a send. `EntitySender.send` performs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from interlock.model.event import Event
from interlock.model.journal.attempts import PastAttempt
from interlock.model.journal.cause import Cause
from interlock.model.journal.work import WorkId
from interlock.model.step import Fault
from interlock.ports.tracer import Span
from interlock.runtime.entities.mailbox import Priority

EXPIRED = Fault("key.expired", "the key is older than the deduplication window; the event may have been applied before")


class SendRequest(Struct, frozen=True, gc=False):
    """An event for an entity.

    `expected` is the version that the caller expects. `refusal` is set when the request is to be refused unless its key
    is known; one of an unknown event does not count where the revision of the entity knows the event. `finishes` is the
    work of the entity that ends with the entry; with `fence`, only if that is still its newest attempt. `sent_ms` is
    when the event was first sent, for stores that know whether its key may have expired. `reason` is what the sender
    wrote about the event. `reader`: the sender gets what this reader may see, and `expected` is a version that they
    see. `former_key` is the key under which an earlier release may have recorded the same request.
    `has_tokens`: another entity sent it, with personal values of that entity. `cause` is that of the work which led to
    the event, `attempts` are those of the effect whose result it is. `spans` are those in which it is performed.
    """

    event: Event
    key: str
    expected: int | None = None
    trace: str | None = None
    refusal: Fault | None = None
    reason: str | None = None
    finishes: WorkId | None = None
    fence: int | None = None
    priority: Priority = Priority.CALLER
    sent_ms: int | None = None
    former_key: str | None = None
    reader: Mapping[str, Any] | None = None
    has_tokens: bool = False
    cause: Cause | None = None
    attempts: tuple[PastAttempt, ...] = ()
    spans: tuple[Span, ...] = ()
