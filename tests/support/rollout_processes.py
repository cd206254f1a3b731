"""Processes with different charts that create entities of one kind on request, while a rollout of it changes.

Run as a program, it opens a store with the charts of its arguments, prints `ready`, and answers each line of stdin, the
id of an order, with the id and the first state of the order that it has created.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import interlock
from interlock.operate.rollout import abort_rollout, advance_rollout, start_rollout
from interlock.runtime.charts.revisions import make_definition
from interlock.runtime.charts.rollouts import Rollout
from tests.support.eventually import eventually_blocking

OLD = """
interlock: 1
kind: order
revision: 1.0.0
events: {paid: {}}
states:
  old: {on: {paid: done}}
  done: {type: final}
"""
NEW = OLD.replace("1.0.0", "2.0.0").replace("old:", "new:")
CHARTS = {"old": OLD, "new": NEW}


class Creator:
    """A process that creates orders."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        self.name = "-".join(names)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, url, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._created = 0
        assert self._answer() == "ready"

    def create(self) -> tuple[str, str]:
        """Create an order; return the entity and its first state."""
        assert self._process.stdin is not None
        self._created += 1
        self._process.stdin.write(f"{self.name}-{self._created}\n")
        self._process.stdin.flush()
        entity, state = self._answer().split()
        return entity, state

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=300)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def creators(url: str) -> Iterator[list[Creator]]:
    """Three processes: one with each chart, and one with both."""
    found: list[Creator] = []
    try:
        found.extend(Creator(url, names) for names in (("old",), ("new",), ("old", "new")))
        yield found
    finally:
        for each in found:
            each.close()


async def change(url: str, what: str, share: int = 0) -> Rollout:
    """Change the rollout as an operator does, in this process."""
    async with interlock.open(url, charts=[interlock.loads(OLD)], work=False) as runtime:
        if what == "set":
            assert runtime.store.definitions is not None
            for text in CHARTS.values():
                definition = make_definition(interlock.loads(text).chart)
                assert definition is not None
                await runtime.store.definitions.save_definition(definition, now_ms=1)
            return await start_rollout(runtime, "order", to="2.0.0", share=share, by="ada")
        if what == "advance":
            return await advance_rollout(runtime, "order", share=share, by="ada")
        return await abort_rollout(runtime, "order", by="ada")


def follows(creator: Creator, rollout: Rollout, before: Rollout) -> bool:
    """Create an order; whether its state shows that the process follows this rollout and not the one before."""
    entity, state = creator.create()
    wanted, former = (_state(each, entity) for each in (rollout, before))
    assert state in (wanted, former), (entity, state)
    return state == wanted != former


def _state(rollout: Rollout, entity: str) -> str:
    return "new" if rollout.revision_for(entity) == rollout.revision else "old"


def check_one_decision(url: str) -> None:
    """Every process follows each decision, and creates no order that neither it nor the one before allows."""
    rollout = asyncio.run(change(url, "set", 3_000))
    with creators(url) as processes:
        for creator in processes:
            for _ in range(20):
                entity, state = creator.create()
                assert _state(rollout, entity) == state
        for what, share in (("advance", 8_000), ("abort", 0)):
            before, rollout = rollout, asyncio.run(change(url, what, share))
            for creator in processes:
                eventually_blocking(partial(follows, creator, rollout, before), what)
                for _ in range(20):
                    entity, state = creator.create()
                    assert _state(rollout, entity) == state


async def serve(url: str, names: Sequence[str]) -> None:
    """Create orders until stdin ends."""
    charts = [interlock.loads(CHARTS[each]) for each in names]
    async with interlock.open(url, charts=charts, work=False) as runtime:
        _tell("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            receipt = (await runtime.create(f"order/{line.strip()}")).expect()
            assert receipt.snapshot is not None
            _tell(f"{receipt.entity} {receipt.snapshot.configuration[0]}")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2:]))
