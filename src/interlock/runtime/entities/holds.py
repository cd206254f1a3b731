"""Which kinds are held, as one process knows it, and the error for what is sent to held entities.

Rule 1: a kind is held by a fact of the store, `hold/<kind>`. Every process reads it again after `CHECKED_MS`.
Rule 2: a held entity knows it itself. The fact `hold-entities/<kind>` only says that there are some, so that workers
look for them (`held_work`); without it nothing is read for a piece of work.
Rule 3: what belongs to running work gets through: results of effects and answers of children. So does an erasure.
Timers, events of senders and of other entities do not.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from interlock.errors import CorruptionError, UnavailableError
from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.held import HELD_FIELD, HOLD, RESUME, Held
from interlock.model.journal.entry import ERASE
from interlock.model.snapshot import Snapshot
from interlock.ports.clock import Clock
from interlock.ports.store_facts import StoreFacts
from interlock.runtime.entities.send_request import SendRequest

KIND_PREFIX = "hold/"
ENTITIES_PREFIX = "hold-entities/"

CHECKED_MS = 1_000
"""How long a process may not know of a hold: an operator waits that long for the answer."""

RETRY_MS = 30_000
"""When a caller that was refused should try again. A hold lasts minutes to days; a check costs one read."""

_HINT = "send it again later with the same key; interlock holds shows who holds it and why"

ACTS = frozenset({HOLD, RESUME, ERASE})
"""Events by which an operator acts on an entity: no policy of its chart is asked, and a hold does not stop them."""


class PastHold(Struct, frozen=True, array_like=True):
    """A hold of a kind that has ended. `shifts`: timers with a deadline are later by its time, too."""

    started_ms: int
    ended_ms: int
    shifts: bool


class KindHold(Struct, frozen=True, omit_defaults=True):
    """How a kind is held now, if it is, and its last holds, the newest last."""

    held: Held | None = None
    past: tuple[PastHold, ...] = ()


_decode = msgspec.json.Decoder(KindHold).decode
_NOT_HELD = KindHold()


def decode_kind_hold(kind: str, text: str | None) -> KindHold:
    """Return the hold of a kind from its fact. Raises CorruptionError (`store.fact`)."""
    try:
        return _NOT_HELD if text is None else _decode(text)
    except UNDECODABLE as error:
        message = f"the hold of `{kind[:80]}` in the store is invalid: {error}"
        raise CorruptionError(message, code="store.fact") from error


class KnownHolds:
    """The holds of a store, as one process knows them. `any_kind`: at least one kind is held."""

    def __init__(self, facts: StoreFacts | None, clock: Clock) -> None:
        self._facts = facts
        self._clock = clock
        self._read_ms: int | None = None
        self._kinds: dict[str, KindHold] = {}
        self._with_entities: frozenset[str] = frozenset()
        self.any_kind = False

    @property
    def is_stale(self) -> bool:
        """Whether `refresh` has to be called before an event is accepted or work is started."""
        if self._facts is None:
            return False
        return self._read_ms is None or not 0 <= self._clock.now_ms() - self._read_ms < CHECKED_MS

    def fixed(self) -> KnownHolds:
        """Return the holds as they are known now, which are never stale: for a call that cannot wait."""
        found = KnownHolds(None, self._clock)
        found._kinds, found._with_entities, found.any_kind = self._kinds, self._with_entities, self.any_kind
        return found

    async def refresh(self) -> None:
        """Read the facts. Raises UnavailableError when they were never read and cannot be read now."""
        if self._facts is None:
            return
        try:
            self.follow(await self._facts.read_facts())
        except UnavailableError:
            if self._read_ms is None:
                raise
        self._read_ms = self._clock.now_ms()

    def follow(self, facts: Mapping[str, str]) -> None:
        """Follow the facts of the store."""
        kinds = [each.removeprefix(KIND_PREFIX) for each in facts if each.startswith(KIND_PREFIX)]
        self._kinds = {each: decode_kind_hold(each, facts[f"{KIND_PREFIX}{each}"]) for each in kinds}
        names = [each for each in facts if each.startswith(ENTITIES_PREFIX)]
        self._with_entities = frozenset(each.removeprefix(ENTITIES_PREFIX) for each in names)
        self.any_kind = any(each.held is not None for each in self._kinds.values())

    def of_kind(self, kind: str) -> Held | None:
        """Return how a kind is held; None if it is not. Single entities of it may be."""
        return self._kinds.get(kind, _NOT_HELD).held

    def may_hold(self, kind: str) -> bool:
        """Whether an entity of a kind may be held."""
        return kind in self._with_entities or self.of_kind(kind) is not None

    def past(self, kind: str) -> tuple[PastHold, ...]:
        """Return the last holds of a kind that have ended, in order."""
        return self._kinds.get(kind, _NOT_HELD).past

    def error_for(self, snapshot: Snapshot, request: SendRequest) -> UnavailableError | None:
        """Return why a request for an entity has to wait; None if it does not."""
        if HELD_FIELD not in snapshot.context and not self.any_kind:
            return None
        if _gets_through(request):
            return None
        if HELD_FIELD in snapshot.context:
            return held_entity(snapshot.entity)
        return None if self.of_kind(snapshot.kind) is None else held_kind(snapshot.kind)


def _gets_through(request: SendRequest) -> bool:
    """Rule 3."""
    if request.finishes is not None:
        return request.finishes.lane != "timer"
    return request.event.type == "platform" and request.event.name in ACTS


def held_entity(entity: str) -> UnavailableError:
    """Return the error for an event to a held entity. It does not say why: that is not for every sender."""
    message = f"`{entity}` is held by an operator"
    return UnavailableError(message, code="entity.held", hint=_HINT, retry_after_ms=RETRY_MS)


def held_kind(kind: str) -> UnavailableError:
    """Return the error for an event to an entity of a held kind, and for the creation of one."""
    message = f"all entities of `{kind}` are held by an operator"
    return UnavailableError(message, code="kind.held", hint=_HINT, retry_after_ms=RETRY_MS)
