"""Crashes of layout C: where the process can die, the power fail, or a call go wrong, between the log and the journals.

Each life keeps steps of two entities in batches, makes checkpoints in the middle, and closes. Keys that begin with `b`
are the second entity's.

- `one_c`: the power fails at each call of one process.
- `twice_c`: what is left goes on in another process, and the power fails at each call of that.
- `heir_c`: the process is killed at each call; another one opens, recovers, and sends the same key again.
- `follower_c`: the same, by a process that had the store open as a reader, and asks before it takes over.
- `opening_c`: the process is killed while it opens the store, and the power fails while another one does.
- `faults_c`: each call fails once; the caller sends the same key again, here and from another process.
- `refused_c`: each write fails once; before anybody sends again a checkpoint is made, and the power fails at each call.
- `wanderings_c`: batches, checkpoints, faults (often two in a row), deaths and power cuts in an order drawn by a seed.

Where a second process goes on after each call of a first, only every few of its own calls are crash points, each time
others: all calls of both are covered, not all pairs.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

from interlock.errors import CorruptionError, InterlockError, UnavailableError, UsageError
from interlock.ports.store import Appended, Conflict, Duplicate, Loaded
from interlock.stores.files.filesystem import FileSystem
from interlock.stores.files.journal.durable_io import Settings
from interlock.stores.files.log_layout.layout import BatchedJournals
from interlock.stores.files.root import Root
from tests.crash.life import BLOCK_BYTES, ENTITY, Ledger, StuckError, record_violations, send, step
from tests.crash.simulated import Killed, Simulated, World, crashes
from tests.crash.stories import FAULTS, Family, JournalChangedError, Moment, Processes, Story

OTHER = "order/B-2"
BOTH = (ENTITY, OTHER)
BATCHED = Settings(snapshot_every=2, wal_bytes_max=900, block_bytes=BLOCK_BYTES)
"""So little that a life makes checkpoints of itself."""
BATCHED_ROTATING = Settings(snapshot_every=2, wal_bytes_max=900, segment_bytes_max=300, block_bytes=BLOCK_BYTES)


def opened_c(fs: FileSystem, settings: Settings = BATCHED) -> BatchedJournals:
    """A process that opens a store of layout C, without shards."""
    return BatchedJournals(Root(fs, "store", settings, shard_digits=0, layout="C"), fs, settings)


class BatchStory(Story):
    """A story of a store of layout C."""

    def opened(self, fs: Simulated) -> BatchedJournals:
        """A process that opens the store."""
        return opened_c(fs, self.settings)

    def judged(self, world: World, ledger: Ledger, retry: str | None) -> list[str]:
        """What is wrong with a world that a crash left."""
        return batch_violations(world, ledger, retry, self.settings)

    def batch(self, journals: BatchedJournals, *steps: tuple[str, int, str]) -> None:
        """One batch of steps: entity, version, key."""
        self.key = steps[0][2]
        self.ledger.asked.update(key for _, _, key in steps)
        answers = journals.commit([step(version, key, entity=entity) for entity, version, key in steps])
        for (_, _, key), answer in zip(steps, answers, strict=True):
            if isinstance(answer, InterlockError):
                raise answer
            if not isinstance(answer, Conflict):
                self.ledger.acknowledged[key] = answer.version
        self.key = None
        journals.settle()

    def life(self, fs: Simulated) -> None:
        """Opens, keeps batches past checkpoints, sends a key twice, closes."""
        journals = self.opened(fs)
        self.batch(journals, (ENTITY, 1, "k1"), (ENTITY, 2, "k2"), (OTHER, 1, "b1"), (ENTITY, 3, "k2"))
        self.send(journals, "k3")
        self.send(journals, "k3")
        self.batch(journals, (OTHER, 2, "b2"), (ENTITY, 4, "k4"), (ENTITY, 4, "late"))
        journals.settle(now=True)
        self.send(journals, "k5")
        journals.close()
        self.note()


def batch_violations(world: World, ledger: Ledger, retry: str | None, settings: Settings) -> list[str]:
    """What is wrong with the world that a crash left; then a retry and new entries, a restart, and all of it again."""
    world = world.copy()
    found: list[str] = []
    try:
        after = ledger.copy()
        for process in (9, 10):
            journals = opened_c(Simulated(world, process=process), settings)
            found += _both(journals, after)
            known = {record.key for record in journals.read(ENTITY)}
            for key in ([retry] if retry and not retry.startswith("b") else []) + [f"new{process}"]:
                answer = send(journals, after, key)
                if not isinstance(answer, Duplicate if key in known else Appended):
                    found.append(f"doubled: {key} gave {answer}")
            found += _both(journals, after)
            loaded = journals.load(ENTITY)
            if not isinstance(loaded, Loaded) or loaded.version != len(journals.read(ENTITY)):
                found.append(f"lost: loaded {loaded}")
            if journals.shared.snapshot_failures:
                found.append("snapshot: it could not be kept")
            journals.close()
    except CorruptionError as error:
        found.append(f"unreadable: {error}")
    except (UnavailableError, UsageError, StuckError) as error:
        found.append(f"unavailable: {error}")
    return found


def _both(journals: BatchedJournals, ledger: Ledger) -> list[str]:
    found = []
    for entity, is_other in ((ENTITY, False), (OTHER, True)):
        acknowledged = {key: each for key, each in ledger.acknowledged.items() if key.startswith("b") == is_other}
        found += record_violations(journals.read(entity), Ledger(ledger.asked, acknowledged))
    return found


def one_c(processes: Processes, settings: Settings = BATCHED) -> Iterator[Moment]:
    """The power fails at each call of one process."""
    story = BatchStory(processes, settings)
    story.life(story.process(1, watched=True))
    yield from story.moments


def twice_c(processes: Processes, settings: Settings = BATCHED) -> Iterator[Moment]:
    """The power fails at each call of one process; what is left goes on, and it fails again at each call."""
    chance = random.Random(2)
    known: set[object] = set()
    for moment in one_c(processes, settings):
        for world in crashes(moment.world, chance):
            state = (world.image(), tuple(moment.ledger.acknowledged), moment.key)
            if state in known:
                continue
            known.add(state)
            if len(known) % 2:
                continue  # every other one goes on
            story = BatchStory(processes, settings)
            story.world, story.ledger = world, moment.ledger.copy()
            _go_on(story, story.opened(story.process(2, watched=True)), moment.key)
            yield from _some(story.moments, len(known) // 2, settings)


def heir_c(processes: Processes, settings: Settings = BATCHED) -> Iterator[Moment]:
    """One process is killed at each call, another takes over."""
    for number in range(1, _calls(processes, settings) + 1):
        story = BatchStory(processes, settings)
        _killed(story, number)
        _go_on(story, story.opened(story.process(2, watched=True)), story.key)
        yield from _some(story.moments, number, settings)


def follower_c(processes: Processes, settings: Settings = BATCHED) -> Iterator[Moment]:
    """One process is killed at each call; one that read beside it asks whether the key was kept, then takes over."""
    first = _opening_calls(processes, settings)
    for number in range(first + 1, _calls(processes, settings) + 1):
        story = BatchStory(processes, settings)
        follower, second = _killed_beside(story, first, number)
        story.watch(second)
        if story.key is not None and not story.key.startswith("b"):
            story.ask(follower, story.key)
        _go_on(story, follower, story.key)
        yield from _some(story.moments, number, settings)


def _killed_beside(story: BatchStory, first: int, number: int) -> tuple[BatchedJournals, Simulated]:
    """Kills the owner at a call, after another process opened the store as a reader."""
    fs, second = story.process(1, watched=False), story.process(2, watched=False)
    followers: list[BatchedJournals] = []

    def follow(_: str) -> None:
        if fs.count == first:
            followers.append(story.opened(second))

    fs.watch, fs.kill_at = follow, number
    try:
        story.life(fs)
    except Killed:
        assert fs.fired
    return followers[0], second


def opening_c(processes: Processes, settings: Settings = BATCHED) -> Iterator[Moment]:
    """One process is killed at each call of its opening; the power fails at each call of another one's."""
    for number in range(1, _opening_calls(processes, settings) + 1):
        story = BatchStory(processes, settings)
        _killed(story, number)
        story.opened(story.process(2, watched=True))
        story.note()
        yield from story.moments


