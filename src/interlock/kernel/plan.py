"""Plans: one microstep worked out once and cached (P1-P9).

A plan lists its parts (exit, act, enter) in exact order, and the configuration it ends in. All of it follows from the
configuration, the enabled transitions and the histories they can reach, so it is made on first use.

Rule 1: plans and configurations are immutable once made and contain no entity's data. Two threads may make the same one
        twice without harm.
Rule 2: everything cached belongs to configurations in one table, bounded by `PLANS_MAX` and by the number of states
        that configurations and plans mention. A full table is cleared as a whole.
Rule 3: the work of a plan is charged to every step that uses it, whether it was made now or cached: the same step must
        not succeed in one process and fail in another.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable
from typing import Any

from interlock.errors import CorruptionError
from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.parts import (
    BindLateFields,
    CancelAfter,
    CancelInvokes,
    Operations,
    Part,
    QueueDone,
    RunBlock,
    SetActive,
    SetAfter,
    StartInvoke,
    WaitToInvoke,
)
from interlock.kernel.run import OTHER_REVISION_HINT
from interlock.kernel.state_sets import EntrySet, HistoryMemory, StateSets
from interlock.model.charts.chart import Chart, State
from interlock.model.document.actions import Block
from interlock.model.limits import PLANS_MAX
from interlock.model.step import Step

STATE_WORK = 4
"""Units of work for each state that is active before or after a microstep."""

MOVE_WORK = 20
"""Units of work for each transition, target, state exited or entered, and operation of a microstep."""

FREE_WORK = 1_000
"""Units of work of a plan that are not charged: a step of a thousand such microsteps takes a tenth of a second."""

MENTIONS_MAX = 64 * PLANS_MAX
"""States mentioned by all cached configurations and plans: about 100 bytes each."""


CompiledFunction = Callable[..., Step | None]
"""A compiled step; None: the general step applies."""


class Configuration:
    """A set of states that are active together, with everything cached for it."""

    __slots__ = (
        "active",
        "atomic",
        "candidates",
        "has_no_eventless",
        "ids",
        "invoking",
        "names",
        "plain_steps",
        "plans",
        "uses",
    )

    def __init__(
        self, atomic: tuple[int, ...], active: frozenset[int], chart: Chart, with_eventless: frozenset[int]
    ) -> None:
        self.atomic = atomic
        self.active = active
        self.names = tuple(chart.states[each].id for each in atomic)
        self.ids = frozenset(chart.states[each].id for each in active)
        self.invoking = tuple(chart.states[each] for each in sorted(active) if chart.states[each].invokes)
        self.candidates: dict[int, Any] = {}
        self.plans: dict[Any, Plan] = {}
        self.plain_steps: dict[str, Callable[..., Any]] = {}
        self.uses: dict[tuple[str, bool], int] = {}
        self.has_no_eventless = active.isdisjoint(with_eventless)


class Plan:
    """One microstep: the transitions taken, the parts in order, and the next configuration.

    `operations` are the functions of the parts with their places, for the general step. `work` is what a step is
    charged for it, 0 if it is little. `mentions` counts the states it mentions, for the cache's limit.
    """

    __slots__ = ("chosen", "content", "ended", "mentions", "next", "operations", "parts", "records", "work")

    def __init__(
        self,
        chosen: tuple[int, ...],
        records: dict[str, tuple[str, ...]],
        parts: tuple[Part, ...],
        operations: tuple[tuple[Operation, str], ...],
        next: Configuration,
        *,
        ended: bool,
        content: bool,
        work: int,
        mentions: int,
    ) -> None:
        self.chosen = chosen
        self.records = records
        self.parts = parts
        self.operations = operations
        self.next = next
        self.ended = ended
        self.content = content
        self.work = work if work >= FREE_WORK else 0
        self.mentions = mentions


class Planner:
    """Makes and caches plans for one chart."""

    def __init__(self, chart: Chart, actions: ActionCompiler) -> None:
        self.chart = chart
        self.states = chart.states
        self.state_sets = StateSets(chart)
        self.operations = Operations(actions)
        self.table: dict[tuple[str, ...], Configuration] = {}
        self.compiled_steps: dict[tuple[str, ...], dict[str, CompiledFunction]] = {}
        """The compiled steps, by the names of a configuration and by event: functions of a snapshot and an event."""
        self.named_steps: dict[tuple[str, ...], dict[str, CompiledFunction]] = {}
        """The same for an event that is given by its name: functions of a snapshot, payload and time."""
        self.with_eventless = frozenset(each.source for each in chart.transitions if not each.descriptors)
        """The states with eventless transitions. A configuration without them needs no selection without event."""
        self.by_id = {state.id: state.index for state in chart.states}
        self.count = 0
        self.lookups = 0
        self.uncached = 0
        self.mentions = 0

    # Configurations

    def configuration(self, names: tuple[str, ...]) -> Configuration | None:
        """Return the configuration of these atomic states; None if the chart has no legal configuration of them."""
        found = self.table.get(names)
        if found is None:
            if not all(name in self.by_id for name in names):
                return None
            atomic = tuple(self.by_id[name] for name in names)
            active = self.state_sets.active(atomic)
            ordered = tuple(sorted(each for each in active if self.states[each].type in ("atomic", "final")))
            if atomic != ordered or not self.state_sets.is_legal(active):
                return None
            found = self._cache(Configuration(atomic, active, self.chart, self.with_eventless))
        return found

    def configuration_of(self, active: frozenset[int]) -> Configuration:
        """Return the configuration of these active states, which are a legal one."""
        atomic = tuple(sorted(each for each in active if self.states[each].type in ("atomic", "final")))
        names = tuple(self.states[each].id for each in atomic)
        return self.table.get(names) or self._cache(Configuration(atomic, active, self.chart, self.with_eventless))

    def _cache(self, configuration: Configuration) -> Configuration:
        # Rejected events make no plans, so the limit of plans alone would not bound this table.
        self.mentions += len(configuration.active)
        if len(self.table) >= 2 * PLANS_MAX or self.mentions > MENTIONS_MAX:
            self.clear()
        self.table[configuration.names] = configuration
        self.compiled_steps[configuration.names] = {}
        self.named_steps[configuration.names] = {}
        return configuration

    # Plans

    def plan(
        self, configuration: Configuration, enabled: tuple[int, ...], history: dict[str, tuple[str, ...]] | None
    ) -> Plan:
        """Return the plan for these enabled transitions, cached or made now."""
        key: Any = enabled
        if self.state_sets.histories:
            reached = sorted({each for number in enabled for each in self.state_sets.reaches[number]})
            memory = history or {}
            key = (enabled, tuple(memory.get(self.states[each].id) for each in reached))
        self.lookups += 1
        found = configuration.plans.get(key)
        if found is None:
            found = self.build(configuration, enabled, self._recorded(history))
            if self._should_cache(found):
                configuration.plans[key] = found
        return found

    def _should_cache(self, plan: Plan) -> bool:
        """Return whether a new plan is cached: not for a while after most lookups were misses (P6)."""
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
        """Drop everything cached. Configurations in use stay valid and fill again."""
        for each in list(self.table.values()):
            each.plans.clear()
            each.candidates.clear()
            each.plain_steps.clear()
            each.uses.clear()
        self.table.clear()
        self.compiled_steps.clear()
        self.named_steps.clear()
        self.count = self.lookups = self.mentions = 0

    def _recorded(self, history: dict[str, tuple[str, ...]] | None) -> HistoryMemory:
        if not history:
            return {}
        by_id = self.by_id
        unknown = [each for name, states in history.items() if name in by_id for each in states if each not in by_id]
        if unknown:
            raise self._invalid_history("does not have", unknown)
        found = {
            by_id[name]: tuple(by_id[each] for each in states) for name, states in history.items() if name in by_id
        }
        for index, states in found.items():
            if self.states[index].type == "history" and not self._can_record(self.states[index], states):
                raise self._invalid_history("does not have there", (self.states[each].id for each in states))
        return found

    def _can_record(self, history: State, recorded: tuple[int, ...]) -> bool:
        """Return whether a history can have recorded these states. Others could lead nowhere, or into a loop."""
        inside = (self.chart.contains(history.parent, each) for each in recorded)
        return bool(recorded) and all(inside) and all(self.states[each].type != "history" for each in recorded)

    def _invalid_history(self, problem: str, states: Iterable[str]) -> CorruptionError:
        chart = f"`{self.chart.kind}` {self.chart.revision}"
        message = f"a history remembers states that chart {chart} {problem}: {', '.join(states)}"
        return CorruptionError(message, code="snapshot.history", hint=OTHER_REVISION_HINT)

    def build(self, configuration: Configuration, enabled: tuple[int, ...], recorded: HistoryMemory) -> Plan:
        """Return a new plan for these enabled transitions. It reads only those histories that it depends on."""
        structure = self.state_sets
        chosen, exits = structure.remove_conflicts(enabled, configuration.active, recorded)
        records = structure.records(exits, configuration.active)
        builder = PlanBuilder(self, set(configuration.active))
        for index in sorted(exits, reverse=True):
            builder.exit_state(self.states[index])
        for number in chosen:
            transition = self.chart.transitions[number]
            builder.block(transition.block, ("transition", number, 0), transition.display_name)
        # The targets see the history that this microstep records.
        after: HistoryMemory = ChainMap(records, recorded)  # type: ignore[arg-type]  # both are only read
        entry = structure.entry_set(chosen, recorded, after)
        builder.enter(entry)
        if recorded and not structure.is_legal(frozenset(builder.active)):
            raise self._invalid_history("does not have together", sorted(self.states[each].id for each in entry.states))
        content = any(self.chart.transitions[each].targets or self.chart.transitions[each].block for each in chosen)
        names = {
            self.states[history].id: tuple(self.states[each].id for each in states)
            for history, states in records.items()
        }
        targets = sum(len(self.chart.transitions[each].targets) for each in enabled)
        builder.moves += len(enabled) + targets + len(exits) + len(entry.states)
        builder.mentions += 2 * (sum(map(len, records.values())) + sum(map(len, recorded.values())))
        return builder.plan(chosen, names, content=content, before=len(configuration.active))

    def start(self) -> Plan:
        """Return the plan that enters the chart."""
        builder = PlanBuilder(self, set())
        builder.enter(self.state_sets.start_set({}))
        return builder.plan((), {}, content=True)

    def ending(self, configuration: Configuration) -> list[tuple[State, list[Part]]]:
        """Return the parts of exiting every active state, by state, in exit order (S10)."""
        active = set(configuration.active)
        found = []
        for index in sorted(configuration.active, reverse=True):
            builder = PlanBuilder(self, active)
            builder.exit_state(self.states[index])
            found.append((self.states[index], builder.parts))
        return found


class PlanBuilder:
    """A plan being made: its parts so far, and the states that are active at this point of it."""

    def __init__(self, planner: Planner, active: set[int]) -> None:
        self.planner = planner
        self.states = planner.states
        self.chart = planner.chart
        self.active = active
        self.parts: list[Part] = []
        self.ended = False
        self.completed: set[int] = set()
        self.moves = 0
        self.mentions = 0

    def plan(
        self, chosen: tuple[int, ...], records: dict[str, tuple[str, ...]], *, content: bool, before: int = 0
    ) -> Plan:
        """Return the plan of all parts added. `before` is the number of states that were active."""
        active = frozenset(self.active)
        assert self.planner.state_sets.is_legal(active), sorted(active)
        configuration = self.planner.configuration_of(active)
        parts = tuple(self.parts)
        moves = self.moves + len(parts)
        work = STATE_WORK * (before + len(active)) + MOVE_WORK * moves + self.mentions
        return Plan(
            chosen,
            records,
            parts,
            tuple((self.planner.operations.operation(each), each.place) for each in parts),
            configuration,
            ended=self.ended,
            content=content,
            work=work,
            mentions=self.mentions + moves,
        )

    def block(self, block: Block, key: tuple[str, int, int], place: str) -> None:
        """Add a block of actions."""
        if block:
            _, uses_in = self.planner.operations.block(block, key)
            if uses_in:
                self._set_active(place)
            self.parts.append(RunBlock(place, block, key))

    def _set_active(self, place: str) -> None:
        """Let `In()` in the next part see the states that are active at this point."""
        ids = frozenset(self.states[each].id for each in self.active)
        self.mentions += len(ids)
        self.parts.append(SetActive(place, ids))

    def exit_state(self, state: State) -> None:
        """Exit a state: its exit blocks, its timers, its invokes (S17, S38)."""
        for position, block in enumerate(state.exit):
            self.block(block, ("exit", state.index, position), f"{state.id}.exit")
        if state.after:
            self.parts.append(CancelAfter(f"{state.id}.after", state))
        if state.invokes:
            self.parts.append(CancelInvokes(f"{state.id}.invoke", state))
        self.active.discard(state.index)

    def enter(self, entry: EntrySet) -> None:
        """Enter the states that are not active.

        By SCXML 3.13 a state that was not exited is not entered, though appendix D adds it among the ancestors of a
        history. XState enters it a second time.
        """
        xstate = self.planner.state_sets.xstate
        for index in sorted(entry.states if xstate else entry.states - self.active):
            self.enter_state(self.states[index], entry)

    def enter_state(self, state: State, entry: EntrySet) -> None:
        """Enter a state: late fields, entry blocks, timers, invokes, initial and history actions, completion (S22)."""
        self.active.add(state.index)
        if self.chart.binding == "late" and state.context and state.index > 0:
            self._set_active(f"{state.id}.context")
            self.parts.append(BindLateFields(f"{state.id}.context", state))
        for position, block in enumerate(state.entry):
            self.block(block, ("entry", state.index, position), f"{state.id}.entry")
        for after in state.after:
            self._set_active(f"{state.id}.after")
            self.parts.append(SetAfter(f"{state.id}.after", state, after))
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
            self.parts.append(WaitToInvoke(f"{state.id}.invoke", state))
            return
        for position in range(len(state.invokes)):
            self._set_active(f"{state.id}.invoke")
            self.parts.append(StartInvoke(f"{state.id}.invoke", state, position))

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
        """XState: completion goes up through directly nested parallel states (X5, X20).

        A completed root ends the entity.
        """
        top, parent = self.chart.completion_root, self.states[state.parent]
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
        self._set_active(f"{state.id}.done")
        self.parts.append(QueueDone(f"{state.id}.done", f"done.state.{state.id}", final))
