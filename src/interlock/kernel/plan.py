"""Plans: one microstep worked out, once, and kept (P1-P9).

A plan is a list of operations over the run: leave, act, enter, in exact order, with the configuration it ends in. All
of it
follows from the configuration, the enabled transitions and the histories they can reach, so it is made on first use.

Rule 1: plans and configurations are immutable once made and hold no entity's data; two threads may make one twice
without harm.
Rule 2: everything kept hangs on configurations in one table, bounded by `PLANS_MAX` and by the states that they and
        their plans mention: when full, all of it is dropped.
Rule 3: what a plan costs is charged to every step that uses it, made now or kept from before: the same step must not
        succeed in one process and fail in another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from interlock.errors import CorruptionError
from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.operations import (
    begin_invoke,
    cancel_after,
    end_invokes,
    late_fields,
    output_of,
    queue_done,
    see,
    set_after,
    wait_to_invoke,
)
from interlock.kernel.run import OTHER_REVISION_HINT
from interlock.kernel.state_sets import EntrySet, HistoryMemory, StateSets
from interlock.model.chart import Chart, State
from interlock.model.document.actions import Block
from interlock.model.event import Event
from interlock.model.limits import PLANS_MAX
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

STATE_WORK = 4
"""Units of work for each state that is active before or after a microstep."""

MOVE_WORK = 20
"""Units of work for each transition, target, state left or entered, and operation of a microstep."""

FREE_WORK = 1_000
"""Units of work of a plan that are not charged: a step of a thousand such microsteps takes a tenth of a second."""

MENTIONS_MAX = 64 * PLANS_MAX
"""States mentioned by all configurations and plans that are kept: about 100 bytes each."""


class Configuration:
    """A set of states active together, with what was worked out for it so far."""

    __slots__ = (
        "active",
        "atomic",
        "candidates",
        "compiled_parts",
        "has_no_eventless",
        "ids",
        "invoking",
        "names",
        "plans",
        "uses",
    )

    def __init__(self, atoms: tuple[int, ...], active: frozenset[int], chart: Chart, restless: frozenset[int]) -> None:
        self.atomic = atoms
        self.active = active
        self.names = tuple(chart.states[each].id for each in atoms)
        self.ids = frozenset(chart.states[each].id for each in active)
        self.invoking = tuple(chart.states[each] for each in sorted(active) if chart.states[each].invokes)
        self.candidates: dict[int, Any] = {}
        self.plans: dict[Any, Plan] = {}
        self.compiled_parts: dict[str, Callable[..., Any]] = {}
        self.uses: dict[str, int] = {}
        self.has_no_eventless = active.isdisjoint(restless)


class Plan:
    """One microstep: the transitions taken, the operations in order with their places, and the next configuration.

    `blocks` are its blocks in order where it consists of nothing else, else None: what a faster tier may be made from.
    `work` is what a step is charged for it; 0 for little. `mentions` are the states that it mentions, to be kept.
    """

    __slots__ = ("blocks", "chosen", "content", "ended", "mentions", "next", "operations", "records", "work")

    def __init__(
        self,
        chosen: tuple[int, ...],
        records: dict[str, tuple[str, ...]],
        operations: tuple[tuple[Operation, str], ...],
        next: Configuration,
        *,
        ended: bool,
        content: bool,
        blocks: tuple[Block, ...] | None,
        work: int,
        mentions: int,
    ) -> None:
        self.chosen = chosen
        self.records = records
        self.operations = operations
        self.next = next
        self.ended = ended
        self.content = content
        self.blocks = blocks
        self.work = work if work >= FREE_WORK else 0
        self.mentions = mentions


class Planner:
    """Makes plans for one chart, and keeps them."""

    def __init__(self, chart: Chart, actions: ActionCompiler) -> None:
        self.chart = chart
        self.states = chart.states
        self.state_sets = StateSets(chart)
        self.actions = actions
        self.table: dict[tuple[str, ...], Configuration] = {}
        self.compiled_steps: dict[tuple[str, ...], dict[str, Callable[[Snapshot, Event], Step | None]]] = {}
        """The compiled steps, by the names of a configuration and by event."""
        self.restless = frozenset(each.source for each in chart.transitions if not each.descriptors)
        """The states with eventless transitions: without them there is nothing to look for when no event comes."""
        self.by_id = {state.id: state.index for state in chart.states}
        self.count = 0
        self.lookups = 0
        self.uncached = 0
        self.mentions = 0
        self._blocks: dict[tuple[str, int, int], tuple[Operation, bool]] = {}

    # Configurations

    def configuration(self, names: tuple[str, ...]) -> Configuration | None:
        """The configuration of these atomic states, or None when they are not a legal one of this chart."""
        found = self.table.get(names)
        if found is None:
            if not all(name in self.by_id for name in names):
                return None
            atoms = tuple(self.by_id[name] for name in names)
            active = self.state_sets.active(atoms)
            ordered = tuple(sorted(each for each in active if self.states[each].type in ("atomic", "final")))
            if atoms != ordered or not self.state_sets.is_legal(active):
                return None
            found = self._kept(Configuration(atoms, active, self.chart, self.restless))
        return found

    def configuration_of(self, active: frozenset[int]) -> Configuration:
        atoms = tuple(sorted(each for each in active if self.states[each].type in ("atomic", "final")))
        names = tuple(self.states[each].id for each in atoms)
        return self.table.get(names) or self._kept(Configuration(atoms, active, self.chart, self.restless))

    def _kept(self, configuration: Configuration) -> Configuration:
        # Plans bound the table where steps are made; events refused in ever new configurations make none.
        self.mentions += len(configuration.active)
        if len(self.table) >= 2 * PLANS_MAX or self.mentions > MENTIONS_MAX:
            self.clear()
        self.table[configuration.names] = configuration
        self.compiled_steps[configuration.names] = {}
        return configuration

    # Plans

    def plan(
        self, configuration: Configuration, enabled: tuple[int, ...], history: dict[str, tuple[str, ...]] | None
    ) -> Plan:
        """The plan for these enabled transitions, kept from an earlier step or made now."""
        key: Any = enabled
        if self.state_sets.histories:
            reached = sorted({each for number in enabled for each in self.state_sets.reaches[number]})
            memory = history or {}
            key = (enabled, tuple(memory.get(self.states[each].id) for each in reached))
        self.lookups += 1
        found = configuration.plans.get(key)
        if found is None:
            found = self._made(configuration, enabled, self._recorded(history))
            if self._may_keep(found):
                configuration.plans[key] = found
        return found

    def _may_keep(self, plan: Plan) -> bool:
        """Whether a new plan is kept: not for a while after most lookups were misses (P6)."""
        if self.uncached:
            self.uncached -= 1
            return False
        self.count += 1
        self.mentions += plan.mentions
        if self.count > PLANS_MAX or self.mentions > MENTIONS_MAX:
            if self.lookups < 2 * self.count:
                self.uncached = PLANS_MAX
            self.clear()
        return True

    def clear(self) -> None:
        """Drop everything that was kept. Configurations in use stay valid and fill again."""
        for each in list(self.table.values()):
            each.plans.clear()
            each.candidates.clear()
            each.compiled_parts.clear()
            each.uses.clear()
        self.table.clear()
        self.compiled_steps.clear()
        self.count = self.lookups = self.mentions = 0

    def _recorded(self, history: dict[str, tuple[str, ...]] | None) -> HistoryMemory:
        if not history:
            return {}
        by_id = self.by_id
        unknown = [each for name, states in history.items() if name in by_id for each in states if each not in by_id]
        if unknown:
            raise self._misremembered("does not have", unknown)
        found = {
            by_id[name]: tuple(by_id[each] for each in states) for name, states in history.items() if name in by_id
        }
        for index, states in found.items():
            if self.states[index].type == "history" and not self._may_remember(self.states[index], states):
                raise self._misremembered("does not have there", (self.states[each].id for each in states))
        return found

    def _may_remember(self, history: State, recorded: tuple[int, ...]) -> bool:
        """Whether a history can have recorded these states; anything else might lead nowhere, or round for ever."""
        inside = (self.chart.contains(history.parent, each) for each in recorded)
        return bool(recorded) and all(inside) and all(self.states[each].type != "history" for each in recorded)

    def _misremembered(self, wrong: str, states: Iterable[str]) -> CorruptionError:
        chart = f"`{self.chart.kind}` {self.chart.revision}"
        message = f"a history remembers states that chart {chart} {wrong}: {', '.join(states)}"
        return CorruptionError(message, code="snapshot.history", hint=OTHER_REVISION_HINT)

    def _made(self, configuration: Configuration, enabled: tuple[int, ...], recorded: HistoryMemory) -> Plan:
        structure = self.state_sets
        chosen, exits = structure.remove_conflicts(enabled, configuration.active, recorded)
        records = structure.records(exits, configuration.active)
        work = PlanBuilder(self, set(configuration.active))
        for index in sorted(exits, reverse=True):
            work.leave(self.states[index])
        for number in chosen:
            transition = self.chart.transitions[number]
            work.block(transition.block, ("transition", number, 0), transition.where)
        # History recorded by this very microstep is what its own targets see.
        entry = structure.entry_set(chosen, recorded, {**recorded, **records})
        work.enter(entry)
        if recorded and not structure.is_legal(frozenset(work.active)):
            raise self._misremembered("does not have together", sorted(self.states[each].id for each in entry.states))
        content = any(self.chart.transitions[each].targets or self.chart.transitions[each].block for each in chosen)
        names = {
            self.states[history].id: tuple(self.states[each].id for each in states)
            for history, states in records.items()
        }
        targets = sum(len(self.chart.transitions[each].targets) for each in enabled)
        work.moves += len(enabled) + targets + len(exits) + len(entry.states)
        work.mentions += 2 * (sum(map(len, records.values())) + sum(map(len, recorded.values())))
        return work.plan(chosen, names, content=content, before=len(configuration.active))

    def start(self) -> Plan:
        """The plan that enters the chart."""
        work = PlanBuilder(self, set())
        work.enter(self.state_sets.start_set({}))
        return work.plan((), {}, content=True)

    def ending(self, configuration: Configuration) -> list[tuple[State, tuple[tuple[Operation, str], ...]]]:
        """What leaving every active state does, in exit order (S10): per state, its operations."""
        active = set(configuration.active)
        found = []
        for index in sorted(configuration.active, reverse=True):
            work = PlanBuilder(self, active)
            work.leave(self.states[index])
            found.append((self.states[index], tuple(work.operations)))
        return found

    def function(self, block: Block, key: tuple[str, int, int]) -> tuple[Operation, bool]:
        """The function of a block, made on first use."""
        found = self._blocks.get(key)
        if found is None:
            found = self._blocks[key] = self.actions.block(block)
        return found


class PlanBuilder:
    """One plan being made: the operations so far, and which states are active at this moment."""

    def __init__(self, planner: Planner, active: set[int]) -> None:
        self.planner = planner
        self.states = planner.states
        self.chart = planner.chart
        self.active = active
        self.operations: list[tuple[Operation, str]] = []
        self.blocks: list[Block] = []
        self.ended = False
        self.completed: set[int] = set()
        self.moves = 0
        self.mentions = 0

    def plan(
        self, chosen: tuple[int, ...], records: dict[str, tuple[str, ...]], *, content: bool, before: int = 0
    ) -> Plan:
        """The plan, once all its operations are known; `before` is how many states were active."""
        active = frozenset(self.active)
        assert self.planner.state_sets.is_legal(active), sorted(active)
        configuration = self.planner.configuration_of(active)
        plain = len(self.blocks) == len(self.operations)
        operations = tuple(self.operations)
        blocks = tuple(self.blocks) if plain else None
        moves = self.moves + len(operations)
        work = STATE_WORK * (before + len(active)) + MOVE_WORK * moves + self.mentions
        return Plan(
            chosen,
            records,
            operations,
            configuration,
            ended=self.ended,
            content=content,
            blocks=blocks,
            work=work,
            mentions=self.mentions + moves,
        )

    def block(self, block: Block, key: tuple[str, int, int], place: str) -> None:
        if block:
            function, asks = self.planner.function(block, key)
            if asks:
                self._look(place)
            self.operations.append((function, place))
            self.blocks.append(block)

    def _look(self, place: str) -> None:
        """`In()` in a value that is worked out next sees the states active at this moment (S17, S22)."""
        ids = frozenset(self.states[each].id for each in self.active)
        self.mentions += len(ids)
        self.operations.append((see(ids), place))

    def leave(self, state: State) -> None:
        """Exit blocks, the state's timers, its invokes, then it is gone (S17, S38)."""
        for position, block in enumerate(state.exit):
            self.block(block, ("exit", state.index, position), f"{state.id}.exit")
        if state.after:
            self.operations.append((cancel_after(state.id), f"{state.id}.after"))
        if state.invokes:
            self.operations.append((end_invokes(state), f"{state.id}.invoke"))
        self.active.discard(state.index)

    def enter(self, entry: EntrySet) -> None:
        """Enter what is not active: by SCXML 3.13 a state that was not left is not entered, though appendix D adds
        it on the way up to a history's parent. XState enters it a second time.
        """
        xstate = self.planner.state_sets.xstate
        for index in sorted(entry.states if xstate else entry.states - self.active):
            self.enter_state(self.states[index], entry)

    def enter_state(self, state: State, entry: EntrySet) -> None:
        """Join, late fields, entry blocks, timers, invokes, initial content, history content, completion (S22)."""
        self.active.add(state.index)
        actions = self.planner.actions
        if self.chart.binding == "late" and state.context and state.index > 0:
            self._look(f"{state.id}.context")
            self.operations.append((late_fields(state, actions), f"{state.id}.context"))
        for position, block in enumerate(state.entry):
            self.block(block, ("entry", state.index, position), f"{state.id}.entry")
        for after in state.after:
            self._look(f"{state.id}.after")
            self.operations.append((set_after(after, actions, state.id), f"{state.id}.after"))
        if state.invokes:
            self._invoke(state)
        if state.index in entry.defaults:
            self.block(state.initial_block, ("initial", state.index, 0), f"{state.id}.initial")
        history = entry.content.get(state.index)
        if history is not None:
            self.block(self.states[history].default_block, ("default", history, 0), self.states[history].id)
        if state.type == "final":
            self._complete(state)

    def _invoke(self, state: State) -> None:
        if self.chart.dialect.invoke == "settle":
            self.operations.append((wait_to_invoke(state), f"{state.id}.invoke"))
            return
        for position in range(len(state.invokes)):
            self._look(f"{state.id}.invoke")
            self.operations.append((begin_invoke(state, position, self.planner.actions), f"{state.id}.invoke"))

    def _complete(self, state: State) -> None:
        if self.chart.dialect.done == "nested":
            self._complete_nested(state)
            return
        parent = self.states[state.parent]
        if parent.index == 0:
            self.ended = True
            return
        self._done(parent, state)
        outer = self.states[parent.parent]
        if outer.type == "parallel" and self.planner.state_sets.is_final(outer.index, self.active):
            self._done(outer, None)

    def _complete_nested(self, state: State) -> None:
        """XState: completion climbs through directly nested parallels; a completed root ends the entity (X5, X20)."""
        top, parent = self.chart.top, self.states[state.parent]
        if parent.type == "compound" and parent.index > 0:
            self._done(parent, state)
        marker = parent.index if parent.type == "parallel" else (parent.parent if parent.index > top else top - 1)
        while (
            marker >= top
            and self.states[marker].type == "parallel"
            and marker not in self.completed
            and self.planner.state_sets.is_final(marker, self.active)
        ):
            self.completed.add(marker)
            self._done(self.states[marker], None)
            marker = self.states[marker].parent if marker > top else top - 1
        if marker < top:
            self.ended = True

    def _done(self, state: State, final: State | None) -> None:
        name = f"done.state.{state.id}"
        output = None if final is None or final.output is None else output_of(final, self.planner.actions)
        self._look(f"{state.id}.done")
        self.operations.append((queue_done(name, output), f"{state.id}.done"))
