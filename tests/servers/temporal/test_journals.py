"""On Temporal a scenario gives the same answers and the same journals as in memory, byte for byte.

The scenario files are those of `tests/conformance/journals`. Results and timers are delivered by the sender of the
runtime, on both sides: a workflow writes its own entries. The clock of the scenario is in the future, so that no timer
of Temporal fires while the scenario moves the clock automatically.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import interlock
from interlock.effects.work_delta import work_id_of
from interlock.model.event import Event
from interlock.model.journal.work import WorkId
from interlock.runtime.history.verify import verify_entity
from tests.conformance.journals import stage as journal_stage
from tests.conformance.journals.stage import Stage, StillClock, charts_of
from tests.scenarios.runner import parse
from tests.support.eventually import eventually
from tests.support.temporal_server import server_or_skip

SCENARIOS = sorted(Path(journal_stage.__file__).parent.glob("*.txt"))
LATER_MS = 40 * 365 * 86_400_000

pytestmark = [pytest.mark.conformance, pytest.mark.xdist_group("temporal")]


class SenderStage(Stage):
    """A stage whose results and timers go through the sender."""

    async def _brought(self, entity: str, event: Event, key: str) -> tuple[str, ...]:
        if key.startswith("_timer/"):
            finishes = WorkId("timer", int(key.rpartition("/")[2]), 0)
        else:
            finishes = work_id_of("effect", key.removeprefix("_").removesuffix("~failed"))
        receipt = await self.ours.sender.deliver(entity, event, key=key, finishes=finishes)
        return journal_stage.receipt_lines(receipt)

    async def play(self, command: str) -> tuple[str, ...]:
        """Play a command; a list on Temporal shows a change a moment later."""
        output = await super().play(command)
        if not command.startswith("ls "):
            return output
        found: list[tuple[str, ...]] = [output]

        async def is_listed() -> bool:
            found[0] = await super(SenderStage, self).play(command)
            return bool(found[0])

        await eventually(is_listed, command)
        return found[0]


def _commands(scenario: Path) -> list[str]:
    return [each.command for each in parse(scenario.read_text(encoding="utf-8"))]


async def _played(scenario: Path, url: str) -> list[tuple[str, tuple[str, ...]]]:
    commands = _commands(scenario)
    clock = StillClock()
    clock.time_ms += LATER_MS
    charts = charts_of(commands)
    async with interlock.open(url, charts=charts, clock=clock, work=None if url != "memory:" else False) as runtime:
        stage = SenderStage(runtime, clock)
        found = [(each, await stage.play(each)) for each in commands]
        for entity in stage.entities:
            proof = await verify_entity(runtime.store, runtime.revisions, entity)
            assert (proof.replayed, proof.problem) == (True, None)
    return found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
async def test_a_scenario_gives_the_same_journal_on_temporal_as_in_memory(scenario: Path) -> None:
    """Outcomes, versions, effects, states at a time, lists, and every stored byte."""
    url = server_or_skip().url()

    expected = await _played(scenario, "memory:")
    actual = await _played(scenario, url)

    assert actual == expected
