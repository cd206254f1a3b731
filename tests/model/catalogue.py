"""Every model that is walked, with the number of its states, and every fault that must be found, with what it does.

A part of the protocols is a module with `STAGES` (who meets whom; nothing goes wrong there), `HUNTS` (a rule that is
left out, on which stage, and what goes wrong then) and `WEAK` (what goes wrong although no rule is left out: the
negative controls). Stages in `LONG_STAGES` are walked by `python -m tests.model.report` only.

The numbers are exact: a model that lost a step, or an explorer that skips some, has another number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Final, NamedTuple

from tests.model import deque, doorbell, gate, lane, lifecycle_models, seed_protocol, slab_models
from tests.model.explorer import Model

PARTS: Final[dict[str, ModuleType]] = {
    "two words": seed_protocol,
    "gate": gate,
    "lifecycle": lifecycle_models,
    "doorbell": doorbell,
    "lane": lane,
    "deque": deque,
    "slab": slab_models,
}

STATES: Final[dict[str, int]] = {
    "two words: 1 worker, waiter": 465,
    "two words: 2 workers, waiter": 5_983,
    "two words: 3 workers, waiter": 73_473,
    "gate: 1 worker, waiter": 223,
    "gate: 2 workers, waiter": 3_353,
    "gate: 3 workers": 14_687,
    "gate: 2 workers, 2 drainers": 5_891,
    "gate: 2 workers, waiter, start and abort": 26_198,
    "gate: waiter, stray exit": 42,
    "lifecycle: 1 worker": 272,
    "lifecycle: 1 worker, waiter": 6_257,
    "lifecycle: 1 worker, waiter, sleeps without a bound": 6_192,
    "lifecycle: 2 workers, waiter, sleeps without a bound": 247_649,
    "lifecycle: 1 worker, 2 drainers": 2_801,
    "lifecycle: 1 worker, stray exit": 20_273,
    "lifecycle: process of 1 worker and 1 waiting thread": 4_586,
    "lifecycle: process of 2 workers and 1 waiting thread": 97_452,
    "lifecycle: 1 worker, waiter, 1 kill": 9_399,
    "lifecycle: 1 worker, waiter, 2 kills": 9_675,
    "lifecycle: 2 waiters, 1 kill": 5_856,
    "lifecycle: 1 worker, newcomer, 1 kill": 3_132,
    "lifecycle: 1 worker, waiter, newcomer, 1 kill": 87_631,
    "lifecycle: 1 worker, waiter, newcomer, 2 kills": 107_780,
    "lifecycle: 2 workers, newcomer, 1 kill": 132_340,
    "lifecycle: 1 worker, waiter, successor, 1 kill": 26_261,
    "lifecycle: cleanup of the drainer": 418,
    "lifecycle: cleanup of the waiter, 1 kill": 3_879,
    "lifecycle: cleanup of the drainer and of 1 of 2 waiters, 1 kill": 5_054,
    "lifecycle: cleanup of all but the worker, newcomer, 1 kill": 67_743,
    "lifecycle: 3 workers": 386_407,
    "lifecycle: 1 worker, 2 waiters, 2 kills": 306_337,
    "lifecycle: 2 workers, waiter, 1 kill": 383_807,
    "lifecycle: 1 worker, waiter, 2 newcomers, 2 kills": 1_110_641,
    "doorbell: 2 producers of 2": 14_121,
    "doorbell: 2 producers of 2, 1 kill": 24_723,
    "doorbell: 3 producers, 1 kill": 29_739,
    "doorbell: 2 producers, 2 consumers, 1 kill": 5_827,
    "doorbell: 2 producers of 2, loop": 15_829,
    "doorbell: 2 producers of 2, loop, 1 kill": 27_773,
    "doorbell: 2 producers, 2 loops, 1 kill": 6_063,
    "lane: 6 messages": 246,
    "lane: 4 messages, killed, 4 of the successor": 1_476,
    "deque: 2 in, 2 out, 2 thieves": 10_165,
    "deque: 3 in, 3 out, 2 thieves": 30_314,
    "deque: more in than fit, 2 thieves": 19_726,
    "slab: 1 submitter, 1 kill": 2_816,
    "slab: 1 submitter, thief": 29_475,
    "slab: 1 submitter, thief, 2 kills": 114_083,
    "slab: 1 submitter, reaper, 2 kills": 85_527,
    "slab: 1 submitter of 2, 1 kill": 8_264,
    "slab: 1 submitter of 2, newcomer, 1 kill": 231_820,
    "slab: task of the survivor, thief, reaper, 2 kills": 22_748,
    "slab: 1 submitter of 2, reaper, 2 kills": 329_018,
    "slab: 1 submitter of 2, newcomer, 2 kills": 380_947,
    "slab: 2 submitters, 1 kill": 526_137,
    "slab: 1 submitter, thief, newcomer, 1 kill": 352_051,
}


class Walk(NamedTuple):
    """A model in which nothing goes wrong."""

    name: str
    model: Callable[[], Model]
    states: int


class Hunt(NamedTuple):
    """A model in which something does, and what."""

    name: str
    model: Callable[[], Model]
    wrong: str


def walks() -> Iterator[Walk]:
    """Gives all that must be clean, without the long ones."""
    return _walks("STAGES")


def long_walks() -> Iterator[Walk]:
    """Gives what must be clean and takes minutes."""
    return _walks("LONG_STAGES")


def hunts() -> Iterator[Hunt]:
    """Gives all that must be found."""
    for part, module in PARTS.items():
        for fault, (stage, wrong) in getattr(module, "HUNTS", {}).items():
            made = module.STAGES[stage]
            yield Hunt(f"{part}: {fault}", partial(made, fault), wrong)
        for name, (made, wrong) in getattr(module, "WEAK", {}).items():
            yield Hunt(f"{part}: {name}", partial(made, ""), wrong)


def _walks(stages: str) -> Iterator[Walk]:
    for part, module in PARTS.items():
        for stage, made in getattr(module, stages, {}).items():
            name = f"{part}: {stage}"
            yield Walk(name, partial(made, ""), STATES[name])
