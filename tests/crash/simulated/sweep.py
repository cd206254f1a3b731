"""Every crash of short runs: at each call the process may die, the power fail, or the call fail.

Families, each yielding moments (a world, what the caller knows, the key under way):

- `one`: a process opens, appends, writes snapshots, gets a duplicate, closes. The power fails at each call.
- `twice`: after each such crash another process continues, and the power fails at each of its calls.
- `heir`: the same process is killed at each call; another one sends the same key again. The power fails at each of its
  calls.
- `rivals`: two processes take turns; one is killed at each call of its append; the other continues with the same key.
- `faults`: each call fails once (EIO, ENOSPC, a short write); the caller sends the same key again, here and
  from another process.

Each family runs twice: with one segment, and with segments so small that it rotates often (`rotating`).
Journals that are released and adopted have separate families (`releases`), and so has the work that entries
create (`work_families`).

For each moment every crash state is opened and examined (`life.violations`).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from interlock.errors import CorruptionError, UnavailableError
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import Settings
from tests.crash.life import ROTATING, SETTINGS, StuckError, record_bytes
from tests.crash.simulated import work_families
from tests.crash.simulated.file_system import Killed, Simulated, crashes
from tests.crash.simulated.recorded_calls import (
    FAULTS,
    Family,
    JournalChangedError,
    Moment,
    Processes,
    SnapshotFailedError,
    Story,
    simulated,
)
from tests.crash.simulated.releases import adopting, releasing
from tests.crash.simulated.removals import compacting, pruning


@dataclass
class Tally:
    """The result of a family."""

    name: str
    moments: int = 0
    states: int = 0
    found: list[str] = field(default_factory=list)

    def count(self, word: str) -> int:
        """How many findings start with a word."""
        return sum(each.startswith(word) for each in self.found)


def one(processes: Processes, settings: Settings = SETTINGS) -> Iterator[Moment]:
    """The power fails at each call of one process."""
    story = Story(processes, settings)
    story.life(story.process(1, watched=True))
    yield from story.moments


def twice(processes: Processes, settings: Settings = SETTINGS) -> Iterator[Moment]:
    """The power fails at each call of one process; another continues, and it fails again at each call."""
    chance = random.Random(2)
    stride = (
        1 if settings is SETTINGS else 3
    )  # a life that rotates has many more crash states: a third of them continues
    known: set[object] = set()
    for moment in one(processes, settings):
        for world in crashes(moment.world, chance):
            state = (world.image(), tuple(moment.ledger.acknowledged), moment.key)
            if state in known:
                continue
            known.add(state)
            if len(known) % stride:
                continue
            story = Story(processes, settings)
            story.world, story.ledger = world, moment.ledger.copy()
            after = story.opened(story.process(2, watched=True))
            for key in (moment.key or "k8", "k9", "k10"):
                story.send(after, key)
            after.close()
            story.note()
            yield from story.moments


def heir(processes: Processes, settings: Settings = SETTINGS) -> Iterator[Moment]:
    """One process is killed at each call, another takes over."""
    for number in range(1, _calls(processes, Story.life, settings) + 1):
        story = Story(processes, settings)
        fs = story.process(1, watched=False)
        fs.kill_at = number
        try:
            story.life(fs)
        except Killed:
            assert fs.fired
        after = story.opened(story.process(2, watched=True))
        story.send(after, story.key or "k9")
        story.send(after, "k10")
        after.close()
        story.note()
        yield from story.moments


def rivals(processes: Processes, settings: Settings = SETTINGS) -> Iterator[Moment]:
    """Two open processes take turns; the first dies in the middle, the second continues with its open journal.

    It sends the key again, or (second round) first asks whether the key was kept, which acknowledges it as well.
    """
    for asks in (False, True):
        number = 0
        dies = True
        while dies:
            number += 1
            story = Story(processes, settings)
            first, second = story.process(1, watched=False), story.process(2, watched=False)
            ours, theirs = story.opened(first), story.opened(second)
            for version in range(1, 4):
                story.append(theirs if version % 2 else ours, f"k{version}", version)
            first.kill_at = first.count + number
            try:
                story.append(ours, "k4", 4)
                dies = False
            except Killed:
                pass
            story.watch(second)
            if asks:
                story.ask(theirs, "k4")
            # As many snapshots as the first one started; where it rotates, past the next rotation.
            for version in range(4, 11 if settings is SETTINGS else 7):
                story.send(theirs, f"k{version}")
            story.note()
            if theirs.context.snapshot_failures:
                raise SnapshotFailedError
            yield from story.moments


def faults(processes: Processes, settings: Settings = SETTINGS) -> Iterator[Moment]:
    """Each call fails once, in each way; then the same key is sent again, here and from another process."""
    for fault in FAULTS:
        for number in range(1, _calls(processes, _endure, settings) + 1):
            story = Story(processes, settings)
            fs = story.process(1, watched=False)
            fs.fail_at, fs.fault = number, fault
            _endure(story, fs)
            assert fs.fired or fs.calls[number - 1] == "unique"
            yield from story.moments


def torn_rivals(processes: Processes, settings: Settings = SETTINGS) -> Iterator[Moment]:
    """Another process's entry is acknowledged, then an append of this process fails at each of its calls."""
    for fault in FAULTS:
        fires = True
        number = 0
        while fires:
            number += 1
            story = Story(processes, settings)
            first, second = story.process(1, watched=False), story.process(2, watched=False)
            ours, theirs = story.opened(first), story.opened(second)
            story.append(ours, "k1", 1)
            story.append(theirs, "k2", 2)
            story.append(theirs, "k3", 3)
            first.fail_at, first.fault = first.count + number, fault
            _tolerant(story, ours, "k4")
            fires = bool(first.fired) or first.calls[-1] == "unique"
            story.note()
            _tolerant(story, ours, "k4")
            story.note()
            yield from story.moments


