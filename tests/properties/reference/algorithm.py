"""The procedures of SCXML 1.0 appendix D, each under its own name, over one `Progress`.

A direct reading of `semantics.md` section 2: sets and lists of states, everything computed again each time. The seven
flags of the dialect record appear where the algorithm branches and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from interlock.model import limits
from interlock.model.charts.chart import State, Transition
from interlock.model.document.field import UNSET
from interlock.model.event import Event
from interlock.model.step import Fault
from tests.properties.reference.content import cancel_timers, condition_match, execute_content
from tests.properties.reference.evaluator import Failure
from tests.properties.reference.lifetimes import (
    bind_late_fields,
    cancel_invoke,
    invoke_state,
    set_after_timers,
    start_invokes,
)
from tests.properties.reference.progress import Progress, StepFailed
from tests.properties.reference.structure import History


def main_event_loop(progress: Progress, *, selected: list[Transition] | None = None) -> None:
    """S7, S8: run until nothing is enabled and nothing is queued, then start invokes; again if that queued errors.

    `selected`: what an external event enabled, or None when the entity has just been entered.
    """
    eventless = True
    if selected:
        microstep(progress, selected)
    while progress.running:
        enabled = select_eventless_transitions(progress) if eventless else []
        if enabled:
            before = (list(progress.configuration), progress.writes, progress.records)
            microstep(progress, enabled)
            unchanged = before == (progress.configuration, progress.writes, progress.records)
            eventless = not (unchanged and progress.chart.dialect.eventless == "until_unchanged")
            continue
        if progress.internal_queue:
            take_internal_event(progress)
            eventless = True
            continue
        if progress.chart.dialect.invoke == "settle":
            start_invokes(progress)
        if not progress.internal_queue:
            return
        eventless = True
    exit_interpreter(progress)


def take_internal_event(progress: Progress) -> None:
    """Bind the head of the internal queue and run what it enables; an unhandled error is recorded."""
    progress.event = progress.internal_queue.pop(0)
    enabled = select_transitions(progress, progress.event)
    if enabled:
        microstep(progress, enabled)
    else:
        note_fault(progress, progress.event)


def note_fault(progress: Progress, event: Event) -> None:
    """S33: an `error.*` that no transition takes is listed in the step's faults."""
    if event.name.split(".")[0] == "error":
        data = event.data if isinstance(event.data, dict) else {}
        progress.faults.append(Fault(str(data.get("code", event.name)), str(data.get("message", ""))))


def select_eventless_transitions(progress: Progress) -> list[Transition]:
    """S7: the transitions without an event whose guards hold."""
    return remove_conflicting_transitions(progress, select_atomic(progress, None))


def select_transitions(progress: Progress, event: Event) -> list[Transition]:
    """S11: the transitions that the event enables."""
    if progress.chart.dialect.select == "inner_first":
        chosen: list[Transition] = []
        select_inner_first(progress, 0, event, chosen)
        return remove_conflicting_transitions(progress, chosen)
    return remove_conflicting_transitions(progress, select_atomic(progress, event))


def select_atomic(progress: Progress, event: Event | None) -> list[Transition]:
    """S11, S12: from each atomic state outward, the first that matches; no guard is asked twice."""
    structure = progress.structure
    enabled: list[Transition] = []
    asked: dict[int, bool] = {}
    for atomic in [each for each in sorted(progress.configuration) if structure.is_atomic_state(each)]:
        for state in [atomic, *structure.get_proper_ancestors(atomic)]:
            found = first_enabled(progress, state, event, asked)
            if found is not None:
                if found not in enabled:
                    enabled.append(found)
                break
    return enabled


def select_inner_first(progress: Progress, state: int, event: Event, chosen: list[Transition]) -> bool:
    """Flag `select`: children are asked first, and the state itself only if none of them gave a transition."""
    found = False
    for child in progress.structure.get_child_states(state):
        if child in progress.configuration and select_inner_first(progress, child, event, chosen):
            found = True
    if not found:
        own = first_enabled(progress, state, event, {})
        if own is not None:
            chosen.append(own)
            found = True
    return found


