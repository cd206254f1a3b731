"""The values that pass between clients, workflows and activities: JSON, readable in Temporal's own tools.

Rule: values of `model` are encoded as they are stored. A field that is added later has a default: histories are read by
later releases.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    BinaryNullPayloadConverter,
    BinaryPlainPayloadConverter,
    CompositePayloadConverter,
    DataConverter,
    EncodingPayloadConverter,
)

from interlock.errors import (
    ConflictError,
    CorruptionError,
    DeniedError,
    InterlockError,
    InternalError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    UsageError,
)
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import Work
from interlock.model.journal.work_state import WorkState
from interlock.model.limits import ENGINE_CONTINUE_AFTER, LEASE_MS
from interlock.model.snapshot import Parent, Snapshot
from interlock.ports.engine import EngineRequest

WORKFLOW = "Interlock"
"""The type of every workflow of this engine."""

TASK_MAX = timedelta(seconds=5)
"""How long the server waits for a workflow task: so long an entity stands still after a kill -9 in one. A step takes at
most a second."""

SEND, RECEIVE = "send", "receive"
"""Updates: an event of a caller, and an event of another entity."""

LOOK, READ, DEFINITION = "look", "read", "definition"
"""Queries: the entity, its entries, and the definition that it runs on."""

EFFECT, DELIVER, CHILD = "interlock.effect", "interlock.deliver", "interlock.child"
EXAMINE, MIRROR = "interlock.examine", "interlock.mirror"
"""Activities."""

REFUSED = "interlock.refused"
"""The type of the error by which a validator refuses an Update; its detail is an `Answer`."""


class _StructConverter(EncodingPayloadConverter):
    """JSON, by the encoder of stored values."""

    encoding = "json/plain"

    def to_payload(self, value: Any) -> Payload:
        return Payload(metadata={"encoding": b"json/plain"}, data=encode(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return msgspec.json.decode(payload.data, type=Any if type_hint is None else type_hint)


class StructPayloadConverter(CompositePayloadConverter):
    """Converts the values of this module."""

    def __init__(self) -> None:
        super().__init__(BinaryNullPayloadConverter(), BinaryPlainPayloadConverter(), _StructConverter())


CONVERTER = DataConverter(payload_converter_class=StructPayloadConverter)
"""The data converter of every client of this engine."""


class ErrorFacts(Struct, frozen=True, omit_defaults=True):
    """One of our errors."""

    kind: str
    code: str
    message: str
    hint: str | None = None


class Answer(Struct, frozen=True, omit_defaults=True):
    """The answer to an Update: a receipt or an error, and the call that it answers."""

    call: str
    receipt: Receipt | None = None
    error: ErrorFacts | None = None


class Call(Struct, frozen=True, omit_defaults=True):
    """A request of one caller."""

    call: str
    request: EngineRequest


class KeyRecord(Struct, frozen=True, omit_defaults=True, array_like=True):
    """What is remembered of a key: the version of its entry, when it was written, and the call that used it."""

    version: int
    time_ms: int
    call: str | None = None


class CarriedWork(Struct, frozen=True, omit_defaults=True):
    """A piece of work and its state."""

    work: Work
    state: WorkState


class StartedChild(Struct, frozen=True, omit_defaults=True):
    """A child that this entity has started. `seed`: the key of the invoke and the number of restarts."""

    seed: str
    entity: str
    created_ms: int


class Carried(Struct, frozen=True, omit_defaults=True):
    """An entity as one history hands it to the next, and as it is when its workflow ends.

    `lines` are records from the version after `dropped` on, and `base` is the hash before them. The mirror lacks the
    newest `unmirrored` of them. `forgotten_ms`: up to when keys were forgotten.
    """

    snapshot: Snapshot
    changed_ms: int
    created_ms: int
    head: str
    size: int
    keys: dict[str, KeyRecord]
    active: dict[str, int]
    tags: tuple[str, ...] = ()
    base: str = ""
    lines: tuple[str, ...] = ()
    dropped: int = 0
    unmirrored: int = 0
    forgotten_ms: int | None = None
    work: tuple[CarriedWork, ...] = ()
    children: tuple[StartedChild, ...] = ()


class CarriedDefinition(Struct, frozen=True, omit_defaults=True):
    """The definition that an entity runs on."""

    kind: str
    revision: str
    body: str
    label: str | None = None
    names: tuple[str, ...] = ()
    written_name: str | None = None


class Settings(Struct, frozen=True, omit_defaults=True):
    """What the process that created an entity decided for all of its workflow.

    `queue` is the start of the names of the task queues.
    """

    queue: str
    lists: bool = True
    mirrored: bool = False
    continue_after: int = ENGINE_CONTINUE_AFTER
    lease_ms: int = LEASE_MS


class Start(Struct, frozen=True, omit_defaults=True):
    """The argument of a workflow: the creation of an entity, or what an earlier history carries over.

    `functions` are the hashes of the functions that its chart needs.
    """

    entity: str
    revision: str
    definition: CarriedDefinition | None
    settings: Settings
    event: Event | None = None
    key: str = ""
    trace: str | None = None
    reason: str | None = None
    depth: int = 0
    carried: Carried | None = None
    functions: dict[str, str] = {}


class EntityView(Struct, frozen=True, omit_defaults=True):
    """The answer to a query for an entity. `key_version`: the version of the entry with the key that was asked for."""

    snapshot: Snapshot
    changed_ms: int
    created_ms: int
    active: dict[str, int]
    tags: tuple[str, ...] = ()
    key_version: int | None = None


class Page(Struct, frozen=True, omit_defaults=True):
    """Records of a journal, the hash before them, and the version before the first that the workflow has."""

    lines: tuple[str, ...]
    dropped: int = 0
    previous: str = ""


class EffectCall(Struct, frozen=True, omit_defaults=True):
    """A piece of work for a handler, and the attempts and failures before this activity."""

    entity: str
    work: Work
    attempts: int = 0
    failures: int = 0


class EffectResult(Struct, frozen=True, omit_defaults=True):
    """The result of a handler: a value, or the failure after which it is not tried again."""

    value: Any = None
    failure: dict[str, Any] | None = None
    attempts: int = 1
    failures: int = 0
    facts: dict[str, Any] | None = None
    is_settled: bool = False


class Delivery(Struct, frozen=True, omit_defaults=True):
    """An event of one entity for another."""

    sender: str
    key: str
    target: str
    event: Event


class Delivered(Struct, frozen=True, omit_defaults=True):
    """The result of a delivery; `unknown`: there is no such entity."""

    outcome: Literal["done", "denied", "later", "unknown"]


class ChildCall(Struct, frozen=True, omit_defaults=True):
    """An invoke of a chart: the revision of its parent, and what the invoke says."""

    parent: Parent
    revision: str
    payload: dict[str, Any]
    restarts: int
    time_ms: int


class ChildPlan(Struct, frozen=True, omit_defaults=True):
    """The child to start: its creation, and the states under which it is listed; or the error of the invoke."""

    entity: str = ""
    revision: str = ""
    definition: CarriedDefinition | None = None
    event: Event | None = None
    states: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    functions: dict[str, str] = {}
    error: ErrorFacts | None = None


class MirrorCall(Struct, frozen=True, omit_defaults=True):
    """Records for the mirror. `previous` is the hash before the first of them."""

    entity: str
    lines: tuple[str, ...]
    previous: str
    snapshot: Snapshot


def error_facts(error: InterlockError) -> ErrorFacts:
    """Return one of our errors as a value."""
    return ErrorFacts(type(error).__name__, error.code, error.message, getattr(error, "hint", None))


def raised(facts: ErrorFacts) -> InterlockError:
    """Return the error that a value describes."""
    return _ERRORS.get(facts.kind, InternalError)(facts.message, code=facts.code, hint=facts.hint)


_ERRORS: dict[str, type[InterlockError]] = {
    each.__name__: each
    for each in (
        ConflictError,
        CorruptionError,
        DeniedError,
        InternalError,
        NotFoundError,
        RejectedError,
        UnavailableError,
        UsageError,
    )
}
"""The errors that pass between processes, by the name of their class."""
