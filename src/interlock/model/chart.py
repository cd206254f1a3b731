"""The chart: a compiled, checked, immutable definition, in which every name is resolved to a number in document order.

Rule 1: a chart is data. It holds no function, no code and no cache; `kernel/` makes those from it.
Rule 2: states are numbered in pre-order, the root is 0, so a descendant's number lies between its ancestor's and its
`last`.
Rule 3: numbers live in one process; what is stored or shown are ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from interlock.errors import NOWHERE, Place
from interlock.model.document.actions import Block, Expression, Guard, RestorePolicy, Value
from interlock.model.document.document import DialectName, EventType, Expect, Retry, Sensitive
from interlock.model.document.field import Field

StateType = Literal["atomic", "compound", "parallel", "final", "history"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Seven flags by which one algorithm behaves exactly like SCXML or exactly like XState 5."""

    name: DialectName
    domain: Literal["lcca", "lca"] = "lcca"
    internal: Literal["scxml", "xstate"] = "scxml"
    select: Literal["atomic", "inner_first"] = "atomic"
    done: Literal["scxml", "nested"] = "scxml"
    eventless: Literal["loop", "until_unchanged"] = "loop"
    errors: Literal["event", "raise"] = "event"
    invoke: Literal["settle", "entry"] = "settle"


