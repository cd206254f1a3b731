"""The claims of a dead worker, in a SQLite file."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from interlock.model.journal.work import LANES, Work, WorkDelta, WorkId
from interlock.ports.work import Claim, Settlement
from interlock.stores.sqlite.store import SqliteStore
from interlock.testing.store_suite.samples import SampleEntity

NOW = 1_000_000


async def _claim(store: SqliteStore, owner: str, limit: int) -> list[Claim]:
    found: list[Claim] = []
    for lane in LANES:
        found += await store.claim(lane, None, owner=owner, now_ms=NOW, until_ms=NOW + 30_000, limit=limit)
    return found


async def test_the_claims_of_a_dead_worker_are_due_and_its_late_result_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "parcels.db")
    work = tuple(Work(WorkId(lane, 1, number), f"{lane}", {}, NOW) for number, lane in enumerate(LANES))
    try:
        for number in range(2):
            await store.append(replace(SampleEntity(f"parcel/{number}").create(), work=WorkDelta(work)))
        dead, alive = await _claim(store, "dead", 1), await _claim(store, "alive", 1)
        released = await store.database.change_work(lambda: store.database.work.release_owner("dead"))
        again = await _claim(store, "next", 9)
        late = await store.settle(tuple(Settlement(each, "again", NOW) for each in dead), now_ms=NOW)
        renewed = await store.renew(tuple(alive), until_ms=NOW + 60_000)
    finally:
        await store.close()

    assert (4, 4, 4) == (len(dead), len(alive), released)
    assert sorted((each.key, each.attempt + 1) for each in dead) == sorted((each.key, each.attempt) for each in again)
    assert ((False,) * 4, True) == (late, None not in renewed)
