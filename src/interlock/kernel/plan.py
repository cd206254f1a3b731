"""Plans: one microstep worked out, once, and kept (P1-P9).

A plan is a list of operations over the run: leave, act, enter, in exact order, with the configuration it ends in. All of it
follows from the configuration, the enabled transitions and the histories they can reach, so it is made on first use.

Rule 1: plans and configurations are immutable once made and hold no entity's data; two threads may make one twice without harm.
Rule 2: everything kept hangs on configurations in one table, bounded by `PLANS_MAX`: when full, all of it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.kernel.actions import Actions, Operation
from interlock.kernel.run import Run
from interlock.kernel.structure import Entry, Recorded, Structure
from interlock.model.action import Block
from interlock.model.chart import After, Chart, State
from interlock.model.event import Event
from interlock.model.field import UNSET
from interlock.model.limits import PLANS_MAX


class Configuration:
    """A set of states active together, with what was worked out for it so far."""

    __slots__ = ("active", "atoms", "candidates", "fast", "ids", "invoking", "names", "plans", "quiet")

    def __init__(self, atoms: tuple[int, ...], active: frozenset[int], chart: Chart) -> None:
        self.atoms = atoms
        self.active = active
        self.names = tuple(chart.states[each].id for each in atoms)
        self.ids = frozenset(chart.states[each].id for each in active)
        self.invoking = tuple(chart.states[each] for each in sorted(active) if chart.states[each].invokes)
        self.candidates: dict[int, Any] = {}
        self.plans: dict[Any, Plan] = {}
        self.fast: dict[str, Any] = {}
        self.quiet = not any(
            not chart.transitions[number].descriptors for each in active for number in chart.states[each].transitions
        )


class Plan:
    """One microstep: the transitions taken, the operations in order with their places, and the next configuration."""

    __slots__ = ("changes", "chosen", "content", "ended", "next", "operations", "records")

    def __init__(
        self,
        chosen: tuple[int, ...],
        records: dict[str, tuple[str, ...]],
        operations: tuple[tuple[Operation, str], ...],
        next: Configuration,
        ended: bool,
        content: bool,
        changes: bool,
    ) -> None:
        self.chosen = chosen
        self.records = records
        self.operations = operations
        self.next = next
        self.ended = ended
        self.content = content
        self.changes = changes


class Planner:
    """Makes plans for one chart, and keeps them."""

    def __init__(self, chart: Chart, actions: Actions) -> None:
        self.chart = chart
        self.states = chart.states
        self.structure = Structure(chart)
        self.actions = actions
        self.table: dict[tuple[str, ...], Configuration] = {}
        self.by_id = {state.id: state.index for state in chart.states}
        self.count = 0
        self.lookups = 0
        self.uncached = 0
        self._blocks: dict[tuple[str, int, int], tuple[Operation, bool]] = {}

    # Configurations

    def configuration(self, names: tuple[str, ...]) -> Configuration | None:
        """The configuration of these atomic states, or None when they are not a legal one of this chart."""
        found = self.table.get(names)
        if found is None:
            if not all(name in self.by_id for name in names):
                return None
            atoms = tuple(self.by_id[name] for name in names)
            active = self.structure.active(atoms)
            ordered = tuple(sorted(each for each in active if self.states[each].type in ("atomic", "final")))
            if atoms != ordered or not self.structure.is_legal(active):
                return None
            found = self._kept(Configuration(atoms, active, self.chart))
        return found

    def _of_active(self, active: frozenset[int]) -> Configuration:
        atoms = tuple(sorted(each for each in active if self.states[each].type in ("atomic", "final")))
        names = tuple(self.states[each].id for each in atoms)
        return self.table.get(names) or self._kept(Configuration(atoms, active, self.chart))

    def _kept(self, configuration: Configuration) -> Configuration:
        self.table[configuration.names] = configuration
        return configuration

    # Plans

    def plan(self, configuration: Configuration, enabled: tuple[int, ...], history: dict[str, tuple[str, ...]] | None) -> Plan:
        """The plan for these enabled transitions, kept from an earlier step or made now."""
        reached = tuple(sorted({each for number in enabled for each in self.structure.reaches[number]}))
        key: Any = enabled
        if reached:
            memory = history or {}
            key = (enabled, tuple(memory.get(self.states[each].id) for each in reached))
        self.lookups += 1
        found = configuration.plans.get(key)
        if found is None:
            found = self._made(configuration, enabled, self._recorded(history))
            if self._may_keep():
                configuration.plans[key] = found
        return found

    def _may_keep(self) -> bool:
        """Whether a new plan is kept: not for a while after most lookups were misses (P6)."""
        if self.uncached:
            self.uncached -= 1
            return False
        self.count += 1
        if self.count > PLANS_MAX:
            if self.lookups < 2 * self.count:
                self.uncached = PLANS_MAX
            self.forget()
        return True

    def forget(self) -> None:
        """Drop everything that was kept. Configurations in use stay valid and fill again."""
        for each in list(self.table.values()):
            each.plans.clear()
            each.candidates.clear()
            each.fast.clear()
        self.table.clear()
        self.count = self.lookups = 0

    def _recorded(self, history: dict[str, tuple[str, ...]] | None) -> Recorded:
        if not history:
            return {}
        by_id = self.by_id
        return {by_id[name]: tuple(by_id[each] for each in states) for name, states in history.items() if name in by_id}

    def _made(self, configuration: Configuration, enabled: tuple[int, ...], recorded: Recorded) -> Plan:
        structure = self.structure
        chosen, exits = structure.without_conflicts(enabled, configuration.active, recorded)
        records = structure.records(exits, configuration.active)
        work = _Work(self, set(configuration.active))
        for index in sorted(exits, reverse=True):
            work.leave(self.states[index])
        for number in chosen:
            work.block(self.chart.transitions[number].block, ("transition", number, 0), f"transition {number}")
        # History recorded by this very microstep is what its own targets see.
        entry = structure.entry_set(chosen, {**recorded, **records})
        work.enter(entry)
        content = any(self.chart.transitions[each].targets or self.chart.transitions[each].block for each in chosen)
        names = {
            self.states[history].id: tuple(self.states[each].id for each in states)
            for history, states in records.items()
        }
        return work.plan(chosen, names, content, bool(exits or entry.states))

    def start(self) -> Plan:
        """The plan that enters the chart."""
        work = _Work(self, set())
        work.enter(self.structure.start_set({}))
        return work.plan((), {}, True, True)

    def ending(self, configuration: Configuration) -> list[tuple[State, tuple[tuple[Operation, str], ...]]]:
        """What leaving every active state does, in exit order (S10): per state, its operations."""
        active = set(configuration.active)
        found = []
        for index in sorted(configuration.active, reverse=True):
            work = _Work(self, active)
            work.leave(self.states[index])
            found.append((self.states[index], tuple(work.operations)))
        return found

    def function(self, block: Block, key: tuple[str, int, int]) -> tuple[Operation, bool]:
        """The function of a block, made on first use."""
        found = self._blocks.get(key)
        if found is None:
            found = self._blocks[key] = self.actions.block(block)
        return found


class _Work:
    """One plan being made: the operations so far, and which states are active at this moment."""

    def __init__(self, planner: Planner, active: set[int]) -> None:
        self.planner = planner
        self.states = planner.states
        self.chart = planner.chart
        self.active = active
        self.operations: list[tuple[Operation, str]] = []
        self.ended = False
        self.completed: set[int] = set()

    def plan(self, chosen: tuple[int, ...], records: dict[str, tuple[str, ...]], content: bool, changes: bool) -> Plan:
        configuration = self.planner._of_active(frozenset(self.active))
        return Plan(chosen, records, tuple(self.operations), configuration, self.ended, content, changes)

    def block(self, block: Block, key: tuple[str, int, int], place: str) -> None:
        if block:
            function, asks = self.planner.function(block, key)
            if asks:
                ids = frozenset(self.states[each].id for each in self.active)
                self.operations.append((_sees(ids), place))
            self.operations.append((function, place))

    def leave(self, state: State) -> None:
        """Exit blocks, the state's timers, its invokes, then it is gone (S17, S38)."""
        for position, block in enumerate(state.exit):
            self.block(block, ("exit", state.index, position), f"{state.id}.exit")
        if state.after:
            self.operations.append((_cancel_after(state.id), f"{state.id}.after"))
        if state.invokes:
            self.operations.append((_end_invokes(state), f"{state.id}.invoke"))
        self.active.discard(state.index)

    def enter(self, entry: Entry) -> None:
        for index in sorted(entry.states):
            self.enter_state(self.states[index], entry)

    def enter_state(self, state: State, entry: Entry) -> None:
        """Join, late fields, entry blocks, timers, invokes, initial content, history content, completion (S22)."""
        self.active.add(state.index)
        actions = self.planner.actions
        if self.chart.binding == "late" and state.context:
            self.operations.append((late_fields(state, actions), f"{state.id}.context"))
        for position, block in enumerate(state.entry):
            self.block(block, ("entry", state.index, position), f"{state.id}.entry")
        for after in state.after:
            self.operations.append((_set_after(after, actions, state.id), f"{state.id}.after"))
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
            self.operations.append((lambda run: run.pending.append(state), f"{state.id}.invoke"))
            return
        for position in range(len(state.invokes)):
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
        if outer.type == "parallel" and self.planner.structure.is_final(outer.index, self.active):
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
            and self.planner.structure.is_final(marker, self.active)
        ):
            self.completed.add(marker)
            self._done(self.states[marker], None)
            marker = self.states[marker].parent if marker > top else top - 1
        if marker < top:
            self.ended = True

    def _done(self, state: State, final: State | None) -> None:
        name = f"done.state.{state.id}"
        output = None if final is None or final.output is None else output_of(final, self.planner.actions)
        self.operations.append((_queue_done(name, output), f"{state.id}.done"))