def faults_c(processes: Processes, settings: Settings = BATCHED) -> Iterator[Moment]:
    """Each call of a life fails once, in each way; then the same key again, here and elsewhere."""
    for fault in FAULTS:
        for number in range(1, _endured_calls(processes, settings) + 1):
            story = BatchStory(processes, settings)
            fs = story.process(1, watched=False)
            fs.fail_at, fs.fault = number, fault
            _endure(story, fs)
            assert fs.fired or fs.calls[number - 1] == "unique"
            yield from story.moments


def refused_c(processes: Processes, settings: Settings = BATCHED) -> Iterator[Moment]:
    """Each write of two batches fails once, in each way; then a checkpoint, and nobody has sent the batch again."""
    whole = BatchStory(processes, settings)
    fs = whole.process(1, watched=False)
    _two_batches(whole, fs)
    for number in [at for at, name in enumerate(fs.calls, start=1) if name == "write"]:
        for fault in FAULTS:
            story = BatchStory(processes, settings)
            fs = story.process(1, watched=False)
            fs.fail_at, fs.fault = number, fault
            journals = _two_batches(story, fs)
            story.watch(fs)
            if journals is not None:
                journals.settle(now=True)
                story.note()
            yield from story.moments


def _two_batches(story: BatchStory, fs: Simulated) -> BatchedJournals | None:
    """The store, with as many of them as were taken; None when it could not be opened."""
    journals = None
    with contextlib.suppress(UnavailableError):
        journals = story.opened(fs)
        for version in (1, 2):
            story.batch(journals, (ENTITY, version, f"k{version}"), (OTHER, version, f"b{version}"))
    return journals