def wanderings(seed: int) -> Family:
    """A family of one random run: two processes, sends and repeats, kills, power cuts.

    Every other one rotates.
    """
    settings = ROTATING if seed % 2 else SETTINGS

    def wander(processes: Processes) -> Iterator[Moment]:
        chance = random.Random(seed)
        story = Story(processes, settings)
        fleet: dict[int, tuple[Simulated, BlockingFileStore]] = {}
        keys = [f"k{number}" for number in range(1, 10)]
        for number in range(30):
            place = chance.choice((1, 2))
            if place not in fleet or fleet[place][0].dead:
                fs = story.process(10 * number + place, watched=True)
                fleet[place] = fs, story.opened(fs)
            fs, journals = fleet[place]
            fs.kill_at = fs.count + chance.randrange(1, 40) if chance.random() < 0.3 else 0
            with contextlib.suppress(Killed):
                (story.ask if chance.random() < 0.2 else story.send)(journals, chance.choice(keys[: 1 + number // 3]))
            if chance.random() < 0.1:
                story.world = chance.choice(list(crashes(story.world, chance)))
                fleet = {}
        yield from story.moments

    wander.__name__ = f"wander {seed}"
    return wander


def _endure(story: Story, fs: Simulated) -> None:
    try:
        journals = story.opened(fs)
    except UnavailableError:
        journals = story.opened(story.process(2, watched=False))
    for key in ("k1", "k2", "k3", "k4"):
        if not _tolerant(story, journals, key):
            story.note()
            if not _tolerant(story, journals, key):
                journals = story.opened(story.process(3, watched=False))
                story.send(journals, key)
    journals.close()
    story.note()


def _tolerant(story: Story, journals: BlockingFileStore, key: str) -> bool:
    """Whether a key was accepted. When the caller gets an error, the journal must be unchanged."""
    size = record_bytes(story.world)
    try:
        story.send(journals, key)
    except UnavailableError:
        if record_bytes(story.world) != size:
            raise JournalChangedError(key) from None
        return False
    return True


def _calls(processes: Processes, life: Callable[[Story, Simulated], None], settings: Settings) -> int:
    """How many calls a run makes without a fault."""
    story = Story(processes, settings)
    fs = story.process(1, watched=False)
    life(story, fs)
    return fs.count


def rotating(family: Callable[[Processes, Settings], Iterator[Moment]]) -> Family:
    """The same family with segments so small that it rotates often."""

    def rotated(processes: Processes) -> Iterator[Moment]:
        yield from family(processes, ROTATING)

    rotated.__name__ = f"{family.__name__}, rotating"
    return rotated


FAMILIES: tuple[Family, ...] = (
    one,
    rotating(one),
    torn_rivals,
    rotating(torn_rivals),
    faults,
    rotating(faults),
    rivals,
    heir,
    releasing,
    rotating(rivals),
    adopting,
    pruning,
    compacting,
    twice,
    rotating(heir),
    rotating(twice),
)
"""The families of entries, small ones first."""

FAMILIES_WORK = work_families.FAMILIES_WORK
"""The families of work."""


def swept(
    family: Family,
    *,
    processes: Processes = simulated,
    states_max: int = 1_000_000,
    seed: int = 1,
    stop_at_first: bool = False,
) -> Tally:
    """Open the crash states of a family's moments, in an order drawn by the seed, and check each."""
    chance = random.Random(seed)
    tally = Tally(family.__name__)
    seen = set()
    try:
        moments = list(family(processes))
    except (SnapshotFailedError, JournalChangedError, StuckError, CorruptionError, UnavailableError) as error:
        tally.found.append(f"{type(error).__name__}: {error}")
        return tally
    chance.shuffle(moments)
    for moment in moments:
        tally.moments += 1
        for world in crashes(moment.world, chance):
            known = (world.image(), tuple(moment.ledger.acknowledged.items()), moment.key)
            if known in seen:
                continue
            seen.add(known)
            tally.states += 1
            tally.found += moment.judge(world, moment.ledger, moment.key)
            if tally.states >= states_max or (stop_at_first and tally.found):
                return tally
    return tally