# Operations that are not content: each a small function of the run.


def _sees(ids: frozenset[str]) -> Operation:
    def see(run: Run) -> None:
        run.active = ids

    return see


def _cancel_after(state: str) -> Operation:
    def cancel_after(run: Run) -> None:
        run.drop_timers(tuple(each for each in run.timers if each.state == state))

    return cancel_after


def _end_invokes(state: State) -> Operation:
    def end_invokes(run: Run) -> None:
        run.end_invokes(state)

    return end_invokes


def _set_after(after: After, actions: Actions, state: str) -> Operation:
    delay = None if isinstance(after.delay, int) else actions.value(after.delay)

    def set_after(run: Run) -> None:
        run.set_after(after, None if delay is None else delay(run), state)

    return set_after


def _queue_done(name: str, output: Operation | None) -> Operation:
    def queue_done(run: Run) -> None:
        data = None if output is None else output(run)
        run.enqueue(Event(name, data, None, None, None, run.time_ms, "platform"))

    return queue_done


def output_of(state: State, actions: Actions) -> Operation:
    """The output of a final state; a field of it that fails is left out, with an error event before the done event."""
    if not isinstance(state.output, dict):
        whole = actions.value(state.output)

        def whole_output(run: Run) -> Any:
            try:
                return whole(run)
            except Exception as error:
                run.fail(error, f"{state.id}.output")
                return None

        return whole_output
    parts = {name: actions.value(value) for name, value in state.output.items()}

    def output(run: Run) -> Any:
        found = {}
        for name, value in parts.items():
            try:
                found[name] = value(run)
            except Exception as error:
                run.fail(error, f"{state.id}.output.{name}")
        return found if found or not parts else None

    return output


