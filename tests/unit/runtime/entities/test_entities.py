"""The entities of a store on two connections: what they share, and what they do not."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from msgspec.structs import replace

from interlock.errors import UnavailableError
from interlock.model.journal.work import WorkDelta
from interlock.ports.store import JoinedStore
from interlock.runtime.entities.entities import Entities
from interlock.stores.memory import MemoryStore
from tests.unit.runtime.scene import runtime

SHARED = {
    "Entities": {"process", "charts", "clock"},
    "Revisions": {"charts", "_clock"},
    "Upgrades": {"_charts", "_rules", "_kinds"},
    "MessageSetting": {"_clock"},
    "AppendBuilder": {"_listed"},
    "WatchedClock": {"_clock"},
    "Announcements": set[str](),
}
"""The attributes that a connection of a caller shares with that of the runtime: constants, and `ProcessState`."""


def joined_of(own: Entities) -> Entities:
    """Return the entities on another connection, which is a memory store."""
    loop = asyncio.get_running_loop()
    return own.on_transaction(cast("JoinedStore", MemoryStore()), lambda _entity, _work: None, loop)


def shared_attributes(own: object, other: object) -> dict[str, set[str]]:
    """Return the attributes with the same object in both, by class, and of the objects of ours in them."""
    found: dict[str, set[str]] = {type(own).__name__: set()}
    for name, value in vars(own).items():
        twin = vars(other)[name]
        if isinstance(value, bool | int | str | None):
            continue
        if twin is value:
            found[type(own).__name__].add(name)
        elif hasattr(value, "__dict__") and type(value).__name__ in SHARED:
            found |= shared_attributes(value, twin)
    return found


async def test_a_connection_of_a_caller_shares_no_state_but_that_of_the_process() -> None:
    """A new attribute that both would change fails here."""
    doors = runtime()
    await doors.create("door/1")

    assert shared_attributes(doors.entities, joined_of(doors.entities)) == SHARED


async def test_what_a_call_in_a_transaction_reads_and_writes_stays_there() -> None:
    """It may be undone with the transaction; workers are notified after the COMMIT."""
    doors = runtime()
    await doors.create("door/1")
    own, joined = doors.entities, joined_of(doors.entities)
    snapshot, before = own.snapshots["door/1"][0], len(joined.snapshots)
    heard: list[str] = []
    own.announcements.on_work(lambda entity, _work: heard.append(entity))

    joined.snapshots.keep(replace(snapshot, version=7), 0)
    joined.announcements.committed("door/1", [WorkDelta()])

    assert (0, 1) == (before, own.snapshots["door/1"][0].version)
    assert [] == heard


async def test_a_store_that_went_back_stops_every_connection() -> None:
    """Keys of effects would be used again, on whichever connection the next step comes."""
    doors = runtime()
    await doors.create("door/1")
    joined = joined_of(doors.entities)

    joined.stop("door/1", 1, 4)

    with pytest.raises(UnavailableError) as caught:
        await doors.send("door/1", "opened")
    assert "store.went_back" == caught.value.code


async def test_a_closed_runtime_is_closed_for_transactions_too() -> None:
    """A call that started before the close is refused at its turn."""
    doors = runtime()
    await doors.create("door/1")
    joined = joined_of(doors.entities)

    await doors.close()

    assert joined.is_closed
