"""The file store on real processes and real file systems: kill -9, a full disk, a read-only one."""

from pathlib import Path

import pytest

from interlock.errors import UnavailableError
from interlock.model.record import Record
from interlock.ports.store import Appended, Conflict, Query
from interlock.stores.files_journals import Journals
from interlock.stores.files_shared import Settings
from interlock.stores.filesystem import OperatingSystem
from tests.crash.disks import make_read_only, tmpfs
from tests.crash.life import ENTITY, step
from tests.crash.storm import storm


def store(root: Path) -> Journals:
    """A store without shards, so that a tiny disk has room for entries."""
    return Journals(str(root), OperatingSystem(), Settings(snapshot_every=20), shard_digits=0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_writers_lose_and_double_nothing(tmp_path: Path) -> None:
    """Fifty kills among four writers of one entity: each receipt given is in the journal, at its version, once."""
    outcome = storm(tmp_path / "store", kills=50, seed=7)

    assert ([], [], [], 50) == (outcome.lost, outcome.doubled, outcome.phantoms, outcome.kills)
    assert len(outcome.kept) > 50


@pytest.mark.slow
def test_a_full_disk_raises_and_then_the_store_goes_on(tmp_path: Path) -> None:
    """No acknowledged entry is lost to a full disk, and once there is room the same handle appends again."""
    with tmpfs(tmp_path / "disk", "1m") as disk:
        journals = store(disk / "store")
        ballast = disk / "ballast"
        ballast.write_bytes(b"\0" * 400_000)
        version = 0
        errors: list[str] = []
        for number in range(4_000):
            if len(errors) == 5:
                ballast.unlink(missing_ok=True)
            try:
                answer = journals.append(step(version + 1, f"k{number}", filler="x" * 300))
            except UnavailableError as error:
                errors.append(error.code)
                if len(errors) > 10:
                    break
            else:
                assert isinstance(answer, Appended)
                version = answer.version
        journals.close()
        again = store(disk / "store")
        records: list[Record] = []
        while page := again.read(ENTITY, after=len(records)):
            records += page
        again.close()

    assert ({"store.full"}, True, version) == (set(errors), len(errors) > 5, len(records))


def test_a_read_only_store_is_read_and_takes_no_append(tmp_path: Path) -> None:
    """Reads go on; an append says why not."""
    with tmpfs(tmp_path / "disk", "4m") as disk:
        journals = store(disk / "store")
        for version in (1, 2):
            journals.append(step(version, f"k{version}"))
        journals.close()
        make_read_only(disk)
        again = store(disk / "store")
        loaded = again.load(ENTITY)
        listed = again.find(Query(kind="order"))
        with pytest.raises(UnavailableError, match="Read-only") as caught:
            again.append(step(3, "k3"))
        again.close()

    assert ("store.read_only", 1) == (caught.value.code, len(listed.rows))
    assert loaded is not None
    assert not isinstance(loaded, Conflict)
    assert loaded.version == 2


def test_a_read_only_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    """There is nothing to read, and nothing can be begun."""
    with tmpfs(tmp_path / "disk", "4m") as disk:
        (disk / "store").mkdir()
        make_read_only(disk)
        with pytest.raises(UnavailableError):
            store(disk / "store")