def first_enabled(progress: Progress, state: int, event: Event | None, asked: dict[int, bool]) -> Transition | None:
    """The first transition of one state that matches the event (None: eventless) and whose guard holds."""
    for number in progress.structure.state(state).transitions:
        transition = progress.chart.transitions[number]
        if event is None:
            matches = not transition.descriptors
        else:
            matches = any(name_match(each.tokens, event.name, exact=each.exact) for each in transition.descriptors)
        if not matches or (transition.driven and not is_own(progress, event)):
            continue
        if number not in asked:
            asked[number] = condition_match(transition.guard, progress)
        if asked[number]:
            return transition
        progress.refused |= event is not None and event is progress.outside
    return None


def is_own(progress: Progress, event: Event | None) -> bool:
    """S31: made by the kernel, or brought by the driver for an active invoke or a timer of `after`."""
    if event is None or event is progress.matched:
        return True
    return event.type == "platform" and event.source is None and event.invokeid is None


def name_match(tokens: tuple[str, ...], name: str, *, exact: bool) -> bool:
    """Section 4: a prefix of whole tokens, or exactly the name."""
    parts = name.split(".")
    return parts == list(tokens) if exact else parts[: len(tokens)] == list(tokens)


def remove_conflicting_transitions(progress: Progress, enabled: list[Transition]) -> list[Transition]:
    """S13: of transitions whose exit sets meet, the one with the inner source stays, else the earlier one."""
    filtered: list[Transition] = []
    for first in enabled:
        preempted = False
        to_remove: list[Transition] = []
        for second in filtered:
            if not set(compute_exit_set(progress, [first])) & set(compute_exit_set(progress, [second])):
                continue
            if progress.structure.is_descendant(first.source, second.source):
                to_remove.append(second)
            else:
                preempted = True
                break
        if not preempted:
            filtered = [each for each in filtered if each not in to_remove]
            filtered.append(first)
    return filtered


def compute_exit_set(progress: Progress, transitions: Iterable[Transition]) -> list[int]:
    """S17: the active states below the domains of the transitions, in document order."""
    found: set[int] = set()
    for transition in transitions:
        domain = progress.structure.get_transition_domain(transition, progress.history)
        if domain is not None:
            found |= {each for each in progress.configuration if progress.structure.is_descendant(each, domain)}
    return sorted(found)


def microstep(progress: Progress, enabled: list[Transition]) -> None:
    """Exit, act, enter; all transitions together."""
    progress.microsteps += 1
    if progress.microsteps > limits.MICROSTEPS_MAX:
        raise StepFailed("step.microsteps_max")
    progress.chosen += [each.index for each in enabled]
    before = dict(progress.history)
    exit_states(progress, enabled)
    for transition in enabled:
        execute_content(transition.block, progress)
    enter_states(progress, compute_entry_set(progress, enabled, before))


def exit_states(progress: Progress, enabled: list[Transition]) -> None:
    """S17, S26: record history for all states first, then leave them in exit order."""
    structure = progress.structure
    leaving = compute_exit_set(progress, enabled)
    recorded: History = {}
    for index in leaving:
        for child in structure.state(index).children:
            history = structure.state(child)
            if history.history == "deep":
                kept = [
                    each
                    for each in sorted(progress.configuration)
                    if structure.is_atomic_state(each) and structure.is_descendant(each, index)
                ]
            elif history.history == "shallow":
                kept = [each for each in sorted(progress.configuration) if structure.state(each).parent == index]
            else:
                continue
            recorded[history.id] = tuple(structure.state(each).id for each in kept)
    progress.history.update(recorded)
    progress.records += len(recorded)
    for index in reversed(leaving):
        leave(progress, index)


