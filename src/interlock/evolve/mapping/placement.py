"""Where a mapping puts an entity: its new states, which old state each one continues, and which questions are open.

Rule 1: an active state that is not named goes to the state of the same id, or its new name by `renamed`. One that is
        named, or lies in a named one, goes where the mapping says.
Rule 2: a new state continues an old one if it is that state by id or new name, or the mapping names it alone. Timers
        and running invokes of the old one continue there; what both do on entry is not repeated.
Rule 3: whatever else a new state does on entry (actions, invokes) needs an answer. So does every timer and invoke of an
        old state that nothing continues.
Rule 4: sagas are continued or left alone: their steps, and what they completed, are not mapped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from interlock.definition.yaml.parse import is_not_a_string
from interlock.evolve.carry import SAGA_CHANGES, Carrier
from interlock.evolve.identity import collapse_space
from interlock.evolve.mapping.document import Mapping, Place
from interlock.evolve.transitions import TimerPairs, pair_timers
from interlock.model.charts.chart import Chart, State
from interlock.model.diagnostics import nearest
from interlock.model.document.actions import Log

STAY = "{stay: true}"
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
CANDIDATES_MAX = 5
PLACEMENTS_CACHED_MAX = 10_000
"""Placements that are remembered: an entity's states and places are its key."""

