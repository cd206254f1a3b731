"""Crashes during the adoption of records, and during the release of records that an archive has.

- `releasing`: the power fails at each call of a release, by the process that appended and by one that just opened; it
  is killed at each call, or each call fails, and another one releases again.
- `adopting`: the same for two pages of records that are adopted one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from interlock.errors import CorruptionError, InterlockError, NotFoundError, UnavailableError
from interlock.model.journal.record import JournalRecord
from interlock.ports.store import Appended, Conflict, Duplicate, Loaded
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.names import JOURNAL, SNAPSHOT, directory_name
from tests.crash.life import ENTITY, ROTATING, Ledger, opened, record_violations, step
from tests.crash.simulated.file_system import Directory, Killed, Simulated, World
from tests.crash.simulated.recorded_calls import FAULTS, Moment, Processes, Story

ENTRIES = 5
ARCHIVE = "file:///archive"
PAGE = 3
SOURCE_ENTRIES = 7
Deed = Callable[["ArchiveStory", BlockingFileStore], None]
Beginning = Callable[[Processes], tuple["ArchiveStory", Simulated, BlockingFileStore]]


class ArchiveStory(Story):
    """Calls whose moments are checked by what was asked of the archive."""

    def __init__(self, processes: Processes, judge: Callable[[World, Ledger, str | None], list[str]]) -> None:
        super().__init__(processes, ROTATING)
        self._judge = judge

    def judged(self, world: World, ledger: Ledger, retry: str | None) -> list[str]:
        """What is wrong after a crash."""
        try:
            return self._judge(world.copy(), ledger, retry)
        except CorruptionError as error:
            return [f"unreadable: {error}"]
        except InterlockError as error:
            return [f"unavailable: {error}"]


def releasing(processes: Processes) -> Iterator[Moment]:
    """Power cuts, kills and errors at each call of a release."""
    yield from crashed(processes, _ended_story, _release)


def adopting(processes: Processes) -> Iterator[Moment]:
    """Power cuts, kills and errors at each call of an adoption."""
    yield from crashed(processes, _empty_story, _adopt)


def crashed(processes: Processes, started: Beginning, deed: Deed) -> Iterator[Moment]:
    story, fs, journals = started(processes)
    first = fs.count
    story.watch(fs)
    deed(story, journals)
    story.note()
    calls = fs.count - first
    yield from story.moments
    for number in range(1, calls + 1):
        story, fs, journals = started(processes)
        fs.kill_at = fs.count + number
        try:
            deed(story, journals)
        except Killed:
            assert fs.fired
        after = story.process(2, watched=True)
        deed(story, story.opened(after))
        story.note()
        yield from story.moments
        for fault in FAULTS:
            story, fs, journals = started(processes)
            fs.fail_at, fs.fault = fs.count + number, fault
            for attempt in range(3):
                try:
                    deed(story, journals)
                    break
                except UnavailableError:
                    story.note()
                    journals = journals if attempt == 0 else story.opened(story.process(3, watched=False))
            story.note()
            yield from story.moments


# Releasing


def _ended_story(processes: Processes) -> tuple[ArchiveStory, Simulated, BlockingFileStore]:
    story = ArchiveStory(processes, release_violations)
    fs = story.process(1, watched=False)
    journals = story.opened(fs)
    for version in range(1, ENTRIES + 1):
        story.ledger.asked.add(f"k{version}")
        answer = journals.append(step(version, f"k{version}", ended=version == ENTRIES))
        story.ledger.acknowledged[f"k{version}"] = answer.version
    return story, fs, journals


def _release(story: Story, journals: BlockingFileStore) -> None:
    story.key = "release"
    assert journals.release_journal(ENTITY, version=ENTRIES, archive=ARCHIVE)
    story.key = "released"


def release_violations(world: World, ledger: Ledger, asked: str | None) -> list[str]:
    """What is wrong with an entity whose records may have been released."""
    journals = opened(Simulated(world, process=9), ROTATING)
    try:
        found = record_violations(journals.read(ENTITY), ledger)
        if asked == "released":
            found.append("release: the records are still here")
    except NotFoundError as error:
        found = [] if asked is not None and error.code == "journal.archived" else [f"lost: {error}"]
    found += _life_violations(journals, ledger)
    if not journals.release_journal(ENTITY, version=ENTRIES, archive=ARCHIVE):
        found.append("release: it cannot be done again")
    journals.close()
    number = world.found("store", "resources", directory_name(ENTITY))
    directory = None if number is None else world.nodes[number]
    assert isinstance(directory, Directory)
    if {JOURNAL, SNAPSHOT} != set(directory.cache):
        found.append(f"release: left {sorted(directory.cache)}")
    again = opened(Simulated(world, process=10), ROTATING)
    found += _life_violations(again, ledger)
    if not isinstance(again.append(step(ENTRIES + 1, "new")), Appended):
        found.append("release: the entity does not go on")
    if ["new"] != [each.key for each in again.read(ENTITY, after=ENTRIES)]:
        found.append("lost: the entry after the release")
    return found


def _life_violations(journals: BlockingFileStore, ledger: Ledger) -> list[str]:
    """What must hold before a release, after it, and in between: the entity, its end, its keys."""
    loaded = journals.load(ENTITY)
    if not isinstance(loaded, Loaded) or loaded.version != ENTRIES or loaded.snapshot is None:
        return [f"lost: loaded {loaded}"]
    found = [] if loaded.snapshot.ended == "done" else ["lost: the end of the life"]
    for key, version in ledger.acknowledged.items():
        answers = (journals.load(ENTITY, key), journals.append(step(ENTRIES + 1, key)))
        if answers != (Duplicate(version), Duplicate(version)):
            found.append(f"doubled: {key} gave {answers}")
    if journals.append(step(1, "second life")) != Conflict(ENTRIES):
        found.append("doubled: the id can be created again")
    return found


# Adopting


def _source() -> tuple[JournalRecord, ...]:
    journals = opened(Simulated(World(), process=7))
    for version in range(1, SOURCE_ENTRIES + 1):
        journals.append(step(version, f"k{version}"))
    return journals.read(ENTITY)


SOURCE = _source()


def _empty_story(processes: Processes) -> tuple[ArchiveStory, Simulated, BlockingFileStore]:
    story = ArchiveStory(processes, adopt_violations)
    fs = story.process(1, watched=False)
    return story, fs, story.opened(fs)


def _adopt(story: Story, journals: BlockingFileStore) -> None:
    for last in (PAGE, SOURCE_ENTRIES):
        story.ledger.asked.update(each.key for each in SOURCE[:last])
        assert last <= journals.adopt(step(last, f"k{last}"), SOURCE[:last])
        story.ledger.acknowledged.update({each.key: each.version for each in SOURCE[:last]})


def adopt_violations(world: World, ledger: Ledger, _: str | None) -> list[str]:
    """What is wrong with a journal that may have been adopted: a page is complete or missing, byte for byte."""
    journals = opened(Simulated(world, process=9), ROTATING)
    here = journals.read(ENTITY)
    found = record_violations(here, ledger)
    if here != SOURCE[: len(here)] or len(here) not in {0, PAGE, SOURCE_ENTRIES}:
        found.append(f"other: {len(here)} records of the page are here")
    if SOURCE_ENTRIES != journals.adopt(step(SOURCE_ENTRIES, f"k{SOURCE_ENTRIES}"), SOURCE):
        found.append("adopt: it cannot be done again")
    if not isinstance(journals.append(step(SOURCE_ENTRIES + 1, "new")), Appended):
        found.append("adopt: the entity does not go on")
    journals.close()
    again = opened(Simulated(world, process=10), ROTATING)
    records, loaded = again.read(ENTITY), again.load(ENTITY)
    if records[:-1] != SOURCE or records[-1].key != "new":
        found.append("lost: records that were adopted again")
    if not isinstance(loaded, Loaded) or loaded.version != SOURCE_ENTRIES + 1:
        found.append(f"lost: loaded {loaded}")
    return found
