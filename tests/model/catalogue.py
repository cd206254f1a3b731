"""Every model that is explored, with the number of its states, and every fault that must be found, with its effect.

Each part of the protocols is a module with `CONFIGURATIONS` (which processes there are; they have no violations),
`FAULTS` (a rule that is left out, in which configuration, and what goes wrong then) and `WEAKNESSES` (what goes wrong
although no rule is left out: the negative controls). Only `python -m tests.model.report --long` explores the
`LONG_CONFIGURATIONS`.

The numbers are exact: a model that lost a step, or an explorer that skips some, has another number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Final, NamedTuple

from tests.model import deque, gate, lifecycle_models, notifier, ring, seed_protocol, task_table_models
from tests.model.explorer import Model

PARTS: Final[dict[str, ModuleType]] = {
    "two words": seed_protocol,
    "gate": gate,
    "lifecycle": lifecycle_models,
    "notifier": notifier,
    "ring": ring,
    "deque": deque,
    "task table": task_table_models,
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
    "lifecycle: 1 worker, waiter, sleeps without a limit": 6_192,
    "lifecycle: 2 workers, waiter, sleeps without a limit": 247_649,
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
    "notifier: 2 producers of 2": 14_121,
    "notifier: 2 producers of 2, 1 kill": 24_723,
    "notifier: 3 producers, 1 kill": 29_739,
    "notifier: 2 producers, 2 consumers, 1 kill": 5_827,
    "notifier: 2 producers of 2, loop": 15_829,
    "notifier: 2 producers of 2, loop, 1 kill": 27_773,
    "notifier: 2 producers, 2 loops, 1 kill": 6_063,
    "ring: 6 messages": 246,
    "ring: 4 messages, killed, 4 of the successor": 1_476,
    "deque: 2 in, 2 out, 2 thieves": 10_165,
    "deque: 3 in, 3 out, 2 thieves": 30_314,
    "deque: more in than fit, 2 thieves": 19_726,
    "task table: 1 submitter, 1 kill": 2_816,
    "task table: 1 submitter, thief": 29_475,
    "task table: 1 submitter, thief, 2 kills": 114_083,
    "task table: 1 submitter, reaper, 2 kills": 85_527,
    "task table: 1 submitter of 2, 1 kill": 8_264,
    "task table: 1 submitter of 2, newcomer, 1 kill": 231_820,
    "task table: task of the survivor, thief, reaper, 2 kills": 22_748,
    "task table: 1 submitter of 2, reaper, 2 kills": 329_018,
    "task table: 1 submitter of 2, newcomer, 2 kills": 380_947,
    "task table: 2 submitters, 1 kill": 526_137,
    "task table: 1 submitter, thief, newcomer, 1 kill": 352_051,
}


class CleanModel(NamedTuple):
    """A model without violations."""

    name: str
    model: Callable[[], Model]
    states: int


class FaultModel(NamedTuple):
    """A model with a violation, and which."""

    name: str
    model: Callable[[], Model]
    wrong: str


def clean_models() -> Iterator[CleanModel]:
    """Return the models without violations, except the long ones."""
    return _clean_models("CONFIGURATIONS")


def long_models() -> Iterator[CleanModel]:
    """Return the models without violations that take minutes."""
    return _clean_models("LONG_CONFIGURATIONS")


def fault_models() -> Iterator[FaultModel]:
    """Return the models whose violation must be found."""
    for part, module in PARTS.items():
        for fault, (configuration, wrong) in getattr(module, "FAULTS", {}).items():
            model = module.CONFIGURATIONS[configuration]
            yield FaultModel(f"{part}: {fault}", partial(model, fault), wrong)
        for name, (model, wrong) in getattr(module, "WEAKNESSES", {}).items():
            yield FaultModel(f"{part}: {name}", partial(model, ""), wrong)


def _clean_models(table: str) -> Iterator[CleanModel]:
    for part, module in PARTS.items():
        for configuration, model in getattr(module, table, {}).items():
            name = f"{part}: {configuration}"
            yield CleanModel(name, partial(model, ""), STATES[name])
