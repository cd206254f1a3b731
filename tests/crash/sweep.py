"""Every crash of every short life: where the process can die, the power fail, or a call go wrong.

Families, each yielding moments (a world, what the caller knows, the key under way):

- `one`: a process opens, appends, keeps snapshots, is asked twice, closes. The power fails at each call.
- `twice`: after each such crash the life goes on in another process, and the power fails at each call of that.
- `heir`: the same process is killed at each call; another one sends the same key again. The power fails at each of its
  calls.
- `rivals`: two processes take turns; one is killed at each call of its append; the other goes on with the same key.
- `faults`: each call of a life fails once (EIO, ENOSPC, a short write); the caller sends the same key again, here and
  from another process.

For each moment every crash state is opened and examined (`life.violations`).
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from interlock.errors import CorruptionError, UnavailableError
from interlock.ports.store import Duplicate
from interlock.stores.files_journals import Journals
from tests.crash.life import ENTITY, Ledger, StuckError, append_blindly, journal_file, opened, send, violations
from tests.crash.simulated import Killed, Simulated, World, crashes

FAULTS = (errno.EIO, errno.ENOSPC, Simulated.SHORT)
Processes = Callable[[World, int], Simulated]


@dataclass
class Moment:
    """A world as it was at one call, what the caller knew then, and the key it was sending."""

    world: World
    ledger: Ledger
    key: str | None


@dataclass
class Tally:
    """What a family came to."""

    name: str
    moments: int = 0
    states: int = 0
    found: list[str] = field(default_factory=list)

    def count(self, word: str) -> int:
        """How many findings begin with a word."""
        return sum(each.startswith(word) for each in self.found)


class Story:
    """One caller's way through a store, with every call of some processes written down as a moment."""

    def __init__(self, processes: Processes) -> None:
        self.world = World()
        self.ledger = Ledger()
        self.moments: list[Moment] = []
        self.key: str | None = None
        self._processes = processes

    def process(self, number: int, *, watched: bool) -> Simulated:
        """A process of this story."""
        fs = self._processes(self.world, number)
        if watched:
            self.watch(fs)
        return fs

    def watch(self, fs: Simulated) -> None:
        """From now on every call of this process is a moment."""
        fs.watch = lambda _: self.note()

    def note(self) -> None:
        """Writes down the moment."""
        self.moments.append(Moment(self.world.copy(), self.ledger.copy(), self.key))

    def append(self, journals: Journals, key: str, version: int) -> None:
        """One append of a version that is known."""
        self.key = key
        append_blindly(journals, self.ledger, key, version)
        self.key = None

    def send(self, journals: Journals, key: str) -> None:
        """One append of whatever version is next."""
        self.key = key
        send(journals, self.ledger, key)
        self.key = None

    def ask(self, journals: Journals, key: str) -> None:
        """Whether a key was kept: a yes is an acknowledgement."""
        answer = journals.load(ENTITY, key=key)
        if isinstance(answer, Duplicate):
            self.ledger.acknowledged[key] = answer.version

    def life(self, fs: Simulated) -> None:
        """Opens, appends past a snapshot, sends a key twice, closes."""
        journals = opened(fs)
        for version in range(1, 4):
            self.append(journals, f"k{version}", version)
        self.send(journals, "k3")
        self.append(journals, "k4", 4)
        self.append(journals, "k5", 5)
        journals.close()
        self.note()


def simulated(world: World, number: int) -> Simulated:
    """A process as it should be."""
    return Simulated(world, process=number)


def one(processes: Processes) -> Iterator[Moment]:
    """The power fails at each call of one process."""
    story = Story(processes)
    story.life(story.process(1, watched=True))
    yield from story.moments


def twice(processes: Processes) -> Iterator[Moment]:
    """The power fails at each call of one process; what is left goes on, and it fails again at each call."""
    chance = random.Random(2)
    known = set()
    for moment in one(processes):
        for world in crashes(moment.world, chance):
            state = (world.image(), tuple(moment.ledger.acknowledged), moment.key)
            if state in known:
                continue
            known.add(state)
            story = Story(processes)
            story.world, story.ledger = world, moment.ledger.copy()
            after = opened(story.process(2, watched=True))
            for key in (moment.key or "k8", "k9", "k10"):
                story.send(after, key)
            after.close()
            story.note()
            yield from story.moments