def leave(progress: Progress, index: int) -> None:
    """One state's exit: its blocks, its `after` timers, its invokes, and out of the configuration."""
    state = progress.structure.state(index)
    for block in state.exit:
        execute_content(block, progress)
    cancel_timers(progress, [each for each in progress.timers if each.state == state.id])
    for invocation in [each for each in progress.invokes if each.state == state.id]:
        cancel_invoke(progress, invocation)
    if index in progress.states_to_invoke:
        progress.states_to_invoke.remove(index)
    progress.configuration.remove(index)


class EntrySet:
    """The states to enter, those entered by default, and the default content of histories by the state it runs in."""

    def __init__(self) -> None:
        self.states: set[int] = set()
        self.by_default: set[int] = set()
        self.history_content: dict[int, State] = {}


def compute_entry_set(progress: Progress, transitions: list[Transition], before: History) -> EntrySet:
    """S19: every target added down, then every effective target added up to the domain.

    Domains are those of the exit set, so they follow from the history `before` the microstep. A target that is the
    domain itself stays (XState's self-target); only what is inside it is entered again.
    """
    entry = EntrySet()
    structure = progress.structure
    for transition in transitions:
        domain = structure.get_transition_domain(transition, before)
        if domain is None:
            continue
        staying = [
            each for each in transition.targets if structure.get_effective_target_states([each], before) == [domain]
        ]
        entering = [each for each in transition.targets if each not in staying]
        if staying:
            add_children_to_enter(progress, domain, entry)
        for target in entering:
            add_descendant_states_to_enter(progress, target, entry)
        for target in structure.get_effective_target_states(entering, progress.history):
            add_ancestor_states_to_enter(progress, target, domain, entry)
        if structure.is_parallel_state(domain):
            add_missing_regions(progress, domain, entry, by_default=False)
    return entry


def add_descendant_states_to_enter(progress: Progress, index: int, entry: EntrySet, *, by_default: bool = True) -> None:
    """S20: add down. Not `by_default`: something else than the state's own entry brought it in."""
    structure = progress.structure
    state = structure.state(index)
    if state.type == "history":
        if state.id in progress.history:
            found = [structure.number(each) for each in progress.history[state.id]]
        else:
            found = list(state.default)
            entry.history_content[state.parent] = state
        for each in found:
            add_descendant_states_to_enter(progress, each, entry, by_default=False)
        for each in found:
            add_ancestor_states_to_enter(progress, each, state.parent, entry)
        return
    entry.states.add(index)
    # XState runs no `initial` content of a state that a history or a parallel ancestor brought in; SCXML does.
    if state.type == "compound" and (by_default or progress.chart.dialect.internal == "scxml"):
        entry.by_default.add(index)
    add_children_to_enter(progress, index, entry)


def add_children_to_enter(progress: Progress, index: int, entry: EntrySet) -> None:
    """What adding a state down adds below it: the initial states of a compound, the regions of a parallel."""
    state = progress.structure.state(index)
    if state.type == "compound":
        for each in state.initial:
            add_descendant_states_to_enter(progress, each, entry)
        for each in state.initial:
            add_ancestor_states_to_enter(progress, each, index, entry)
    elif state.type == "parallel":
        add_missing_regions(progress, index, entry, by_default=True)


def add_ancestor_states_to_enter(progress: Progress, index: int, limit: int, entry: EntrySet) -> None:
    """S21: add up."""
    for ancestor in progress.structure.get_proper_ancestors(index, limit):
        entry.states.add(ancestor)
        if progress.structure.is_parallel_state(ancestor):
            add_missing_regions(progress, ancestor, entry, by_default=False)


def add_missing_regions(progress: Progress, parallel: int, entry: EntrySet, *, by_default: bool) -> None:
    """The regions of a parallel that have no descendant in the set yet are added down."""
    for child in progress.structure.get_child_states(parallel):
        if not any(progress.structure.is_descendant(each, child) for each in entry.states):
            add_descendant_states_to_enter(progress, child, entry, by_default=by_default)


