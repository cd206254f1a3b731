"""No crash at any call loses, repeats or damages an acknowledged entry, and every seeded fault is found.

INTERLOCK_CRASH_STATES asks for more states than the enumeration has: random lives are added until there are as many.
"""

import os
import random

import pytest

from tests.crash.life import ENTITY, Ledger, append_blindly, opened, record_violations, send
from tests.crash.simulated.file_system import Simulated, World, crashes
from tests.crash.simulated.mutants import SWEPT, SWEPT_WORK
from tests.crash.simulated.sweep import FAMILIES, FAMILIES_WORK, swept, wanderings

STATES_MIN = int(os.environ.get("INTERLOCK_CRASH_STATES", "10000"))
SAMPLED = 2_000
"""States of each larger family in this run, drawn by a seed; the torture report takes all of them."""
ENUMERATED = 15_000  # what the families come to by that, a little less
SAMPLED_WORK = 600  # each is opened three times
ENUMERATED_WORK = 4_000


@pytest.mark.slow
def test_no_crash_loses_or_doubles_an_entry() -> None:
    """After a crash at any call every acknowledged entry exists once, and the store works.

    A harness that no longer reaches its crash states would pass everything: their number is part of the proof.
    """
    tallies = [swept(family, states_max=SAMPLED) for family in FAMILIES]
    found = [f"{tally.name}: {each}" for tally in tallies for each in tally.found]

    assert ([], True) == (found[:5], sum(tally.states for tally in tallies) >= ENUMERATED)


@pytest.mark.slow
def test_no_crash_loses_work_or_lets_it_run_early() -> None:
    """Work whose entry exists is found by its marker, and none was claimed before its entry was durable."""
    tallies = [swept(family, states_max=SAMPLED_WORK) for family in FAMILIES_WORK]
    found = [f"{tally.name}: {each}" for tally in tallies for each in tally.found]

    assert ([], True) == (found[:5], sum(tally.states for tally in tallies) >= ENUMERATED_WORK)


def test_a_store_with_shards_survives_crashes_during_its_creation() -> None:
    """The power fails at each call of a store that creates its shard directories and appends its first entry."""
    world, ledger, chance = World(), Ledger(), random.Random(1)
    moments: list[tuple[World, Ledger]] = []
    fs = Simulated(world)
    fs.watch = lambda _: moments.append((world.copy(), ledger.copy()))
    journals = opened(fs, shard_digits=1)
    append_blindly(journals, ledger, "k1", 1)
    moments.append((world.copy(), ledger.copy()))
    found = []
    states = 0
    for moment, before in moments:
        for left in crashes(moment, chance):
            known = before.copy()
            after = opened(Simulated(left, process=2), shard_digits=1)
            found += record_violations(after.read(ENTITY), known)
            send(after, known, "k2")
            found += record_violations(after.read(ENTITY), known)
            states += 1

    assert ([], True) == (found[:5], states > 300)


def test_a_power_cut_takes_what_a_failed_flush_has_dropped() -> None:
    """Otherwise the harness would accept a store that repeats a failed flush."""
    world = World()
    fs = Simulated(world)
    root = fs.parent("store")[0]
    file = fs.open_append(root, "journal")
    fs.sync_directory(root)
    fs.write(file, b"entry")
    fs.fail_at = fs.count + 1
    with pytest.raises(OSError, match="Input/output"):
        fs.fdatasync(file)
    fs.fdatasync(file)
    left = [Simulated(each, process=2) for each in crashes(world, random.Random(1))]

    assert (b"entry", [b""]) == (
        fs.read(file, 0, 9),
        [each.read(each.open_file(each.parent("store")[0], "journal"), 0, 9) for each in left],
    )


@pytest.mark.slow
def test_random_runs_survive_their_crashes() -> None:
    """Two processes, kills, power cuts and repeats in an order drawn by a seed."""
    wanted = max(1_000, STATES_MIN - ENUMERATED)
    seed = states = 0
    found: list[str] = []
    while states < wanted and not found:
        seed += 1
        tally = swept(wanderings(seed), seed=seed)
        states += tally.states
        found += [f"seed {seed}: {each}" for each in tally.found]

    assert [] == found[:5]


@pytest.mark.parametrize("name", [*SWEPT, *SWEPT_WORK])
def test_a_faulty_store_is_found_out(name: str) -> None:
    """Each rule of the protocol is needed: without it, some crash or error loses or repeats an entry."""
    mutant = {**SWEPT, **SWEPT_WORK}[name]
    family = next(each for each in (*FAMILIES, *FAMILIES_WORK) if each.__name__ == mutant.shown_by)
    with mutant.patched():
        tally = swept(family, processes=mutant.processes, stop_at_first=True)

    assert tally.found
