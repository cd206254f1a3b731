"""The file store on real processes and real file systems: kill -9, and a disk that is read-only."""

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from interlock.errors import UnavailableError
from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.ports.store import Conflict, EntityQuery
from interlock.ports.work import WorkQuery
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.filesystem import OperatingSystem
from tests.crash.disks.full_disk import ADDRESSES
from tests.crash.disks.mounts import make_read_only, tmpfs
from tests.crash.kills.storm import STORMS_MAX, WRITERS, storm
from tests.crash.kills.work_storm import stormed
from tests.crash.life import ENTITY, step

KILLS = int(os.environ.get("INTERLOCK_KILLS", "40"))


def store(root: Path) -> BlockingFileStore:
    """A store without shards, so that a tiny disk has room for entries."""
    return BlockingFileStore(str(root), OperatingSystem(), Settings(snapshot_every=20), shard_digits=0)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["files", "files, rotating"])
def test_killed_writers_lose_and_double_nothing(store: str, tmp_path: Path) -> None:
    """Four writers on the same entities, one after the other killed in the middle of a send and started again."""
    outcome = storm(ADDRESSES[store].format(tmp_path), kills=KILLS // 2, seed=7, writers=WRITERS)

    assert ([], KILLS // 2) == (outcome.found(), outcome.kills)
    assert (True, True) == (outcome.inside > KILLS // 4, len(outcome.kept) > KILLS)


@pytest.mark.slow
async def test_killed_workers_lose_no_work(tmp_path: Path) -> None:
    """Workers are killed again and again: each order is paid, under one key."""
    row = await stormed(f"file://{tmp_path}/orders", tmp_path / "ledger", kills=5, seed=3)

    assert ([], 5) == (row.found, row.count)


@pytest.mark.slow
def test_a_store_without_its_lock_is_found_out(tmp_path: Path) -> None:
    """The negative control: writers without a lock overwrite acknowledged entries."""
    storms = (
        storm(f"file://{tmp_path / str(seed)}", kills=10, seed=seed, fault="lockless") for seed in range(STORMS_MAX)
    )

    assert any(outcome.found() for outcome in storms)


def test_a_read_only_store_can_be_read_and_refuses_appends(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "4m") as disk:
        journals = store(disk / "store")
        for version in (1, 2):
            journals.append(step(version, f"k{version}"))
        journals.close()
        make_read_only(disk)
        again = store(disk / "store")
        loaded = again.load(ENTITY)
        listed = again.find(EntityQuery(kind="order"))
        with pytest.raises(UnavailableError, match="Read-only") as caught:
            again.append(step(3, "k3"))
        again.close()

    assert ("store.read_only", 1) == (caught.value.code, len(listed.rows))
    assert loaded is not None
    assert not isinstance(loaded, Conflict)
    assert loaded.version == 2


def test_no_store_is_created_on_a_read_only_disk(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "4m") as disk:
        make_read_only(disk)
        with pytest.raises(UnavailableError, match="Read-only") as caught:
            store(disk / "new")

    assert "store.open" == caught.value.code


def test_the_work_of_a_read_only_store_is_listed(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "4m") as disk:
        for name in ("store", "older"):
            journals = store(disk / name)
            journals.append(replace(step(1, "k1"), left=WorkDelta((Work(WorkId("timer", 1, 0), "timer", {}, 0),))))
            journals.close()
        shutil.rmtree(disk / "older" / "pending")
        make_read_only(disk)
        again = [store(disk / name) for name in ("store", "older")]
        desks = [each.dispatcher() for each in again]
        seen = [len(each.works(query).rows) for each in desks for query in (WorkQuery(), WorkQuery(entity=ENTITY))]
        for each in again:
            each.close()

    assert [1, 1, 0, 1] == seen


def test_a_read_only_directory_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "4m") as disk:
        (disk / "store").mkdir()
        make_read_only(disk)
        with pytest.raises(UnavailableError):
            store(disk / "store")