def wanderings_c(seed: int) -> Family:
    """A family of one random life. Every other one rotates."""
    settings = BATCHED_ROTATING if seed % 2 else BATCHED

    def wander(processes: Processes) -> Iterator[Moment]:
        chance = random.Random(seed)
        story = BatchStory(processes, settings)
        fs = journals = None
        for number in range(24):
            if fs is None or journals is None or fs.dead:
                fs = story.process(10 + number, watched=True)
                journals = story.opened(fs)
            _trouble(fs, chance)
            try:
                if chance.random() < 0.2:
                    journals.settle(now=True)
                else:
                    story.batch(journals, *_drawn(journals, chance, number))
            except Killed:
                pass
            except UnavailableError:
                if journals._wal is None or journals._wal.poison is not None:
                    fs.die()
            if chance.random() < 0.1:
                fs.die()
                story.world = chance.choice(list(crashes(story.world, chance)))
        yield from story.moments

    wander.__name__ = f"wander C {seed}"
    return wander


def _trouble(fs: Simulated, chance: random.Random) -> None:
    """What will happen to a process within its next calls: nothing, its end, or a call that fails, or two."""
    fs.kill_at = fs.fail_at = 0
    if chance.random() < 0.2:
        fs.kill_at = fs.count + chance.randrange(1, 14)
    elif chance.random() < 0.5:
        fs.fail_at, fs.fault = fs.count + chance.randrange(1, 14), chance.choice(FAULTS)
        fs.faults_more = chance.choice((0, 0, 1))


def _drawn(journals: BatchedJournals, chance: random.Random, number: int) -> list[tuple[str, int, str]]:
    """One to three steps, with keys that may have been sent before."""
    versions = {entity: loaded.version if isinstance(loaded := journals.load(entity), Loaded) else 0 for entity in BOTH}
    steps = []
    for entity in (chance.choice(BOTH) for _ in range(chance.randrange(1, 4))):
        versions[entity] += 1
        sign = "k" if entity == ENTITY else "b"
        steps.append((entity, versions[entity], f"{sign}{chance.randrange(2 * number + 3)}"))
    return steps


def _some(moments: list[Moment], number: int, settings: Settings) -> list[Moment]:
    """A part of the moments, another one for each number."""
    stride = 4 if settings is BATCHED else 8
    return moments[number % stride :: stride]


def _go_on(story: BatchStory, journals: BatchedJournals, key: str | None) -> None:
    for each in ((key if key is not None and not key.startswith("b") else "k8"), "k9"):
        story.send(journals, each)
    journals.close()
    story.note()


def _killed(story: BatchStory, number: int) -> None:
    fs = story.process(1, watched=False)
    fs.kill_at = number
    try:
        story.life(fs)
    except Killed:
        assert fs.fired


def _endure(story: BatchStory, fs: Simulated) -> None:
    try:
        journals = story.opened(fs)
    except UnavailableError:
        fs.die()
        journals = story.opened(story.process(2, watched=False))
    owner = journals._fs
    for key in ("k1", "k2", "k3", "k4", "k5", "k6"):
        if not _tolerant(story, journals, key):
            story.note()
            if not _tolerant(story, journals, key):
                assert isinstance(owner, Simulated)
                owner.die()
                journals = story.opened(story.process(3, watched=False))
                owner = journals._fs
                story.send(journals, key)
        story.note()
    journals.close()
    story.note()


def _tolerant(story: BatchStory, journals: BatchedJournals, key: str) -> bool:
    """Whether a key was taken. When the caller gets an error, the entity must be as it was."""
    count = _count(story)
    try:
        story.send(journals, key)
    except UnavailableError:
        if _count(story) != count:
            raise JournalChangedError(key) from None
        return False
    return True


def _count(story: BatchStory) -> int:
    """How many records another process would find."""
    world = story.world.copy()
    return len(opened_c(Simulated(world, process=8), story.settings).read(ENTITY))


def _calls(processes: Processes, settings: Settings) -> int:
    story = BatchStory(processes, settings)
    fs = story.process(1, watched=False)
    story.life(fs)
    return fs.count


def _endured_calls(processes: Processes, settings: Settings) -> int:
    story = BatchStory(processes, settings)
    fs = story.process(1, watched=False)
    _endure(story, fs)
    return fs.count


def _opening_calls(processes: Processes, settings: Settings) -> int:
    story = BatchStory(processes, settings)
    fs = story.process(1, watched=False)
    story.opened(fs)
    return fs.count


def _rotating(family: Family) -> Family:
    def rotated(processes: Processes) -> Iterator[Moment]:
        yield from family(processes, BATCHED_ROTATING)  # type: ignore[call-arg]  # all of ours take settings

    rotated.__name__ = f"{family.__name__}, rotating"
    return rotated


FAMILIES_C: tuple[Family, ...] = (
    one_c,
    _rotating(one_c),
    opening_c,
    faults_c,
    refused_c,
    heir_c,
    _rotating(heir_c),
    follower_c,
    twice_c,
    _rotating(twice_c),
)
"""The families of layout C, small ones first."""
