"""Gates and lifecycles compared with a sequential model: any sequence of calls has the same results."""

import os
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from interlock.errors import RejectedError, UsageError
from interlock.shm.lifecycle.gate import Gate
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.lifecycle.permits import Permit, Phase
from interlock.shm.memory.region import MemoryRegion
from tests.processes.shm.queues import working_modes

Held = tuple[Gate | Lifecycle, Permit]


class LifecycleMachine(RuleBasedStateMachine):
    """Two participants of one lifecycle, and the model of both."""

    kind: ClassVar[type[Gate | Lifecycle]]
    mode: ClassVar[str]
    permits: Bundle[Held] = Bundle("permits")
    spent: Bundle[Held] = Bundle("spent")

    @initialize()
    def join(self) -> None:
        """Two participants join."""
        self.before = os.environ.get("INTERLOCK_SHM")
        os.environ["INTERLOCK_SHM"] = self.mode
        self.region = MemoryRegion.create(slots=3, areas_bytes=4096)
        self.lives = [self.kind(self.region), self.kind(self.region)]
        self.phase = Phase.INIT
        self.inside = 0

    def teardown(self) -> None:
        """Close the region."""
        if hasattr(self, "region"):
            self.region.close()
            if self.before is None:
                os.environ.pop("INTERLOCK_SHM", None)
            else:
                os.environ["INTERLOCK_SHM"] = self.before

    @rule(who=st.integers(0, 1))
    def start(self, who: int) -> None:
        """INIT to RUNNING."""
        assert (self.phase is Phase.INIT) == self.lives[who].start()
        self.phase = Phase.RUNNING if self.phase is Phase.INIT else self.phase

    @rule(who=st.integers(0, 1), sure=st.integers(0, 4))
    def abort(self, who: int, sure: int) -> None:
        """INIT to CLOSED; rarely, because nothing follows it."""
        if sure == 4:
            assert (self.phase is Phase.INIT) == self.lives[who].abort()
            self.phase = Phase.CLOSED if self.phase is Phase.INIT else self.phase

    @rule(target=permits, who=st.integers(0, 1), raising=st.booleans())
    def enter(self, who: int, raising: bool) -> Held | MultipleResults[Held]:
        """Admitted while running only."""
        life = self.lives[who]
        if self.phase is not Phase.RUNNING:
            assert life.try_enter() is None
            with pytest.raises(RejectedError):
                life.enter()
            return multiple()
        permit = life.enter() if raising else life.try_enter()
        assert permit is not None
        self.inside += 1
        return life, permit

    @rule(target=spent, held=consumes(permits))
    def leave(self, held: Held) -> Held:
        """The last exit of a drain closes, and returns True."""
        life, permit = held
        self.inside -= 1
        closes = self.phase is Phase.DRAINING and self.inside == 0
        assert closes == life.exit(permit)
        self.phase = Phase.CLOSED if closes else self.phase
        return held

    @rule(held=spent)
    def exit_again(self, held: Held) -> None:
        """A permit is valid once."""
        with pytest.raises(UsageError):
            held[0].exit(held[1])

    @rule(held=permits, who=st.integers(0, 1))
    def exit_elsewhere(self, held: Held, who: int) -> None:
        """A permit is valid for its own counter."""
        if self.lives[who] is not held[0]:
            with pytest.raises(UsageError):
                self.lives[who].exit(held[1])

    @rule(who=st.integers(0, 1))
    def drain(self, who: int) -> None:
        """RUNNING to DRAINING, or to CLOSED without permits."""
        started = self.lives[who].drain(timeout=0).started
        assert (self.phase is Phase.RUNNING) == started
        if self.phase is Phase.RUNNING:
            self.phase = Phase.DRAINING if self.inside else Phase.CLOSED

    @rule(who=st.integers(0, 1))
    def wait(self, who: int) -> None:
        """Closed, or not yet."""
        assert (self.phase is Phase.CLOSED) == self.lives[who].wait_closed(timeout=0)

    @invariant()
    def agree(self) -> None:
        """Both see the phase of the model, and all permits."""
        if not hasattr(self, "lives"):
            return
        assert [self.phase, self.phase] == [life.phase for life in self.lives]
        counts = [life.permits for life in self.lives]
        assert self.inside == (sum(counts) if self.kind is Lifecycle else counts[0])


@pytest.mark.parametrize("mode", working_modes())
@pytest.mark.parametrize("kind", [Gate, Lifecycle])
def test_any_sequence_of_calls_agrees_with_the_model(kind: type[Gate | Lifecycle], mode: str) -> None:
    """Start, abort, enter, exit, drain and wait, in any order, by two participants."""
    machine = type("ParticularMachine", (LifecycleMachine,), {"kind": kind, "mode": mode})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=25))