def late_fields(state: State, actions: Actions) -> Operation:
    """A state's own fields get their values at its first entry (late binding)."""
    initialise = fields_of(state, actions)

    def bind(run: Run) -> None:
        if state.id not in run.entered:
            run.entered = (*run.entered, state.id)
            initialise(run)

    return bind


def fields_of(state: State, actions: Actions) -> Operation:
    """Gives each field of a state its first value; one that fails stays unbound, with an error event (S5)."""
    made: list[tuple[Any, Operation]] = [(each, actions.value(None if each.default is UNSET else each.default)) for each in state.context]

    def initialise(run: Run) -> None:
        for field, value in made:
            if field.required:
                continue
            try:
                run.field_init(field, value(run))
            except Exception as error:
                run.fail(error, f"{state.id}.context.{field.name}")

    return initialise


def begin_invoke(state: State, position: int, actions: Actions) -> Operation:
    """Evaluates an invoke's arguments and begins it."""
    invoke = state.invokes[position]
    parts: dict[str, Callable[[Run], Any]] = {
        name: actions.value(value)
        for name, value in (("src", invoke.src), ("type", invoke.type), ("input", invoke.input), ("key", invoke.key))
        if value is not None
    }

    def begin(run: Run) -> None:
        run.begin_invoke(state, position, {name: value(run) for name, value in parts.items()})

    return begin

