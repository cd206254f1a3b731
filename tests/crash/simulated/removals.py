"""Crashes while an entity is pruned, and while its journal is compacted.

- `pruning`: the power fails at each call of a prune, by the process that appended and by one that just opened; it is
  killed at each call, or each call fails, and another one prunes again.
- `compacting`: the same for two compactions, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlock.errors import CompactedError
from interlock.model.snapshot import Snapshot
from interlock.ports.store import Appended, Conflict, Duplicate, Loaded, Pruned
from interlock.ports.trust.retention import JournalBase, Tombstone
from interlock.stores.files.blocking_store import BlockingFileStore
from tests.crash.life import ENTITY, ROTATING, Ledger, opened, record_violations, step
from tests.crash.simulated.file_system import Simulated, World
from tests.crash.simulated.recorded_calls import Moment, Processes, Story
from tests.crash.simulated.releases import ArchiveStory, crashed

ENTRIES = 5
BASES = (2, 4)


def pruning(processes: Processes) -> Iterator[Moment]:
    """Power cuts, kills and errors at each call of a prune."""
    yield from crashed(processes, _ended_story, _prune)


def compacting(processes: Processes) -> Iterator[Moment]:
    """Power cuts, kills and errors at each call of two compactions."""
    yield from crashed(processes, _living_story, _compact)


def _filled(story: ArchiveStory, *, ended: bool) -> tuple[ArchiveStory, Simulated, BlockingFileStore]:
    fs = story.process(1, watched=False)
    journals = story.opened(fs)
    for version in range(1, ENTRIES + 1):
        story.ledger.asked.add(f"k{version}")
        answer = journals.append(step(version, f"k{version}", ended=ended and version == ENTRIES))
        assert isinstance(answer, Appended)
        story.ledger.acknowledged[f"k{version}"] = answer.version
    return story, fs, journals


# Pruning


def _ended_story(processes: Processes) -> tuple[ArchiveStory, Simulated, BlockingFileStore]:
    return _filled(ArchiveStory(processes, prune_violations), ended=True)


def _heads() -> list[str]:
    journals = opened(Simulated(World(), process=7), ROTATING)
    for version in range(1, ENTRIES + 1):
        journals.append(step(version, f"k{version}", ended=version == ENTRIES))
    return [each.head for each in journals.read(ENTITY)]


ENDED_HEAD = _heads()[-1]
TOMBSTONE = Tombstone(ENTITY, ENTRIES, ENDED_HEAD, 5_000)


def _prune(story: Story, journals: BlockingFileStore) -> None:
    story.key = "prune"
    removal = journals.prune(TOMBSTONE)
    assert removal.blocked in (None, "changed"), removal
    assert journals.tombstone(ENTITY) == TOMBSTONE
    story.key = "pruned"


def prune_violations(world: World, ledger: Ledger, asked: str | None) -> list[str]:
    """What is wrong with an entity that may have been pruned: it is complete, or removed with its tombstone."""
    journals = opened(Simulated(world, process=9), ROTATING)
    found: list[str] = []
    loaded, tombstone = journals.load(ENTITY), journals.tombstone(ENTITY)
    if loaded is None:
        if tombstone != TOMBSTONE:
            found.append(f"lost: the entity is gone, with the tombstone {tombstone}")
        if journals.read(ENTITY) != ():
            found.append("prune: records of an entity that is gone")
    else:
        found += record_violations(journals.read(ENTITY), ledger)
        if asked == "pruned":
            found.append("prune: the entity is still here")
        if tombstone is not None:
            found.append("prune: an entity that is whole has a tombstone")
        if journals.append(step(1, "second life")) != Conflict(ENTRIES):
            found.append("doubled: the id can be created again")
        journals.prune(TOMBSTONE)
    journals.remove_rest(ENTITY)
    if journals.tombstone(ENTITY) != TOMBSTONE or journals.load(ENTITY) is not None:
        found.append("prune: it cannot be done again")
    if journals.append(step(1, "second life")) != Pruned(ENTRIES):
        found.append("doubled: a pruned id can be created again")
    if journals.tombstones.removed(10):
        found.append("prune: files are left")
    journals.close()
    again = opened(Simulated(world, process=10), ROTATING)
    if again.append(step(1, "third life")) != Pruned(ENTRIES) or again.load(ENTITY) is not None:
        found.append("doubled: a pruned id can be created again by the next process")
    return found


# Compacting


def _living_story(processes: Processes) -> tuple[ArchiveStory, Simulated, BlockingFileStore]:
    return _filled(ArchiveStory(processes, compact_violations), ended=False)


def _base(version: int) -> tuple[JournalBase, Snapshot]:
    journals = opened(Simulated(World(), process=7), ROTATING)
    for each in range(1, ENTRIES + 1):
        journals.append(step(each, f"k{each}"))
    record = journals.read(ENTITY, after=version - 1, limit=1)[0]
    snapshot = step(version, f"k{version}").snapshot
    newest = step(ENTRIES, f"k{ENTRIES}").snapshot
    return JournalBase(ENTITY, version, record.head, snapshot, "", version, 1, 5_000), newest


COMPACTIONS = [_base(version) for version in BASES]


def _compact(story: Story, journals: BlockingFileStore) -> None:
    for base, newest in COMPACTIONS:
        story.key = f"compact {base.version}"
        removal = journals.compact(base, newest)
        assert removal.blocked in (None, "changed"), removal
    story.key = "compacted"


def compact_violations(world: World, ledger: Ledger, asked: str | None) -> list[str]:
    """What is wrong with a journal that may have been compacted: it starts at its first entry, or at a base."""
    journals = opened(Simulated(world, process=9), ROTATING)
    found: list[str] = []
    since = 0
    try:
        records = journals.read(ENTITY)
    except CompactedError as error:
        since = error.since
        records = journals.read(ENTITY, after=since)
    base = journals.journal_base(ENTITY)
    if since not in (0, *BASES) or (asked == "compacted" and since != BASES[-1]):
        found.append(f"compact: it starts after version {since}")
    if since and (base is None or (base.version, base.snapshot.version) != (since, since)):
        found.append(f"lost: the base {base} of version {since}")
    if [each.version for each in records] != list(range(since + 1, ENTRIES + 1)):
        found.append(f"lost: the records {[each.version for each in records]} after {since}")
    loaded = journals.load(ENTITY)
    if not isinstance(loaded, Loaded) or loaded.version != ENTRIES:
        found.append(f"lost: loaded {loaded}")
    for key, version in ledger.acknowledged.items():
        if journals.append(step(ENTRIES + 1, key)) != Duplicate(version):
            found.append(f"doubled: {key}")
    for again, newest in COMPACTIONS:
        journals.compact(again, newest)
    if not isinstance(journals.append(step(ENTRIES + 1, "new")), Appended):
        found.append("compact: the entity does not go on")
    journals.close()
    last = opened(Simulated(world, process=10), ROTATING)
    if [each.version for each in last.read(ENTITY, after=BASES[-1])] != list(range(BASES[-1] + 1, ENTRIES + 2)):
        found.append("lost: the records after the last base")
    if last.journal_base(ENTITY) != COMPACTIONS[-1][0]:
        found.append("compact: it cannot be done again")
    return found
