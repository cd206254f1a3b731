"""Crashes of work in files: no work is lost at any call, and none runs before its entry is durable.

Each run creates effects, timers and sends, claims them, finishes them with entries and without, lets the marker be
deleted, and creates work again. The ledger has what was asked and acknowledged of each piece: `born`, `ended`, `gone`
(without an entry), `started` (with its attempt).

- `work_one`: the power fails at each call of one process.
- `work_heir`: the process is killed at each call; another one continues.
- `work_rivals`: one process appends and is killed at each call; another one runs what it finds.
- `work_faults`: each call fails once; the caller retries.

After a crash the work is found by its markers alone: first without, then with new work of another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from interlock.errors import CorruptionError, InterlockError, UnavailableError
from interlock.model.journal.work import Lane, Work, WorkDelta, WorkId
from interlock.ports.store import Append, Appended, Duplicate, Loaded
from interlock.ports.work import Claim, Settlement
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.work.dispatcher import MARKER_IDLE_MS, SCAN_MS, Dispatcher
from tests.crash.life import BLOCK_BYTES, ENTITY, SETTINGS, Ledger, opened, step
from tests.crash.simulated.file_system import Directory, File, Killed, Simulated, World
from tests.crash.simulated.recorded_calls import FAULTS, Family, Moment, Processes, Story

ROTATING = Settings(snapshot_every=4, segment_bytes_max=500, block_bytes=BLOCK_BYTES)
"""So small that every other entry starts a segment."""
SEALING = Settings(snapshot_every=4, segment_bytes_max=1_400, block_bytes=BLOCK_BYTES)
"""So large that a segment ends with a mark, after the last snapshot."""

BARE = Settings(snapshot_every=1_000)
"""Without snapshots: so few changes that all their combinations are checked."""

LANES: tuple[Lane, ...] = ("effect", "timer", "outbox")
ONCE = {"restore": "fail"}
"""Work whose start must not be forgotten."""
LATER_MS = 10**9


def work(lane: Lane, version: int, body: dict[str, str] | None = None) -> Work:
    """A piece of work that the entry of a version creates."""
    return Work(WorkId(lane, version, 0), "charge" if lane == "effect" else lane, body or {}, 0)


def named(place: WorkId) -> str:
    """A piece of work in the ledger."""
    return f"{place.lane}/{place.version}"


class WorkStory(Story):
    """The calls of one caller that creates and runs work."""

    now_ms = 0

    def note(self) -> None:
        """Record the moment. Hints and the lock's file are as if flushed: what is lost of them changes nothing,
        and a crash state for each of their pieces would hide the others.
        """
        super().note()
        world = self.moments[-1].world
        for path in (("store",), ("store", "changed"), ("store", "dispatch")):
            number = world.found(*path)
            if number is not None:
                world.nodes[number] = _flushed(world.nodes[number])

    def judged(self, world: World, ledger: Ledger, retry: str | None) -> list[str]:
        """What is wrong after a crash."""
        return [
            *_violations(world.copy(), ledger, self.settings, leaves_more=False),
            *_violations(world.copy(), ledger, self.settings, leaves_more=True),
        ]

    def leave(self, journals: BlockingFileStore, version: int, left: WorkDelta, *, by: str = "k") -> None:
        """An entry with the work that it creates and finishes."""
        key = f"{by}{version}"
        facts = _facts(left, key)
        self.ledger.asked.update([key, *facts])
        answer = journals.append(_append(version, key, left))
        assert isinstance(answer, Appended | Duplicate)
        for fact in (key, *facts):
            self.ledger.acknowledged[fact] = version

    def take(self, dispatch: Dispatcher, lane: Lane) -> tuple[Claim, ...]:
        """Claim what is due in a lane. From here on it may run."""
        claims = dispatch.claim(lane, None, owner="w", now_ms=self.now_ms, until_ms=LATER_MS, limit=9)
        for claim in claims:
            self.ledger.acknowledged[f"started {named(claim.work.place)}"] = claim.attempt
        return claims

    def finish(self, dispatch: Dispatcher, claims: tuple[Claim, ...]) -> None:
        """Finish work without an entry."""
        self.ledger.asked.update(f"gone {named(each.work.place)}" for each in claims)
        dispatch.settle(tuple(Settlement(each, "done") for each in claims), now_ms=self.now_ms)

    def drop(self, dispatch: Dispatcher, place: WorkId) -> None:
        """An operator deletes work, and the deletion is acknowledged."""
        self.ledger.asked.add(f"gone {named(place)}")
        if dispatch.drop(ENTITY, place):
            self.ledger.acknowledged[f"gone {named(place)}"] = 1

    def life(self, fs: Simulated) -> None:
        """Create work, run it, let the marker be deleted, and create work again."""
        journals = self.opened(fs)
        dispatch = journals.dispatcher()
        self.take(dispatch, "timer")  # from here on it is the one that performs
        for part in PARTS:
            part(self, journals, dispatch)
        dispatch.close()
        journals.close()
        self.note()


def _flushed(node: File | Directory) -> File | Directory:
    if isinstance(node, File):
        return File(node.cache, node.cache, ())
    return Directory(node.cache, node.cache, ())


def _append(version: int, key: str, left: WorkDelta) -> Append:
    return replace(step(version, key), left=left)


def _facts(left: WorkDelta, key: str) -> list[str]:
    born = [f"born {named(each.place)} {key}" for each in left.born]
    return born + [f"ended {named(each)}" for each in left.ended]


def _charged(story: WorkStory, journals: BlockingFileStore, dispatch: Dispatcher) -> None:
    """An effect that must not start twice, finished by an entry, and a timer."""
    story.leave(journals, 1, WorkDelta(born=(work("effect", 1, ONCE), work("timer", 1))))
    story.take(dispatch, "effect")
    story.leave(journals, 2, WorkDelta(born=(work("effect", 2), work("outbox", 2)), ended=(WorkId("effect", 1, 0),)))


def _called(story: WorkStory, journals: BlockingFileStore, dispatch: Dispatcher) -> None:
    """An effect that ends without an entry, a timer that fires, and a send. The last mark is not flushed."""
    story.finish(dispatch, story.take(dispatch, "effect"))
    story.leave(journals, 3, WorkDelta(ended=(WorkId("timer", 1, 0),)))
    story.finish(dispatch, story.take(dispatch, "outbox"))


def _rested(story: WorkStory, journals: BlockingFileStore, dispatch: Dispatcher) -> None:
    """The marker is deleted; then there is work again, and an operator deletes some."""
    story.now_ms += 2 * MARKER_IDLE_MS
    story.take(dispatch, "timer")
    story.leave(journals, 4, WorkDelta(born=(work("outbox", 4), work("timer", 4))))
    story.drop(dispatch, WorkId("timer", 4, 0))
    story.leave(journals, 5, WorkDelta(born=(work("effect", 5),)))
    story.finish(dispatch, story.take(dispatch, "effect"))


Part = Callable[[WorkStory, BlockingFileStore, Dispatcher], None]
PARTS: tuple[Part, ...] = (_charged, _called, _rested)


# Judging


def _violations(world: World, ledger: Ledger, settings: Settings, *, leaves_more: bool) -> list[str]:
    known = ledger.copy()
    try:
        if leaves_more:
            _leave_more(world, known, settings)
        _silence(world)
        journals = opened(Simulated(world, process=9), settings)
        claims = _all_claimed(journals.dispatcher())
        versions = {record.key: record.version for record in journals.read(ENTITY)}
        return [*_of_entries(versions, known), *_of_work(claims, versions, known)]
    except CorruptionError as error:
        return [f"unreadable: {error}"]
    except InterlockError as error:
        return [f"unavailable: {error}"]


def _leave_more(world: World, ledger: Ledger, settings: Settings) -> None:
    """A process that runs no work creates some, and dies."""
    fs = Simulated(world, process=8)
    journals = opened(fs, settings)
    loaded = journals.load(ENTITY)
    version = 1 + (loaded.version if isinstance(loaded, Loaded) else 0)
    left = WorkDelta(born=(work("timer", version),))
    journals.append(_append(version, "new", left))
    ledger.asked.update(["new", *_facts(left, "new")])
    ledger.acknowledged["new"] = version
    fs.die()


def _silence(world: World) -> None:
    """No hint is read: work must be found by its marker alone."""
    number = world.found("store", "changed")
    if number is not None:
        world.nodes[number] = File(b"", b"", ())


def _all_claimed(dispatch: Dispatcher) -> dict[str, int]:
    """Everything that a new process claims, with its attempts. In an outbox each row follows the one before."""
    found: dict[str, int] = {}
    for lane in LANES:
        while claims := dispatch.claim(lane, None, owner="n", now_ms=LATER_MS, until_ms=2 * LATER_MS, limit=99):
            found |= {named(each.work.place): each.attempt for each in claims}
            if lane == "outbox":
                dispatch.settle(tuple(Settlement(each, "done") for each in claims), now_ms=LATER_MS)
    return found


def _of_entries(versions: dict[str, int], ledger: Ledger) -> list[str]:
    """Acknowledged entries that are missing, and missing entries whose work was claimed."""
    facts = ledger.acknowledged.items()
    lost = [f"lost: {key}" for key, version in facts if " " not in key and versions.get(key) != version]
    started = {_place(fact) for fact, _ in facts if fact.startswith("started ")}
    return lost + [f"early: {each} was taken up" for each in started if _version(each) > len(versions)]


def _of_work(claims: dict[str, int], versions: dict[str, int], ledger: Ledger) -> list[str]:
    """Work that is lost, was never created, was finished, or whose attempt is forgotten.

    Work belongs to its entry: where that is, acknowledged or not, it must be found.
    """
    asked, kept = ledger.asked, ledger.acknowledged
    here = {_place(fact) for fact in asked if fact.startswith("born ") and fact.split()[2] in versions}
    over = {_place(fact) for fact in asked if fact.startswith(("ended ", "gone "))}
    surely_over = {_place(fact) for fact in kept if fact.startswith(("ended ", "gone "))}
    found = [f"lost: the work {place}" for place in here - over - claims.keys()]
    found += [f"phantom: the work {place}" for place in claims.keys() - here]
    found += [f"doubled: the work {place} was over" for place in surely_over & claims.keys()]
    once = named(WorkId("effect", 1, 0))
    if once in claims and claims[once] <= kept.get(f"started {once}", 0):
        found.append(f"doubled: an attempt at {once} is forgotten")
    return found


def _place(fact: str) -> str:
    return fact.split()[1]


def _version(place: str) -> int:
    return int(place.rpartition("/")[2])


# Families


def work_one(processes: Processes, settings: Settings = SETTINGS) -> Iterator[Moment]:
    """The power fails at each call of one process."""
    story = WorkStory(processes, settings)
    story.life(story.process(1, watched=True))
    yield from story.moments


def work_heir(processes: Processes, settings: Settings = SETTINGS) -> Iterator[Moment]:
    """One process is killed at each call; another continues, runs work, and creates more."""
    number, dies = 0, True
    while dies:
        number += 1
        story = WorkStory(processes, settings)
        fs = story.process(1, watched=False)
        fs.kill_at = number
        try:
            story.life(fs)
            dies = False
        except Killed:
            pass
        after = story.process(2, watched=number % 3 == 0)
        journals = story.opened(after)
        dispatch = journals.dispatcher()
        for lane in LANES:
            story.take(dispatch, lane)
        loaded = journals.load(ENTITY)
        version = 1 + (loaded.version if isinstance(loaded, Loaded) else 0)
        story.leave(journals, version, WorkDelta(born=(work("outbox", version),)), by="h")
        story.note()
        yield from story.moments


def work_rivals(processes: Processes, settings: Settings = SETTINGS) -> Iterator[Moment]:
    """One process dies at each call of its append; another runs what it finds, and deletes the marker."""
    for first_ends in (False, True):
        number, dies = 0, True
        while dies:
            number += 1
            story = WorkStory(processes, settings)
            one, two = story.process(1, watched=False), story.process(2, watched=False)
            ours, theirs = story.opened(one), story.opened(two)
            dispatch = theirs.dispatcher()
            story.leave(ours, 1, WorkDelta(born=(work("effect", 1, ONCE),)))
            claims = story.take(dispatch, "effect")
            if first_ends:  # nothing is left: the marker goes at the next look but one
                story.finish(dispatch, claims)
                story.now_ms = MARKER_IDLE_MS - SCAN_MS // 3
                story.take(dispatch, "effect")
            one.kill_at = one.count + number
            try:
                story.leave(ours, 2, WorkDelta(born=(work("timer", 2), work("outbox", 2))))
                story.leave(ours, 3, WorkDelta(born=(work("effect", 3),), ended=(WorkId("timer", 2, 0),)))
                dies = False
            except Killed:
                pass
            story.watch(two)
            story.now_ms += SCAN_MS // 2
            for lane in LANES:
                story.take(dispatch, lane)
            story.note()
            yield from story.moments


def work_faults(processes: Processes, settings: Settings = SETTINGS) -> Iterator[Moment]:
    """Each call fails once, in each way. The caller retries, here and then from another process."""
    for fault in FAULTS:
        number, fires = 0, True
        while fires:
            number += 1
            story = WorkStory(processes, settings)
            fs = story.process(1, watched=False)
            fs.fail_at, fs.fault = number, fault
            _endure(story, fs)
            fires = bool(fs.fired) or len(fs.calls) >= number
            yield from story.moments


def _endure(story: WorkStory, fs: Simulated) -> None:
    desk: tuple[BlockingFileStore, Dispatcher] | None = None
    for part in PARTS:
        for attempt in range(4):
            try:
                desk = desk or _desk(story, fs if attempt == 0 else story.process(2 + attempt, watched=False))
                part(story, *desk)
                break
            except UnavailableError:
                story.note()
                if attempt:  # another retry here is of no use: this process is poisoned
                    fs.die()
                    desk = None
        else:
            raise UnavailableError("no process can continue")
    story.note()


def _desk(story: WorkStory, fs: Simulated) -> tuple[BlockingFileStore, Dispatcher]:
    journals = story.opened(fs)
    return journals, journals.dispatcher()


def _with(family: Callable[[Processes, Settings], Iterator[Moment]], word: str, settings: Settings) -> Family:
    def varied(processes: Processes) -> Iterator[Moment]:
        yield from family(processes, settings)

    varied.__name__ = f"{family.__name__}, {word}"
    return varied


FAMILIES_WORK: tuple[Family, ...] = (
    work_one,
    _with(work_one, "bare", BARE),
    _with(work_one, "rotating", ROTATING),
    _with(work_one, "sealing", SEALING),
    work_rivals,
    work_faults,
    work_heir,
    _with(work_heir, "rotating", ROTATING),
)
