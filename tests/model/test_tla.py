"""The lifecycle, specified a second time in TLA+ and checked by TLC, which shares no code with the explorer.

TLC uses another definition of liveness: every process that can continue does so eventually (weak fairness), and then
DRAINING leads to CLOSED.
"""

import os
from pathlib import Path

import pytest

from tests.model import tlc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(tlc.missing()), reason=tlc.missing() or "TLC is here"),
]

FAULTS = {
    "no second check": (tlc.INVARIANT_VIOLATED, "NoLiveProcessInside", {"Newcomers": "{}", "KillsMax": "0"}),
    "take over from a live closer": (tlc.INVARIANT_VIOLATED, "OneCleanup", {"Newcomers": "{}", "KillsMax": "0"}),
    "back-off does not scan": (
        tlc.PROPERTY_VIOLATED,
        "Temporal properties",
        {"Newcomers": "{}", "Waiters": "{}", "KillsMax": "0"},
    ),
    "waiter does not try to close": (tlc.PROPERTY_VIOLATED, "Temporal properties", {"Newcomers": "{}"}),
}


def test_the_specification_holds(tmp_path: Path) -> None:
    """One worker, a drainer, a waiter and one kill."""
    verdict = tlc.check("Lifecycle", tmp_path, {"Newcomers": "{}"})

    assert (tlc.SAFE, 7_683) == (verdict.code, verdict.states), verdict.output


@pytest.mark.skipif(os.environ.get("INTERLOCK_MODELS") != "long", reason="takes a minute; INTERLOCK_MODELS=long")
def test_the_specification_holds_with_a_newcomer(tmp_path: Path) -> None:
    """A process joins on the slot of a dead one."""
    verdict = tlc.check("Lifecycle", tmp_path, {}, seconds_max=500)

    assert (tlc.SAFE, 86_524) == (verdict.code, verdict.states), verdict.output


@pytest.mark.skipif(os.environ.get("INTERLOCK_MODELS") != "long", reason="takes a minute; INTERLOCK_MODELS=long")
def test_a_specification_without_the_generation_of_the_closer_fails(tmp_path: Path) -> None:
    """A new process on the slot of the dead closer looks like the closer."""
    verdict = tlc.check("Lifecycle", tmp_path, {"Fault": '"closer without generation"'}, seconds_max=500)

    assert tlc.PROPERTY_VIOLATED == verdict.code, verdict.output


@pytest.mark.parametrize("fault", FAULTS)
def test_a_specification_with_a_rule_left_out_fails(fault: str, tmp_path: Path) -> None:
    """TLC names the violated property."""
    code, named, constants = FAULTS[fault]
    verdict = tlc.check("Lifecycle", tmp_path, constants | {"Fault": f'"{fault}"'})

    assert code == verdict.code, verdict.output
    assert named in verdict.output