Choice = tuple[tuple[str, tuple[str, ...] | None], ...]
"""For each active atomic state of the old definition: its new states by the mapping, or None if it does not say."""


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a mapping does not answer: what happens, the keys of an answer, and what it may be.

    Without a path no mapping answers it.
    """

    text: str
    path: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def hint(self) -> str | None:
        """How to answer it."""
        if not self.path:
            return None
        inner = f"{quoted(self.path[-1])}: {self.options[0]}"
        for name in reversed(self.path[1:-1]):
            inner = f"{quoted(name)}: {{{inner}}}"
        others = f" (or {', '.join(self.options[1:])})" if self.options[1:] else ""
        return f"add `{self.path[0]}: {{{inner}}}`{others}"

    def __str__(self) -> str:
        return self.text if self.hint is None else f"{self.text}; {self.hint}"


@dataclass(frozen=True, slots=True)
class Placement:
    """The new configuration, which new state continues each old one, and the states that are entered.

    `run_entry` are the states whose entry actions are performed, `started` the invokes that start as (state, position),
    `timers` those that are set as (state, delay, the old state from whose entry they count or None). `used` are the
    answers that this placement needs.
    """

    configuration: tuple[str, ...]
    continued: dict[str, str]
    entered: tuple[str, ...]
    run_entry: tuple[str, ...]
    started: tuple[tuple[str, int], ...]
    timers: tuple[tuple[str, str, str | None], ...]
    questions: tuple[Question, ...]
    used: frozenset[tuple[str, ...]]


class Placer:
    """Finds placements for one pair of definitions and one mapping."""

    def __init__(self, carrier: Carrier, mapping: Mapping) -> None:
        self.carrier = carrier
        self.mapping = mapping
        self.old, self.new = carrier.old, carrier.new
        self._found: dict[Choice, Placement] = {}
        self._pairs: dict[tuple[str, str], TimerPairs] = {}
        self._order = {name: state.index for name, state in carrier.new_states.items()}
        self._generated = frozenset(_generated(self.new))
        self._saga_changes = {
            name: each for each in carrier.diff.changes if each.code in SAGA_CHANGES for name in each.states
        }

    def answered(self, name: str) -> str | None:
        """Return the state whose answer counts for an active one: itself, or the innermost around it that has one."""
        around = (self.old.states[index].id for index in self.old.path(self.carrier.old_states[name].index))
        return next((each for each in around if each in self.mapping.states), None)

    def places(self, name: str) -> tuple[Place, ...] | None:
        """Return the answer for an active state; None if there is none."""
        answered = self.answered(name)
        return None if answered is None else self.mapping.states[answered]

    def place(self, choice: Choice) -> Placement:
        """Return the placement of a configuration."""
        if choice not in self._found:
            if len(self._found) >= PLACEMENTS_CACHED_MAX:
                self._found.clear()
            self._found[choice] = self._place(choice)
        return self._found[choice]

    def timed_states(self) -> frozenset[str]:
        """Return the old states from whose entry a new timer counts, in the placements so far."""
        return frozenset(old for each in self._found.values() for _, _, old in each.timers if old is not None)

    def timer_pairs(self, old: str, new: str) -> TimerPairs:
        """Return how the timers of an old state and the new one that continues it belong together."""
        if (old, new) not in self._pairs:
            before = self.carrier.old_written.get(self.carrier.renamed(old))
            after = self.carrier.new_written.get(new)
            if before is None or after is None:  # a step of a saga has no timers
                self._pairs[old, new] = TimerPairs((), (), ())
            else:
                self._pairs[old, new] = pair_timers(before, after)
        return self._pairs[old, new]

    def _place(self, choice: Choice) -> Placement:
        active = self._around(self.old, (name for name, _ in choice))
        questions = list(self._sagas(active))
        names, unplaced = self._targets(choice)
        questions += unplaced
        configuration = tuple(sorted(set(names), key=lambda each: self._order[each]))
        if not questions:
            questions += self._legality(configuration)
        if questions:
            return Placement(configuration, {}, (), (), (), (), tuple(questions), frozenset())
        now_active = self._around(self.new, configuration)
        continued = self._continued(choice, active, now_active)
        entered = sorted(now_active - set(continued.values()), key=lambda each: self._order[each])
        used: set[tuple[str, ...]] = set()
        origins = {new: old for old, new in continued.items()}
        run_entry: list[str] = []
        started: list[tuple[str, int]] = []
        timers: list[tuple[str, str, str | None]] = []
        for name in sorted(now_active, key=lambda each: self._order[each]):
            state, answer = self.carrier.new_states[name], self.mapping.entered.get(name)
            origin = origins.get(name)
            if self._has_new_entry(origin, name):
                used.add(("entered", name, "entry"))
                if answer is None or answer.entry is None:
                    text = f"entities in `{name}` have not performed its entry actions"
                    questions.append(Question(text, ("entered", name, "entry"), ("skip", "run")))
                elif answer.entry == "run":
                    run_entry.append(name)
            for position in range(len(state.invokes)):
                if origin is not None and self.has_invoke(origin, name, position):
                    continue
                label = invoke_name(state, position)
                used.add(("entered", name, label))
                how = None if answer is None else answer.invokes.get(label)
                if how is None:
                    text = f"entities in `{name}` have not started its invoke `{label}`"
                    questions.append(Question(text, ("entered", name, "invokes", label), ("start", "skip")))
                elif how == "start":
                    started.append((name, position))
            timers += self._new_timers(name, origin, used)
        for name in sorted(active):
            questions += self._obligations(name, continued.get(name), used)
        return Placement(
            configuration,
            continued,
            tuple(entered),
            tuple(run_entry),
            tuple(started),
            tuple(timers),
            tuple(questions),
            frozenset(used),
        )

    def _around(self, chart: Chart, names: Iterable[str]) -> set[str]:
        known = self.carrier.old_states if chart is self.old else self.carrier.new_states
        return {chart.states[index].id for name in names for index in chart.path(known[name].index)}

    # States

    def _sagas(self, active: set[str]) -> Iterator[Question]:
        for name in sorted(active):
            state = self.carrier.old_states[name]
            if state.saga is None:
                continue
            new = self.carrier.new_states.get(self.carrier.renamed(name))
            moved = any(self.mapping.states.get(each.id) for each in self.old.states[state.index : state.last + 1])
            if name in self._saga_changes or moved or new is None or new.saga is None:
                change = self._saga_changes.get(name)
                why = "it is mapped or removed" if change is None else f"{change.code} {change.subject}"
                text = f"entities in the saga `{name}` cannot be moved: {why}"
                yield Question(text, ("states", name), (STAY,))

    def _targets(self, choice: Choice) -> tuple[list[str], list[Question]]:
        names: list[str] = []
        questions: list[Question] = []
        for name, targets in choice:
            for target in (self.carrier.renamed(name),) if targets is None else targets:
                state = self.carrier.new_states.get(target)
                if state is None or not target:
                    text = f"entities in `{name}` have nowhere to go: the new definition has no state `{target}`"
                    questions.append(Question(text, ("states", name), (*self._candidates(name), STAY)))
                    continue
                found = self._descend(state)
                if isinstance(found, str) or (state.type == "final" and state.parent == self.new.completion_root):
                    why = found if isinstance(found, str) else "it ends the entity"
                    text = f"entities in `{name}` cannot be put into `{target}`: {why}"
                    questions.append(Question(text, ("states", name), (*self._candidates(name), STAY)))
                elif targets is not None and not self._generated.isdisjoint(found):
                    text = f"entities in `{name}` cannot be put into a step of a saga"
                    questions.append(Question(text, ("states", name), (*self._candidates(name), STAY)))
                else:
                    names += found
        return names, questions

    def _candidates(self, name: str) -> tuple[str, ...]:
        """States that could be meant: those with a similar name first."""
        known = [
            each.id
            for each in self.new.states[1:]
            if each.type == "atomic" and each.id not in self.carrier.old_states and each.id not in self._generated
        ]
        known = known or [each.id for each in self.new.states[1:] if each.type == "atomic"]
        first = nearest(name, known)
        return tuple(dict.fromkeys([*([first] if first else []), *known]))[:CANDIDATES_MAX]

    def _descend(self, state: State) -> list[str] | str:
        """The atomic states in which an entity in this state is, or why a child must be named."""
        if state.type in ("parallel", "history"):
            return "name the states in it"
        if state.saga is not None:
            return "they have started no step of its saga"
        if state.type != "compound":
            return [state.id]
        found: list[str] = []
        for child in (self.new.states[index] for index in state.initial):
            inside = self._descend(child)
            if isinstance(inside, str) or state.initial_block or self._is_busy(child) or child.type == "final":
                return f"name one of the states in it, because `{child.id}` does something on entry"
            found += inside
        return found

    def _is_busy(self, state: State) -> bool:
        return bool(state.entry or state.after or state.invokes or state.context)

    def _legality(self, configuration: tuple[str, ...]) -> Iterator[Question]:
        if self.carrier.kernel.planner.configuration(configuration) is not None:
            return
        active = self._around(self.new, configuration)
        together = ", ".join(configuration) or "no state"
        for name in sorted(active):
            state = self.carrier.new_states[name]
            if state.type == "parallel":
                for index in self.new.regions(state.index):
                    region = self.new.states[index].id
                    if region not in active:
                        yield Question(
                            f"entities in `{name}` are not in its region `{region}`: map one of their states to two"
                        )
        yield Question(f"the new definition does not allow {together} to be active together")

    def _continued(self, choice: Choice, active: set[str], now_active: set[str]) -> dict[str, str]:
        """Which new state continues each old one, where one does."""
        goals = {name: targets for name, targets in choice if targets is not None}
        for name in sorted(active - {each for each, _ in choice}):
            if self.mapping.states.get(name):
                inside = (targets or () for each, targets in choice if self.answered(each) == name)
                goals[name] = tuple(sorted({target for targets in inside for target in targets}))
        found = {}
        for name in active:
            renamed, targets = self.carrier.renamed(name), goals.get(name)
            if targets is not None and renamed not in targets and len(targets) == 1:
                found[name] = targets[0]
            elif renamed in now_active and (targets is None or renamed in targets):
                found[name] = renamed
        return self._unique({name: new for name, new in found.items() if new in now_active})

    def _unique(self, found: dict[str, str]) -> dict[str, str]:
        """Each new state continues one old state only: that of its name, else the first."""
        kept: dict[str, str] = {}
        for old in sorted(found, key=lambda each: (self.carrier.renamed(each) != found[each], each)):
            if found[old] not in kept.values():
                kept[old] = found[old]
        return kept

    # What states do

    def _has_new_entry(self, origin: str | None, name: str) -> bool:
        written = _without_logs(self.carrier.new_written[name].entry) if name in self.carrier.new_written else ()
        if not written or origin is None:
            return bool(written)
        old = self.carrier.old_written.get(self.carrier.renamed(origin))
        return old is None or _without_logs(old.entry) != written

    def _new_timers(
        self, name: str, origin: str | None, used: set[tuple[str, ...]]
    ) -> Iterator[tuple[str, str, str | None]]:
        """The timers of a new state that continue none of the old state."""
        taken: set[str | None] = set()
        if origin is not None:
            answers = self.mapping.timers.get(origin, {})
            pairs = {was: now for was, now in self.timer_pairs(origin, name).pairs if was not in answers}
            taken = {*pairs.values(), *(each.to for each in answers.values())}
        given = self.mapping.entered.get(name)
        for label in self._labels(name):
            if label in taken:
                continue
            used.add(("entered", name, f"after {label}"))
            how = "restart" if origin is None else "elapsed"
            how = how if given is None else given.timers.get(label, how)
            if how != "skip":
                yield name, label, origin if how == "elapsed" else None

    def _labels(self, name: str) -> list[str]:
        return [collapse_space(each.label) for each in self.carrier.new_states[name].after]

    def has_invoke(self, old: str, new: str, position: int) -> bool:
        """Whether an invoke of a new state is one of the old state that it continues."""
        invokes = range(len(self.carrier.old_states[old].invokes))
        return any(self.continued_invoke(old, each, new) == position for each in invokes)

    def continued_invoke(self, old: str, position: int, new: str | None) -> int | None:
        """Return where a new state has an invoke of the old one. An unnamed one is named by its state."""
        state = self.carrier.old_states[old]
        if new is None or (state.invokes[position].id is None and old != new):
            return None
        return self.carrier.equal_invoke(state, position, self.carrier.new_states[new])

    def _obligations(self, name: str, new: str | None, used: set[tuple[str, ...]]) -> Iterator[Question]:
        """The timers and invokes of an old state that nothing continues."""
        state = self.carrier.old_states[name]
        answers = self.mapping.timers.get(name, {})
        pairs = None if new is None else self.timer_pairs(name, new)
        for after in state.after:
            label = collapse_space(after.label)
            is_answered = label in answers
            used.add(("timers", name, label))
            to = answers[label].to if is_answered else None
            if to is not None and (new is None or to not in self._labels(new)):
                where = "nothing continues it" if new is None else f"`{new}` has no such timer"
                yield Question(f"the timer `{label}` of `{name}` cannot continue as `{to}`: {where}")
            is_paired = pairs is not None and label in dict(pairs.pairs)
            is_dropped = pairs is not None and new == self.carrier.renamed(name) and not pairs.is_ambiguous
            if not (is_answered or is_paired or is_dropped):
                text = f"no timer continues `after {label}` of `{name}`"
                delays = () if new is None else tuple(map(quoted, self._labels(new)))
                yield Question(text, ("timers", name, label), ("drop", *delays))
        for position in range(len(state.invokes)):
            label = invoke_name(state, position)
            if self.continued_invoke(name, position, new) is not None:
                continue
            used.add(("invokes", name, label))
            if label not in self.mapping.invokes.get(name, ()):
                text = f"no invoke continues `{label}` of `{name}`, which may be running"
                yield Question(text, ("invokes", name, label), ("cancel",))


def quoted(text: str) -> str:
    """Return a text as YAML reads it, in quotes if it needs them."""
    plain = _PLAIN.fullmatch(text) is not None and not is_not_a_string(text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def invoke_name(state: State, position: int) -> str:
    """Return the name of an invoke in a mapping: its id, or its state and position."""
    return state.invokes[position].id or f"{state.id}.{position}"


def _without_logs(blocks: tuple[tuple[object, ...], ...]) -> tuple[tuple[object, ...], ...]:
    found = (tuple(each for each in block if not isinstance(each, Log)) for block in blocks)
    return tuple(each for each in found if each)


def _generated(chart: Chart) -> Iterator[str]:
    """The ids of the states that the compiler made inside sagas."""
    for state in chart.states:
        if state.saga is not None:
            yield from (each.id for each in chart.states[state.index + 1 : state.last + 1])