def heir(processes: Processes) -> Iterator[Moment]:
    """One process is killed at each call, another takes over."""
    for number in range(1, _calls(processes, Story.life) + 1):
        story = Story(processes)
        fs = story.process(1, watched=False)
        fs.kill_at = number
        try:
            story.life(fs)
        except Killed:
            assert fs.fired
        after = opened(story.process(2, watched=True))
        story.send(after, story.key or "k9")
        story.send(after, "k10")
        after.close()
        story.note()
        yield from story.moments


def rivals(processes: Processes) -> Iterator[Moment]:
    """Two open processes take turns; the first dies in the middle, the second goes on with its open handle.

    It sends the key again, or (second round) first asks whether the key was kept, which acknowledges it as well.
    """
    for asks in (False, True):
        number = 0
        dies = True
        while dies:
            number += 1
            story = Story(processes)
            first, second = story.process(1, watched=False), story.process(2, watched=False)
            ours, theirs = opened(first), opened(second)
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
            for version in range(4, 11):  # as many snapshots as the first one began
                story.send(theirs, f"k{version}")
            story.note()
            if theirs.shared.snapshot_failures:
                raise SnapshotFailedError
            yield from story.moments


def faults(processes: Processes) -> Iterator[Moment]:
    """Each call of a life fails once, in each way; then the same key again, here and elsewhere."""
    for fault in FAULTS:
        for number in range(1, _calls(processes, _endure) + 1):
            story = Story(processes)
            fs = story.process(1, watched=False)
            fs.fail_at, fs.fault = number, fault
            _endure(story, fs)
            assert fs.fired or fs.calls[number - 1] == "unique"
            yield from story.moments


def torn_rivals(processes: Processes) -> Iterator[Moment]:
    """Another process's entry is acknowledged, then our own append fails at each of its calls."""
    for fault in FAULTS:
        fires = True
        number = 0
        while fires:
            number += 1
            story = Story(processes)
            first, second = story.process(1, watched=False), story.process(2, watched=False)
            ours, theirs = opened(first), opened(second)
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


def wanderings(seed: int) -> Callable[[Processes], Iterator[Moment]]:
    """A family of one random life: two processes, sends and repeats, deaths in the middle, power cuts."""

    def wander(processes: Processes) -> Iterator[Moment]:
        chance = random.Random(seed)
        story = Story(processes)
        fleet: dict[int, tuple[Simulated, Journals]] = {}
        keys = [f"k{number}" for number in range(1, 10)]
        for number in range(30):
            place = chance.choice((1, 2))
            if place not in fleet or fleet[place][0].dead:
                fs = story.process(10 * number + place, watched=True)
                fleet[place] = fs, opened(fs)
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


class SnapshotFailedError(Exception):
    """A snapshot failed in a world without faults."""


class JournalChangedError(Exception):
    """The caller was given an error, and yet the journal is not as it was."""


def _endure(story: Story, fs: Simulated) -> None:
    try:
        journals = opened(fs)
    except UnavailableError:
        journals = opened(story.process(2, watched=False))
    for key in ("k1", "k2", "k3", "k4"):
        if not _tolerant(story, journals, key):
            story.note()
            if not _tolerant(story, journals, key):
                journals = opened(story.process(3, watched=False))
                story.send(journals, key)
    journals.close()
    story.note()


def _tolerant(story: Story, journals: Journals, key: str) -> bool:
    """Whether a key was taken. When the caller gets an error, the journal must be as it was."""
    size = len(journal_file(story.world))
    try:
        story.send(journals, key)
    except UnavailableError:
        if len(journal_file(story.world)) != size:
            raise JournalChangedError(key) from None
        return False
    return True


def _calls(processes: Processes, life: Callable[[Story, Simulated], None]) -> int:
    """How many calls a life makes when nothing goes wrong."""
    story = Story(processes)
    fs = story.process(1, watched=False)
    life(story, fs)
    return fs.count


FAMILIES: tuple[Callable[[Processes], Iterator[Moment]], ...] = (one, rivals, torn_rivals, faults, heir, twice)


def swept(
    family: Callable[[Processes], Iterator[Moment]],
    *,
    processes: Processes = simulated,
    states_max: int = 1_000_000,
    seed: int = 1,
    stop_at_first: bool = False,
) -> Tally:
    """Opens the crash states of a family's moments, in an order drawn by the seed, and holds them to the promise."""
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
            tally.found += violations(world, moment.ledger, retry=moment.key)
            if tally.states >= states_max or (stop_at_first and tally.found):
                return tally
    return tally
