"""Carry an entity by a mapping: the answers of a person where the new definition cannot take over an entity as it is.

Rule 1: what a mapping does not answer stops an entity, as without a mapping. Nothing is guessed.
Rule 2: conditions, values and functions read the old entity. Their results are in the patch, for replay.
Rule 3: exit actions of the states that an entity leaves are not performed; they are listed (`dropped`), like every
        timer and invoke that the mapping ends.
Rule 4: what a function in Python raises stops its entity, and names the line.
"""

from __future__ import annotations

from collections.abc import Mapping as Lookup
from functools import partial
from typing import Any

from msgspec.structs import replace

from interlock.errors import DefinitionError
from interlock.evolve.carry import Carrier, CarryResult, Draft, with_label
from interlock.evolve.identity import collapse_space
from interlock.evolve.mapping.check import check_mapping, resolved
from interlock.evolve.mapping.document import Mapping
from interlock.evolve.mapping.placement import Choice, Placement, Placer, invoke_name
from interlock.expression.language import SAFE
from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.errors import describe_error
from interlock.kernel.outcome import resend_deferred
from interlock.kernel.parts import start_invoke
from interlock.kernel.run import StepRun, run_from
from interlock.model.approvals import ACTORS_FIELD
from interlock.model.charts.chart import After
from interlock.model.document.actions import Expression
from interlock.model.document.field import copy_json, json_problem
from interlock.model.snapshot import Snapshot, Timer


