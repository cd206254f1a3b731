"""Random definitions on our kernel and on the real XState: same trace, configuration and context, event by event.

`INTERLOCK_MACHINES=5000` runs more of them, `INTERLOCK_SEED=n` sets the first seed. A seed reproduces one definition.
"""

from __future__ import annotations

import json
import os
from functools import cache

import pytest

from interlock.definition.xstate.format import read_xstate, write_xstate
from tests.conformance.xstate.definitions import Json, generated
from tests.conformance.xstate.peer import Seen, difference, document_of, missing, ours, theirs

BATCH = 50
COUNT = int(os.environ.get("INTERLOCK_MACHINES", "500"))
SEED = int(os.environ.get("INTERLOCK_SEED", "0"))
ABSENT = missing()

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.node,
    pytest.mark.skipif(ABSENT is not None, reason=f"CROSS-CHECK WITH XSTATE SKIPPED: {ABSENT}"),
]


@cache
def answers(first: int) -> tuple[list[tuple[Json, list[Json]]], list[list[Seen]]]:
    """A batch of definitions, and what XState does with them; asked once."""
    cases = [generated(seed) for seed in range(first, first + BATCH)]
    return cases, theirs(cases)


@pytest.mark.parametrize("first", range(SEED, SEED + COUNT, BATCH))
def test_the_kernel_does_what_xstate_does(first: int) -> None:
    """In dialect `xstate` every action, every configuration and every context is XState's, in its order."""
    cases, expected = answers(first)
    found = []
    for seed, ((definition, events), other) in enumerate(zip(cases, expected, strict=True), start=first):
        problem = difference(ours(definition, events), other, events)
        if problem is not None:
            found.append(f"seed {seed}: {problem}\n{json.dumps(definition)}")

    assert [] == found, f"reproduce one with INTERLOCK_SEED=<seed> INTERLOCK_MACHINES={BATCH}"


def test_what_we_write_runs_on_xstate_as_what_we_read() -> None:
    """A definition read and written again is the same to XState: nothing is lost on the way through a document."""
    cases, expected = answers(SEED)
    written = [(json.loads(write_xstate(document_of(definition)).text), events) for definition, events in cases]

    assert expected == theirs(written)


def test_most_sequences_run_to_their_end() -> None:
    """The comparison stops at an error, so a generator that made mostly errors would prove little."""
    _, expected = answers(SEED)
    errors = sum(seen[-1].status == "error" for seen in expected)
    steps = sum(len(each.trace) > 0 for seen in expected for each in seen)

    assert errors < BATCH / 4
    assert steps > BATCH * 3


@pytest.mark.parametrize(
    "flag",
    [
        {"domain": "lcca", "internal": "scxml"},
        {"select": "atomic"},
        {"done": "scxml"},
        {"eventless": "loop"},
    ],
    ids=["domain", "select", "done", "eventless"],
)
def test_a_changed_flag_of_the_dialect_is_noticed(flag: dict[str, str]) -> None:
    """The comparison can fail: with one rule of SCXML instead of XState's, some definition differs."""
    for first in range(SEED, SEED + COUNT, BATCH):
        cases, expected = answers(first)
        for (definition, events), other in zip(cases, expected, strict=True):
            if difference(ours(definition, events, **flag), other, events) is not None:
                return

    pytest.fail(f"no definition distinguishes {flag} from XState")


def test_generated_definitions_survive_a_round_trip() -> None:
    for seed in range(SEED, SEED + 100):
        document = document_of(generated(seed)[0])
        again = read_xstate(write_xstate(document).text, source="again.json")

        assert document == again.document
