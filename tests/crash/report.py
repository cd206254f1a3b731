"""Everything that a store is put through, as one table: `make torture`.

Each row is one kind of fault, how often it struck, what was lost, doubled or otherwise wrong, and how long it took.
Every kind has its control: stores with a fault in them that the same run must find. The last line is
`torture: 0 lost, 0 duplicated` when all is well; otherwise failures are printed before it, and the exit code is 1.

    make torture               the long run, half an hour: thousands of kills, hundreds of power cuts, every system call
    make torture QUICK=1       the same rows with small counts, a few minutes
    make torture KILLS=5000    more kills; FORKS=500 for more forks

INTERLOCK_CRASH_STATES asks for more states of random lives.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.crash.disks import failing_calls, power_cut
from tests.crash.disks.full_disk import ADDRESSES, URLS, filled
from tests.crash.disks.mounts import mount_refusal, tmpfs
from tests.crash.kills.fork_storm import FAULTS, STORES, fork_row
from tests.crash.kills.fork_storm import is_found as is_fork_found
from tests.crash.kills.histories import RENAMING, checked
from tests.crash.kills.storm import STORMS_MAX, WRITERS, Outcome, storm
from tests.crash.kills.work_storm import stormed
from tests.crash.simulated import mutants, sweep
from tests.crash.simulated.concurrent_calls import SCENES, SEED, Scene
from tests.crash.simulated.mutants import retried_flush
from tests.crash.simulated.recorded_calls import Family, Mutant
from tests.crash.simulated.test_damage import MASKS, content, journal, reading
from tests.crash.table import Row, Table
from tests.support.postgres_server import NoServerError, new_schema, server_url

QUICK = bool(os.environ.get("QUICK"))
SEED_NUMBER = 1


def _count(long: int, quick: int) -> int:
    return quick if QUICK else long


KILLS = int(os.environ.get("KILLS") or _count(1_000, 40))
KILLS_SERVER = max(10, KILLS // 5)
KILLS_VARIANT = max(10, KILLS // 4)
KILLS_PERFORMING = max(10, KILLS // 20)
FORKS = int(os.environ.get("FORKS") or _count(100, 6))
CUTS = _count(150, 8)
ROUNDS_FULL = _count(100, 5)
ROUNDS_FAILING = _count(50, 3)
HISTORIES, CALLS = _count(250, 10), _count(200, 100)
EVERY = _count(1, 41)
LIVES = _count(20, 3)
STATES = _count(1_000_000, 1_000)
STATES_MIN = int(os.environ.get("INTERLOCK_CRASH_STATES", "0"))


def main() -> int:
    """Runs everything once."""
    logging.disable(logging.WARNING)  # snapshots fail on purpose here
    table = Table()
    table.head()
    with tempfile.TemporaryDirectory(prefix="interlock-torture-") as folder:
        _simulate(table)
        _fail_calls(table, Path(folder))
        _kill(table, Path(folder))
        _fork(table, Path(folder))
        _starve(table, Path(folder))
        _record(table, Path(folder))
    return table.foot()


# On the simulated file system


def _simulate(table: Table) -> None:
    for subject, families, faulty in _subjects():
        for family in families:
            table.row(f"crash states, {subject}: {family.__name__}", partial(_swept, family))
        table.control(f"faulty stores by crashes, {subject}", faulty, partial(_is_swept, faulty, families))
    table.row("crash states: random lives", _wandered)
    for name, scene in SCENES.items():
        table.row(f"schedules: {name}", partial(_explored, scene))
    table.control("faulty stores by schedules", mutants.INTERLEAVED, _is_explored)
    table.control("compare and rename by schedules", ["seed"], lambda _: SEED.explored().bad > 0)
    table.row("bytes flipped, with a snapshot", _flipped)


def _subjects() -> list[tuple[str, tuple[Family, ...], dict[str, Mutant]]]:
    """The registered families and mutants, of entries and of work."""
    suffixes = [name.removeprefix("FAMILIES") for name in vars(sweep) if name.startswith("FAMILIES")]
    return [
        (
            suffix.strip("_").lower() or "entries",
            getattr(sweep, f"FAMILIES{suffix}"),
            getattr(mutants, f"SWEPT{suffix}"),
        )
        for suffix in suffixes
    ]


def _swept(family: Family) -> Row:
    tally = sweep.swept(family, states_max=STATES)
    return Row(tally.states, tally.found, f"{tally.moments:,} moments")


def _is_swept(faulty: dict[str, Mutant], families: tuple[Family, ...], name: str) -> bool:
    """Whether any family finds it; the one that is known to is tried first."""
    mutant = faulty[name]
    with mutant.patched():
        return any(
            sweep.swept(each, processes=mutant.processes, stop_at_first=True).found
            for each in sorted(families, key=lambda family: family.__name__ != mutant.shown_by)
        )


def _wandered() -> Row:
    row, seed = Row(0), 0
    while seed < LIVES or row.count < STATES_MIN:
        seed += 1
        tally = sweep.swept(sweep.wanderings(seed), seed=seed)
        row.count += tally.states
        row.found += [f"{each} (seed {seed})" for each in tally.found]
    row.note = f"{seed} seeds"
    return row


def _explored(scene: Scene) -> Row:
    result = scene.explored()
    return Row(result.schedules, result.examples, "every one" if result.complete else "not every one")


def _is_explored(name: str) -> bool:
    mutant, scene = mutants.INTERLEAVED[name]
    with mutant.patched():
        return SCENES[scene].explored(mutant.processes).bad > 0


def _flipped() -> Row:
    world, number = journal(snapshot=True)
    data = content(world, number)
    row = Row(len(MASKS) * len(data), note="each byte in three ways; each must raise")
    for mask in MASKS:
        for place in range(len(data)):
            changed = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
            if reading(world, number, changed) is not None:
                row.found.append(f"silent: byte {place}, mask {mask}")
    return row


# On real processes and file systems


def _fail_calls(table: Table, folder: Path) -> None:
    for name in failing_calls.LIVES:
        table.row(f"failing calls: {name}", partial(_failed_calls, name, folder / name))


def _failed_calls(name: str, folder: Path) -> Row | str:
    why = failing_calls.is_possible()
    if why is not None:
        return why
    folder.mkdir()
    result = failing_calls.swept(name, folder, every=EVERY, workers=2)
    silent = [f"it did not fire: {each}" for each in result.silent]
    tried = result.fired + len(silent)
    note = f"{result.fired} of {tried} fired, {result.calls.total()} calls, slowest answer {result.ms_max} ms"
    return Row(result.fired, result.found + silent, note)


def _kill(table: Table, folder: Path) -> None:
    for store, url in ADDRESSES.items():
        place = _made(folder / f"kill-{store}")
        kills = KILLS if store in {"files", "sqlite"} else KILLS_VARIANT
        table.row(f"kill -9, {WRITERS} at once: {store}", partial(_stormed, url.format(place), kills))
    table.row("kill -9, 4 at once: postgres", _stormed_server)
    table.row("kill -9, 2 that perform: files", partial(_performed, _made(folder / "perform")))
    faulty = {"lockless": ("files", 4), "early": ("sqlite", 1)}
    table.control("faulty stores by kill -9", faulty, lambda name: _is_stormed(name, *faulty[name], folder))


def _stormed(url: str, kills: int) -> Row:
    return _storm_row(storm(url, kills=kills, seed=SEED_NUMBER, writers=WRITERS))


def _performed(place: Path) -> Row:
    return asyncio.run(stormed(f"file://{place}/orders", place / "ledger", kills=KILLS_PERFORMING, seed=SEED_NUMBER))


def _stormed_server() -> Row | str:
    module = "tests.crash.kills.postgres_storm"
    if find_spec(module) is None:
        return "there is no storm for it"
    try:
        server_url()
    except NoServerError as error:
        return f"no PostgreSQL here: {error}"
    return _storm_row(import_module(module).postgres_storm(KILLS_SERVER))


def _storm_row(outcome: Any) -> Row:
    note = f"{len(outcome.kept):,} receipts"
    if isinstance(outcome, Outcome):
        note += f", {outcome.inside:,} inside a send, {outcome.unheard:,} kept and not heard"
        return Row(outcome.kills, outcome.found(), note)
    found = [f"lost: {each}" for each in outcome.lost] + [f"doubled: {each}" for each in outcome.doubled]
    return Row(outcome.kills, found + [f"phantom: {each}" for each in outcome.phantoms], note)


def _is_stormed(fault: str, store: str, writers: int, folder: Path) -> bool:
    urls = (URLS[store].format(_made(folder / f"faulty-{fault}-{number}")) for number in range(STORMS_MAX))
    return any(storm(url, kills=10, seed=SEED_NUMBER, writers=writers, fault=fault).found() for url in urls)


def _fork(table: Table, folder: Path) -> None:
    for store in STORES:
        table.row(f"forks with an open store: {store}", partial(fork_row, store, folder / f"fork-{store}", FORKS))
    table.control("faulty stores by forks", FAULTS, lambda fault: is_fork_found(fault, folder / f"fork-{fault}"))


def _starve(table: Table, folder: Path) -> None:
    for store in URLS:
        table.row(f"disk full, then freed: {store}", partial(_filled, store, folder / f"full-{store}"))
    cannot = power_cut.is_possible(folder)
    for store in ADDRESSES:
        run = partial(_cut, store, folder / f"cut-{store}")
        table.row(f"power cuts, ext4: {store}", partial(str, cannot) if cannot else run)
    for store in URLS:
        run = partial(_failed, store, folder / f"failing-{store}")
        table.row(f"failing disk, ext4: {store}", partial(str, cannot) if cannot else run)
    if cannot is None:
        table.control("faulty stores by power cuts", URLS, lambda store: _is_cut(store, folder / f"unsynced-{store}"))
        table.control("faulty stores by a failing disk", ["retry_fsync"], lambda _: _is_failed(folder / "retried"))


def _filled(store: str, place: Path) -> Row | str:
    why = mount_refusal()
    if why is not None:
        return why
    with tmpfs(place, "32m") as disk:  # SQLite alone fills half of it: a page for each entry
        result = filled(store, disk, rounds=ROUNDS_FULL)
    strange = [f"code: {each}" for each in result.codes - {"store.full"}]
    return Row(result.rounds, result.found + strange, f"{len(result.kept):,} receipts, {result.refused:,} refusals")


def _cut(store: str, place: Path) -> Row:
    outcome = power_cut.cut(store, place, cuts=CUTS, seed=SEED_NUMBER)
    return Row(outcome.kills, outcome.found(), f"{len(outcome.kept):,} receipts before the cuts")


def _is_cut(store: str, place: Path) -> bool:
    return bool(power_cut.cut(store, place, cuts=1, seed=SEED_NUMBER, fault="unsynced").lost)


def _failed(store: str, place: Path) -> Row:
    result = power_cut.failed(store, place, rounds=ROUNDS_FAILING)
    return Row(result.rounds, result.found, f"{len(result.kept):,} receipts, {result.refused:,} refusals")


def _is_failed(place: Path) -> bool:
    with retried_flush():
        return any("lost: " in each for each in power_cut.failed("files", place, rounds=3).found)


def _record(table: Table, folder: Path) -> None:
    for store, url in ADDRESSES.items():
        place = _made(folder / f"histories-{store}")
        table.row(f"histories, 4 processes: {store}", partial(_recorded, url.format(place)))
    table.row("histories, 4 processes: postgres", _recorded_server)
    table.control("faulty stores by histories", ["renaming"], lambda _: _is_recorded(folder / "renaming"))


def _recorded_server() -> Row | str:
    try:
        return _recorded(new_schema())
    except NoServerError as error:
        return f"no PostgreSQL here: {error}"


def _recorded(url: str) -> Row:
    result = checked(url, histories=HISTORIES, calls=CALLS, seed=SEED_NUMBER)
    note = ", ".join(f"{count:,} {answer}" for answer, count in sorted(result.answers.items()))
    return Row(result.histories, result.bad, note)


def _is_recorded(place: Path) -> bool:
    return bool(checked(f"{RENAMING}{place}", histories=20, calls=100, stop_at_first=True).bad)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