class MappedCarrier:
    """Carries entities by a carrier and a mapping; made once for a pair of revisions.

    Raises DefinitionError (`mapping.unknown`, `mapping.unanswered`, `mapping.unused`) with every problem.
    """

    def __init__(self, carrier: Carrier, mapping: Mapping) -> None:
        self.carrier = carrier
        self.mapping = resolved(carrier, mapping)
        self.placer = Placer(carrier, self.mapping)
        problems = check_mapping(carrier, self.mapping, self.placer)
        if problems:
            raise DefinitionError(problems, what="mapping")
        is_known = self.mapping.states_function is None
        self._timed = self.placer.timed_states() if is_known else frozenset(carrier.old_states)
        self.kernel, self.diff = carrier.kernel, carrier.diff
        self.old_names, self.written = carrier.old_names, carrier.written
        compiler = ActionCompiler(carrier.old, SAFE, {}, {})
        self._values = {name: compiler.value(each) for name, each in self.mapping.context.items()}
        conditions = (each.condition for places in self.mapping.states.values() for each in places)
        self._conditions = {each: compiler.value(each) for each in conditions if each is not None}

    def states_with_new_timers(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the active states from whose entry a new timer counts."""
        known = (each for each in snapshot.configuration if each in self.carrier.old_states)
        found = {self.carrier.old.states[index].id for name in known for index in self._path(name)}
        return tuple(sorted(found & self._timed))

    def _path(self, name: str) -> list[int]:
        return self.carrier.old.path(self.carrier.old_states[name].index)

    def _new_path(self, name: str) -> list[int]:
        return self.carrier.new.path(self.carrier.new_states[name].index)

    def carry(
        self,
        snapshot: Snapshot,
        *,
        time_ms: int,
        entered_ms: Lookup[str, int] | None = None,
        epoch: int = 0,
        spread_ms: int = 0,
    ) -> CarryResult:
        """Return the entity on the new definition, or why it stays; see `Carrier.carry`."""
        draft = self.carrier.draft(snapshot, time_ms, entered_ms or {}, epoch, spread_ms)
        if isinstance(draft, CarryResult):
            return draft
        placement = self._placed(draft)
        if placement is None or draft.reasons:
            return CarryResult(reasons=tuple(dict.fromkeys(draft.reasons)))
        self._map_states(draft, placement)
        self._map_history(draft)
        self._map_invokes(draft, placement)
        self._map_values(draft)
        if not draft.reasons:
            self.carrier.map_context(draft)
            self._drop_events(draft)
            self.carrier.check_pending(draft)
            self.carrier.check_completion(draft)
        if draft.reasons:
            return CarryResult(reasons=tuple(dict.fromkeys(draft.reasons)))
        deferred = draft.after.deferred
        if deferred and placement.configuration != tuple(map(self.carrier.renamed, snapshot.configuration)):
            draft.after = replace(draft.after, deferred=())
        else:
            deferred = ()
        return self.carrier.settled(
            draft, partial(self._prepare, draft, placement, replace(snapshot, deferred=deferred))
        )

    # States

    def _placed(self, draft: Draft) -> Placement | None:
        """The placement of an entity; the reasons of the draft say why there is none."""
        choice: Choice | None
        if self.mapping.states_function is not None:
            choice = self._asked(draft)
        else:
            choice = tuple((name, self._chosen(name, draft)) for name in draft.before.configuration)
        if draft.reasons or choice is None:
            return None
        placement = self.placer.place(choice)
        draft.reasons += map(str, placement.questions)
        return placement

    def _chosen(self, name: str, draft: Draft) -> tuple[str, ...] | None:
        places = self.placer.places(name)
        if places is None:
            return None
        for place in places:
            if place.condition is None or self._evaluated(self._conditions[place.condition], "a condition", draft):
                return place.targets
        why = "the mapping leaves entities in it" if not places else "no condition of the mapping is true"
        draft.reasons.append(f"the state `{name}` stays: {why}")
        return ()

    def _asked(self, draft: Draft) -> Choice | None:
        """The states that the mapping's function returns for the whole configuration."""
        assert self.mapping.states_function is not None
        found = self._called(self.mapping.states_function, draft)
        names = [found] if isinstance(found, str) else found
        if draft.reasons:
            return None
        if names is None:
            draft.reasons.append("the mapping's function `states` leaves it where it is")
            return None
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            draft.reasons.append("the mapping's function `states` must return names of states, or None")
            return None
        before = draft.before.configuration
        kept = {name: self.carrier.renamed(name) for name in before if self.carrier.renamed(name) in names}
        rest = [each for each in dict.fromkeys(names) if each not in kept.values()]
        moved = [name for name in before if name not in kept]
        if not moved and rest:  # states next to those that stay: a region that was added
            first = before[0]
            return tuple((name, (kept[name], *rest) if name == first else (kept[name],)) for name in before)
        return tuple(
            (name, (kept[name],) if name in kept else tuple(rest) if name == moved[0] else ()) for name in before
        )

    def _map_states(self, draft: Draft, placement: Placement) -> None:
        left = sorted(draft.active - set(placement.continued))
        draft.dropped += [f"the exit actions of `{each}`" for each in left if self.carrier.old_states[each].exit]
        entered = self.carrier.entered(draft.before)
        if self.carrier.new.binding == "late":
            active = [index for name in placement.configuration for index in self._new_path(name)]
            with_fields = [self.carrier.new.states[index] for index in dict.fromkeys(active)]
            entered += tuple(each.id for each in with_fields if each.context and each.id not in ("", *entered))
        draft.after = replace(
            draft.after, configuration=placement.configuration, entered=entered, revision=self.carrier.new.revision
        )

    def _map_history(self, draft: Draft) -> None:
        """What histories remember, where each state of it goes to one place whatever the entity has."""
        remembered: dict[str, tuple[str, ...]] = {}
        for name, states in (draft.before.history or {}).items():
            old, new = self.carrier.old_states.get(name), self.carrier.new_states.get(self.carrier.renamed(name))
            if name in self.mapping.histories or old is None or new is None or old.history != new.history:
                draft.dropped.append(f"what `{name}` remembers")
                continue
            mapped = tuple(self._place_of(each) for each in states)
            found = tuple(dict.fromkeys(each for each in mapped if each is not None))
            inside = all(self.carrier.new.contains(new.parent, self.carrier.new_states[each].index) for each in found)
            if None in mapped or not inside:
                draft.reasons.append(f"`{name}` remembers a removed state; add `history: {{{name}: drop}}`")
            else:
                remembered[new.id] = found
        draft.after = replace(draft.after, history=remembered or None)

    def _place_of(self, name: str) -> str | None:
        """The new state of a remembered one; None if there is not exactly one."""
        places = self.placer.places(name) if name in self.carrier.old_states else ()
        if places is None:
            target = self.carrier.renamed(name)
        elif len(places) == 1 and places[0].condition is None and len(places[0].targets) == 1:
            target = places[0].targets[0]
        else:
            return None
        state = self.carrier.new_states.get(target)
        return None if state is None or state.type == "history" else target

    # Invokes

    def _map_invokes(self, draft: Draft, placement: Placement) -> None:
        found = []
        for each in draft.before.invokes:
            new = placement.continued.get(each.state)
            position = self.placer.continued_invoke(each.state, each.position, new)
            if new is not None and position is not None:
                found.append(replace(each, state=new, position=position))
                for event in (f"done.invoke.{each.id}", f"error.invoke.{each.id}"):
                    if self.carrier.loses_taker(draft, event):
                        draft.reasons.append(f"no transition takes `{event}` any more, and the invoke is running")
            else:  # the placement has no question, so the mapping cancels it
                assert (
                    invoke_name(self.carrier.old_states[each.state], each.position) in self.mapping.invokes[each.state]
                )
                draft.dropped.append(f"the invoke `{each.id}`")
        draft.after = replace(draft.after, invokes=tuple(found))

    # Data

    def _map_values(self, draft: Draft) -> None:
        for name, value in self._values.items():
            draft.values[name] = copy_json(self._evaluated(value, f"the value of `{name}`", draft))
        if self.mapping.context_function is None:
            return
        found = self._called(self.mapping.context_function, draft)
        if draft.reasons:
            return
        problem = "it must return a mapping of fields" if not isinstance(found, dict) else json_problem(found)
        fields = self.carrier.new_fields.keys() - {ACTORS_FIELD}  # approvals are not given by a mapping
        unknown = [] if problem else [each for each in found if each not in fields]
        if problem is None and unknown:
            problem = f"the new definition has no field `{unknown[0][:80]}`"
        if problem is not None:
            draft.reasons.append(f"the mapping's function `context` failed: {problem}")
            return
        draft.values.update(copy_json(found))

    def _evaluated(self, operation: Operation, what: str, draft: Draft) -> Any:
        run = run_from(draft.before, draft.time_ms, self.carrier.old_fields, raises=False, epoch=draft.epoch)
        run.event, run.active = self.carrier.event(draft), draft.active
        try:
            return operation(run)
        except Exception as error:  # noqa: BLE001  # an expression raises what `describe_error` describes
            draft.reasons.append(f"{what} of the mapping failed: {describe_error(error)[1]}")
            return None

    def _called(self, function: Any, draft: Draft) -> Any:
        before = draft.before
        entity = {
            "id": before.entity,
            "version": before.version,
            "revision": before.revision,
            "configuration": list(before.configuration),
            "context": copy_json(before.context),
            "time_ms": draft.time_ms,
        }
        try:
            return function(entity)
        except Exception as error:  # noqa: BLE001  # a function of the user may raise anything
            place = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            where = "" if place is None else f" in {place.tb_frame.f_code.co_filename}, line {place.tb_lineno}"
            draft.reasons.append(f"the mapping's function raised {type(error).__name__}{where}")
            return None

    def _drop_events(self, draft: Draft) -> None:
        """Deferred events and delayed sends that the mapping drops by name."""
        after, names = draft.after, self.mapping.events
        deferred = tuple(each for each in after.deferred if each.name not in names)
        sends = tuple(each for each in after.timers if each.state is None and each.event in names)
        draft.dropped += [f"the deferred event `{each.name}`" for each in after.deferred if each.name in names]
        draft.dropped += [f"the delayed event `{each.event}`" for each in sends]
        draft.after, draft.dropped_events = replace(after, deferred=deferred), names

    # The step

    def _prepare(self, draft: Draft, placement: Placement, deferring: Snapshot, run: StepRun) -> None:
        """Move timers, end invokes, and do what entered states do; the entity settles after it."""
        kernel = self.kernel
        run.drop_timers(tuple(each for each in run.timers if each.state is None and each.event in self.mapping.events))
        for timer in draft.before.timers:
            if timer.state is not None:
                self._map_timer(timer, timer.state, placement, draft, run)
        running = {each.id for each in draft.after.invokes}
        for each in draft.before.invokes:
            if each.id not in running:
                run.effect("invoke_cancel", {"id": each.id, "key": each.key})
        resend_deferred(deferring, run)
        for name in placement.run_entry:
            state = self.carrier.new_states[name]
            for position, block in enumerate(state.entry):
                operation, _ = kernel.planner.operations.block(block, ("entry", state.index, position))
                run.attempt(operation, f"{name}.entry")
        self._new_timers(draft, placement, run)
        for name, position in placement.started:
            start = start_invoke(self.carrier.new_states[name], position, kernel.actions)
            run.attempt(start, f"{name}.invoke")

    def _map_timer(self, timer: Timer, name: str, placement: Placement, draft: Draft, run: StepRun) -> None:
        """Keep, move or drop the timer of an `after`."""
        old = next(each for each in self.carrier.old_states[name].after if each.event == timer.event)
        before, target = collapse_space(old.label), placement.continued.get(name)
        answer = self.mapping.timers.get(name, {}).get(before)
        label = None
        if target is not None:
            label = dict(self.placer.timer_pairs(name, target).pairs).get(before) if answer is None else answer.to
        if target is None or label is None:
            run.drop_timers((timer,))
            draft.dropped.append(f"the timer `{timer.event}`")
            return
        new, count = with_label(self.carrier.new_states[target], label), "elapsed" if answer is None else answer.count
        if count == "deadline" or (count == "elapsed" and before == label):
            if new.event != timer.event:
                run.drop_timers((timer,))
                draft.set_timer(run, new, target, due_ms=timer.due_ms, since_ms=timer.since_ms)
            return
        since = draft.time_ms if count == "restart" else _start_of(timer, old)
        delay = self.carrier.delay(new, draft)
        if delay is None or since is None:
            draft.reasons.append(f"how the timer `{timer.event}` moves cannot be computed")
            return
        run.drop_timers((timer,))
        draft.set_timer(run, new, target, due_ms=since + delay, since_ms=since)

    def _new_timers(self, draft: Draft, placement: Placement, run: StepRun) -> None:
        """Set the timers that continue none. They count from the entry of the old state, or from the move."""
        for name, label, origin in placement.timers:
            since = draft.time_ms if origin is None else draft.entered_ms.get(origin, draft.time_ms)
            after = with_label(self.carrier.new_states[name], label)
            delay = self.carrier.delay(after, draft)
            if delay is None:
                draft.reasons.append(f"the delay `{label}` of `{name}` cannot be computed")
            else:
                draft.set_timer(run, after, name, due_ms=since + delay, since_ms=since)


def _start_of(timer: Timer, after: After) -> int | None:
    """From when a timer counts; None if its delay was computed, because nothing says how long it was."""
    return None if isinstance(after.delay, Expression) else timer.due_ms - after.delay