DIALECTS: dict[DialectName, Dialect] = {
    "interlock": Dialect(name="interlock"),
    "scxml": Dialect(name="scxml"),
    "xstate": Dialect(
        name="xstate",
        domain="lca",
        internal="xstate",
        select="inner_first",
        done="nested",
        eventless="until_unchanged",
        errors="raise",
        invoke="entry",
    ),
}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Which names a transition takes: those that begin with `tokens` (`*` has none), or exactly that one."""

    text: str
    tokens: tuple[str, ...]
    exact: bool = False

    def matches(self, name: str) -> bool:
        """Whether an event of this name is taken; whole tokens, case-sensitive."""
        tokens = tuple(name.split("."))
        return tokens == self.tokens if self.exact else tokens[: len(self.tokens)] == self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """An edge: source, descriptors (none: eventless), guard, targets (none: nothing exits or enters), one block.

    `internal`: the author said that the source is not left (`reenter: false`, SCXML's type). `reenter`: as said, for
    XState.
    `driven`: made from `after`, `onDone` or `onError`, so only the kernel's and the driver's own events trigger it; an
    event of the same name that content raises does not.
    `origin` is the key it was written under, `label` what a diagram shows for its event (`pay`, `after 30s`, `done`).
    """

    index: int
    source: int
    descriptors: tuple[Descriptor, ...] = ()
    targets: tuple[int, ...] = ()
    guard: Guard | None = None
    block: Block = ()
    internal: bool = False
    reenter: bool = False
    roles: tuple[str, ...] | None = None
    driven: bool = False
    origin: str = "on"
    label: str = ""
    description: str | None = None
    meta: Any = None
    place: Place = field(default=NOWHERE, compare=False)

    @property
    def where(self) -> str:
        """What messages call it: its path in the definition, else its number."""
        return self.place.path or f"transition {self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """A timer that a state sets when it is entered: the event it sends, and after how long (ms, or an Expression)."""

    event: str
    delay: int | Expression
    restore: RestorePolicy = "deadline"
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCompensation:
    """What answers the result of a saga step that arrives after its saga was left (S30): a `call` of the compensation.

    Its input is read with the result in the field `output`, and carries `compensates`: the key that the step was asked
    under, which is `key`, or without one `<entity>/<version>/<state id>` with the version of the invoke's effect.
    """

    name: str
    input: Value = None
    output: str | None = None
    key: Value = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compensation:
    """What answers one step of a saga: the state whose invoke does, and the step's field, which is empty afterwards."""

    step: str
    state: int
    output: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaUnwind:
    """How a saga goes back when the end of its entity cuts it short (S10): its compensations, the last step's first.

    `field` lists what is done. `completed` is the state of a saga that has nothing to go back for. `parallel`: they run
    side by side, else one after the other.
    """

    field: str
    completed: int
    compensations: tuple[Compensation, ...]
    parallel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoke:
    """A handler or a child chart that lives as long as its state; an inline one is named in `Chart.inline`."""

    id: str | None
    src: str | Expression | None
    id_location: str | None = None
    type: Value = "handler"
    input: Value = None
    autoforward: bool = False
    finalize: Block | None = None
    retry: Retry | None = None
    timeout_ms: int | None = None
    key: Value = None
    restore: str = "keep"
    late: LateCompensation | None = None
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A node of the chart.

    `initial` and `initial_block`: where a compound begins, with the default filled in. `default` and `default_block`:
    the same for
    a history. `transitions` are numbers, in the order in which they are tried. `history`: None for every other state.
    """

    index: int
    id: str
    key: str
    type: StateType
    parent: int
    last: int
    depth: int
    children: tuple[int, ...] = ()
    initial: tuple[int, ...] = ()
    initial_block: Block = ()
    entry: tuple[Block, ...] = ()
    exit: tuple[Block, ...] = ()
    transitions: tuple[int, ...] = ()
    after: tuple[After, ...] = ()
    invokes: tuple[Invoke, ...] = ()
    context: tuple[Field, ...] = ()
    history: Literal["shallow", "deep"] | None = None
    default: tuple[int, ...] = ()
    default_block: Block = ()
    output: Value = None
    saga_unwind: SagaUnwind | None = None
    expect: Expect | None = None
    sensitive: Sensitive | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    meta: Any = None
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A compiled definition. `revision` is its label and content hash.

    `top` is the state whose final child ends the entity: the root, or XState's own root where a synthetic one stands
    above it.
    `guards`, `assigns`, `handlers` and `charts` are the names that code must bring, sorted. `inline` holds child
    charts written in place.
    """

    kind: str
    revision: str
    dialect: Dialect
    states: tuple[State, ...]
    transitions: tuple[Transition, ...]
    top: int = 0
    unhandled: Literal["reject", "ignore", "defer"] = "reject"
    binding: Literal["early", "late"] = "early"
    events: tuple[EventType, ...] | None = None
    script: str | None = None
    label: str | None = None
    compatible: str | None = None
    renamed: tuple[tuple[str, str], ...] = ()
    properties: Any = None
    guards: tuple[str, ...] = ()
    assigns: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()
    charts: tuple[str, ...] = ()
    inline: tuple[tuple[str, Chart], ...] = ()
    source: str = field(default="<definition>", compare=False)

    def state(self, name: str) -> State | None:
        """The state of this id, or None."""
        return next((each for each in self.states if each.id == name), None)

    def path(self, index: int) -> list[int]:
        """Return a state and its ancestors, the root last."""
        found = [index]
        while index > 0:
            index = self.states[index].parent
            found.append(index)
        return found

    def contains(self, outer: int, inner: int) -> bool:
        """Return whether a state lies inside another, at any depth. No state contains itself."""
        return outer < inner <= self.states[outer].last

    def common_ancestor(self, first: int, *others: int) -> int:
        """Return the innermost state that is or contains all of these states."""
        common = first
        while not all(common <= each <= self.states[common].last for each in others):
            common = self.states[common].parent
        return common

    def regions(self, index: int) -> tuple[int, ...]:
        """Return the children of a state that can be active: all but the histories."""
        return tuple(each for each in self.states[index].children if self.states[each].type != "history")

    def domain(self, transition: Transition, targets: Sequence[int]) -> int | None:
        """Return the state whose descendants a transition exits and enters (S15); None for one without targets.

        `targets` are those of the transition, each history replaced by what it stands for.
        """
        if not targets:
            return None
        if self._is_internal(transition, targets):
            return transition.source
        any_type = self.dialect.domain == "lca"
        for ancestor in self.path(transition.source)[1:]:
            fits = any_type or self.states[ancestor].type == "compound" or ancestor == 0
            if fits and all(self.contains(ancestor, each) for each in targets):
                return ancestor
        return 0

    def _is_internal(self, transition: Transition, targets: Sequence[int]) -> bool:
        """Return whether the source stays active (S16)."""
        source = transition.source
        if self.dialect.internal == "xstate":
            return not transition.reenter and all(each == source or self.contains(source, each) for each in targets)
        compound = self.states[source].type == "compound"
        return transition.internal and compound and all(self.contains(source, each) for each in targets)
