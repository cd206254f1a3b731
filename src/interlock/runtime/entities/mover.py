"""How an entity is moved to another revision of its chart: carried, and appended as an entry like any other.

Rule 1: an entity is carried whole or not at all, under compare-and-swap, with its timers and invokes as work rows.
Rule 2: the key of a move names the version that it was computed on, so the same move is appended once.
Rule 3: a cached snapshot may be stale: that an entity stays is decided on a fresh one.
Which entities move before their next step is decided by `runtime.upgrades`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace as dataclass_replace
from typing import TYPE_CHECKING

from msgspec.structs import replace

from interlock.errors import RejectedError
from interlock.evolve.move import move_event, move_key
from interlock.model.encoding.codec import to_builtins
from interlock.model.limits import CONFLICT_RETRIES_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.store import Appended, EntityQuery
from interlock.runtime.charts.upgrades import UpgradePreview
from interlock.runtime.entities.conflicts import CONFLICT_WAIT, LOST, Lost, too_many_conflicts
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.mailbox import Priority
from interlock.runtime.entities.move_request import MoveRequest, MoveResult

if TYPE_CHECKING:
    from interlock.evolve.carry import Carrier, CarryResult
    from interlock.runtime.entities.move_request import EntityCarrier


class EntityMover:
    """Moves the entities of one connection."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self._upgrades = entities.upgrades

    async def move(self, entity: str, request: MoveRequest) -> MoveResult:
        """Move an entity to the new revision of a carrier, if it is on the old one and can be carried.

        Raises NotFoundError, and ConflictError when other writers kept winning.
        """
        entities = self._entities
        async with entities.turn(entity, request.priority):
            for attempt in range(CONFLICT_RETRIES_MAX + 1):
                cached = entities.snapshots.get(entity)
                snapshot, last_ms = cached if cached is not None else await entities.load_snapshot(entity)
                result = await self._try_move(snapshot, last_ms, request)
                if isinstance(result, MoveResult) and (result.outcome == "moved" or cached is None):
                    if not request.is_cached:
                        entities.snapshots.pop(entity, None)
                    return result
                entities.snapshots.pop(entity, None)
                if result is LOST:
                    await entities.clock.sleep_ms(CONFLICT_WAIT.wait_ms(attempt, entities.clock.jitter()))
        raise too_many_conflicts(entity, "it was moved")

    async def upgrade(self, entity: str) -> bool:
        """Move an entity to the newest chart of its kind if it is due, as its next step would; whether it moved."""
        if not self._upgrades.covers(entity.partition("/")[0]):
            return False
        async with self._entities.turn(entity, Priority.RESULT):
            snapshot, last_ms = await self._entities.load_snapshot(entity)
            carrier = await self.due_carrier(snapshot)
            return carrier is not None and isinstance(await self.try_upgrade(snapshot, last_ms, carrier), Snapshot)

    async def preview_upgrade(self, snapshot: Snapshot, last_ms: int) -> tuple[Snapshot, UpgradePreview | None]:
        """Return the snapshot on which the next step would run, and what would move it; nothing is written."""
        carrier = await self._upgrades.carrier(snapshot, is_preview=True)
        if carrier is None:
            return snapshot, None
        entered_ms = await self.entered_ms(snapshot, carrier.states_with_new_timers(snapshot))
        time_ms = max(self._entities.time.now_ms(), last_ms)
        carried = carrier.carry(snapshot, time_ms=time_ms, entered_ms=entered_ms)
        preview = UpgradePreview(carrier.written, carried.reasons, carried.dropped)
        return snapshot if carried.step is None else carried.step.snapshot, preview

    async def due_carrier(self, snapshot: Snapshot) -> Carrier | None:
        """Return what carries an entity to the newest chart; None if it stays, or could not be carried before."""
        carrier = await self._upgrades.carrier(snapshot)
        return None if carrier is None or self._upgrades.is_kept(snapshot, carrier) else carrier

    async def try_upgrade(self, snapshot: Snapshot, last_ms: int, carrier: Carrier) -> Snapshot | Lost | None:
        """Return the moved snapshot; None if the entity cannot be carried. The caller has the entity's turn."""
        result = await self._try_move(snapshot, last_ms, MoveRequest(carrier))
        if result is LOST:
            return LOST
        if result.outcome == "moved":
            return result.snapshot
        self._upgrades.keep(snapshot, carrier)
        return None

    async def entered_ms(self, snapshot: Snapshot, states: Iterable[str]) -> dict[str, int]:
        """Return when the entity entered some of its active states, as the store lists it."""
        found: dict[str, int] = {}
        kind, _, name = snapshot.entity.partition("/")
        for state in states:
            page = await self._entities.store.find(EntityQuery(kind=kind, state=state, prefix=name, limit=1))
            if page.rows and page.rows[0].entity == snapshot.entity:  # the id itself comes first
                found[state] = page.rows[0].entered_ms
        return found

    async def _try_move(self, snapshot: Snapshot, last_ms: int, request: MoveRequest) -> MoveResult | Lost:
        """Carry a snapshot and append the move."""
        entities, carrier = self._entities, request.carrier
        if snapshot.revision not in carrier.old_names:
            return MoveResult("elsewhere", snapshot)
        now_ms = entities.time.now_ms()
        time_ms = max(now_ms, last_ms)
        entered_ms = await self.entered_ms(snapshot, carrier.states_with_new_timers(snapshot))
        epoch = await entities.epoch()
        carried = carrier.carry(
            snapshot, time_ms=time_ms, entered_ms=entered_ms, epoch=epoch, spread_ms=request.spread_ms
        )
        if carried.step is None or carried.patch is None:
            return MoveResult("stays", snapshot, carried.reasons)
        if snapshot.sight is not None or carrier.kernel.covers is not None:
            cover = None if snapshot.sight is None else snapshot.sight.cover
            with_cover = None
            if cover is not None:
                if request.why in ("undo", "refold"):  # these need the entries behind the cover
                    return MoveResult("stays", snapshot, ("it is in a hidden state",))
                with_cover = carrier.carry(cover, time_ms=time_ms, entered_ms=entered_ms, epoch=epoch)
                if with_cover.step is None:
                    return MoveResult("stays", snapshot, with_cover.reasons)
            moved_cover = None if with_cover is None or with_cover.step is None else with_cover.step.snapshot
            carried = _with_sight(carrier, snapshot, carried, moved_cover, time_ms)
        assert carried.step is not None
        assert carried.patch is not None
        event = move_event(
            carried.patch,
            why=request.why,
            time_ms=time_ms,
            clock_ms=now_ms if now_ms < time_ms else None,
            principal=request.principal,
            plan=request.plan,
            dropped=carried.dropped,
            undoes=request.undoes,
        )
        step = replace(carried.step, reason=request.why)
        key = move_key(request.plan or step.snapshot.revision, snapshot.version)
        try:
            append = entities.appends.build(
                carrier.kernel, snapshot, step, replace(event, epoch=epoch), key, reason=request.reason
            )
        except RejectedError as error:
            return MoveResult("stays", snapshot, (error.message,))
        if not isinstance(await entities.append(append, step, carrier.kernel), Appended):
            return LOST
        return MoveResult("moved", step.snapshot, (), carried.dropped, carried.overdue)


def _with_sight(
    carrier: EntityCarrier, before: Snapshot, carried: CarryResult, cover: Snapshot | None, time_ms: int
) -> CarryResult:
    """Return a move with what readers see of it; `cover` is the moved cover. The patch has it, for replay."""
    assert carried.step is not None
    assert carried.patch is not None
    covers, after = carrier.kernel.covers, carried.step.snapshot
    after = replace(after, sight=None) if covers is None else covers.after_move(before, after, cover, time_ms)
    patch = {**carried.patch, "sight": to_builtins(after.sight)}
    return dataclass_replace(carried, step=replace(carried.step, snapshot=after), patch=patch)