def enter_states(progress: Progress, entry: EntrySet) -> None:
    """S22: in entry order, everything that happens to a state when it is entered."""
    completed: list[int] = []
    # SCXML 3.13: a state that is active and was not left is not entered; XState enters it a second time.
    staying = progress.configuration if progress.chart.dialect.internal == "scxml" else []
    for index in sorted(entry.states - set(staying)):
        state = progress.structure.state(index)
        progress.configuration = sorted({*progress.configuration, index})
        if index not in progress.states_to_invoke:
            progress.states_to_invoke.append(index)
        bind_late_fields(progress, index)
        for block in state.entry:
            execute_content(block, progress)
        set_after_timers(progress, state)
        if progress.chart.dialect.invoke == "entry":
            invoke_state(progress, index)
        if index in entry.by_default:
            execute_content(state.initial_block, progress)
        if index in entry.history_content:
            history = entry.history_content[index]
            execute_content(history.default_block, progress)
        if state.type == "final":
            complete(progress, index, completed)


def complete(progress: Progress, index: int, completed: list[int]) -> None:
    """S3, S10, S28, S29: a final was entered: its parent is done, perhaps a parallel above it, perhaps the entity."""
    structure, top = progress.structure, progress.chart.completion_root
    parent = structure.state(index).parent
    if parent == top and not structure.is_parallel_state(top):
        progress.running = False
        return
    parallel = parent
    if structure.is_compound_state(parent):
        enqueue_done(progress, parent, final=index)
        parallel = structure.state(parent).parent
    nested = progress.chart.dialect.done == "nested"
    while structure.is_parallel_state(parallel) and parallel not in completed:
        if not structure.is_in_final_state(parallel, progress.configuration):
            return
        enqueue_done(progress, parallel)
        if not nested:
            return
        completed.append(parallel)
        if parallel == top:
            progress.running = False
            return
        parallel = structure.state(parallel).parent


def enqueue_done(progress: Progress, index: int, *, final: int | None = None) -> None:
    """Queue `done.state.<id>`, with the output of the final that did it."""
    data = None if final is None else output_of(progress, final)
    name = f"done.state.{progress.structure.state(index).id}"
    progress.enqueue(Event(name, data=data, time_ms=progress.time_ms, type="platform"))


def output_of(progress: Progress, final: int) -> Any:
    """The output of a final state. A part that cannot be worked out is left out, and an error is queued (343, 488)."""
    output = progress.structure.state(final).output
    if not isinstance(output, dict):
        return evaluated(progress, output)
    parts = {name: evaluated(progress, each, otherwise=UNSET) for name, each in output.items()}
    found = {name: each for name, each in parts.items() if each is not UNSET}
    return found if found or not output else None


def evaluated(progress: Progress, value: Any, otherwise: Any = None) -> Any:
    """The value worked out, or an error queued and the other one."""
    try:
        return progress.evaluator().value(value)
    except Failure as failure:
        progress.platform_error("error.execution", failure)
        return otherwise


def exit_interpreter(progress: Progress) -> None:
    """S10: the entity ends: every active state is left, and the result goes to a parent last of all."""
    progress.last = progress.atomic_ids()
    progress.ended = progress.ended or "done"
    for event in progress.internal_queue:
        note_fault(progress, event)
    progress.internal_queue = []
    for index in sorted(progress.configuration, reverse=True):
        leave(progress, index)
        state = progress.structure.state(index)
        if state.type == "final" and state.parent == progress.chart.completion_root and progress.ended == "done":
            progress.output = output_of(progress, index)
    cancel_timers(progress, list(progress.timers))
    for event in progress.internal_queue:
        note_fault(progress, event)
    if progress.parent is not None and progress.ended == "done":
        progress.add_effect("done", {"data": progress.output})
