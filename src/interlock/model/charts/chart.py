"""The chart: a compiled, checked, immutable definition. States and transitions are numbers in document order.

Rule 1: a chart is data. It has no functions, code or caches; the kernel makes those from it.
Rule 2: states are numbered in pre-order and the root is 0, so the descendants of a state are the numbers after its own,
        up to its `last`.
Rule 3: numbers are valid in one process only. Ids are stored and shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from interlock.errors import NO_LOCATION, SourceLocation
from interlock.model.approvals import ACTORS_FIELD
from interlock.model.document.actions import Block, Expression, Guard, RestorePolicy, Value
from interlock.model.document.document import Access, DialectName, Document, EventType, Expect, Retry, Sensitive
from interlock.model.document.field import Field
from interlock.model.held import HELD_FIELD
from interlock.model.personal_token import KEY_FIELD

StateType = Literal["atomic", "compound", "parallel", "final", "history"]


SEMANTICS = 1
"""The rules of the kernel that a chart is written for. A kernel change that alters a result gets a new number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Seven flags that make one algorithm behave exactly like SCXML or exactly like XState 5.

    `unhandled` is what happens to an event that no transition takes, unless the chart says otherwise.
    """

    name: DialectName
    domain: Literal["lcca", "lca"] = "lcca"
    internal: Literal["scxml", "xstate"] = "scxml"
    select: Literal["atomic", "inner_first"] = "atomic"
    done: Literal["scxml", "nested"] = "scxml"
    eventless: Literal["loop", "until_unchanged"] = "loop"
    errors: Literal["event", "raise"] = "event"
    invoke: Literal["settle", "entry"] = "settle"
    unhandled: Literal["reject", "ignore", "defer"] = "ignore"


DIALECTS: dict[DialectName, Dialect] = {
    "interlock": Dialect(name="interlock", unhandled="reject"),
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
    """The event names that a transition matches: names that start with `tokens` (none for `*`), or one exact name."""

    text: str
    tokens: tuple[str, ...]
    exact: bool = False

    def matches(self, name: str) -> bool:
        """Return whether an event name matches. Tokens are compared as a whole, case-sensitively."""
        tokens = tuple(name.split("."))
        return tokens == self.tokens if self.exact else tokens[: len(self.tokens)] == self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """An edge: source, descriptors (none if eventless), guard, targets (none: no state is exited), one block.

    `internal`: the author wrote that the source is not exited (`reenter: false`, or `type` in SCXML). `reenter` is the
    same flag as XState means it. `driven`: made from `after`, `onDone` or `onError`. Only events that the kernel or the
    driver created trigger it, not an event of the same name that an action raises. `origin` is the key in the
    definition, `label` the text that a diagram shows for its event (`pay`, `after 30s`, `done`). `roles_in`: while the
    state of such a pair is active, the transition would leave it, and needs one of these roles, too.
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
    roles_in: tuple[tuple[str, tuple[str, ...]], ...] = ()
    driven: bool = False
    origin: str = "on"
    label: str = ""
    description: str | None = None
    meta: Any = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)

    @property
    def display_name(self) -> str:
        """Its name in messages: the path in the definition, else its number."""
        return self.location.path or f"transition {self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """A timer that is set when its state is entered: its event and its delay (ms, or an Expression)."""

    event: str
    delay: int | Expression
    restore: RestorePolicy = "deadline"
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCompensation:
    """The call that compensates a saga step whose result arrives after its state was left (S30).

    Its input is evaluated with the result in the field `output`. It contains `compensates`, the key of the step: `key`,
    or `<entity>/<version>/<state id>` with the version of the invoke's effect.
    """

    name: str
    input: Value = None
    output: str | None = None
    key: Value = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compensation:
    """The compensation of one saga step: the state that invokes it, and the field of the result, which it clears."""

    step: str
    state: int
    output: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaUnwind:
    """How a saga is unwound when its entity ends before it (S10): its compensations, that of the last step first.

    `field` lists the steps that are done. In the state `completed` nothing has to be compensated. `parallel`: all
    compensations run at the same time, else one after the other.
    """

    field: str
    completed: int
    compensations: tuple[Compensation, ...]
    parallel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaStepInfo:
    """A step of a saga: its state, and the state of its compensation, if it has one."""

    id: str
    state: int
    compensation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaInfo:
    """A saga that the compiler expanded to the child states of a state (ADR 0008).

    `field` of the context records its progress, and no author wrote it. `compensated` is None for a saga without
    compensation. All descendants of the state are generated.
    """

    field: str
    steps: tuple[SagaStepInfo, ...]
    completed: int
    blocked: int
    compensated: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoke:
    """A handler or a child chart that runs while its state is active. Inline charts are in `Chart.inline`."""

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
    personal: tuple[str, ...] | Literal[True] | None = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A node of the chart.

    `initial` and `initial_block` are the initial states of a compound state and the actions of entering them. `default`
    and `default_block` are the same for a history. `transitions` are numbers, in the order in which they are tried.
    `history` is None for every other state. `saga` is None unless the state was written with `saga:`.
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
    saga: SagaInfo | None = None
    saga_unwind: SagaUnwind | None = None
    expect: Expect | None = None
    sensitive: Sensitive | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    meta: Any = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long ended entities, and entries of living ones, are kept (None: no limit). `archive`: a copy goes there."""

    ended_ms: int | None = None
    entries_ms: int | None = None
    archive: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenStates:
    """The hidden states of a chart: `sensitive: true` or a mapping, and everything inside them.

    `entering` are the numbers of the transitions that may enter one. `readers` are the roles that may see all of
    them; without roles, only the right `read:sensitive` does. `is_covered`: the chart keeps every rule of covers, so
    that others may see its entities as if those were in no hidden state. If not, they see no entity of the kind.
    """

    states: frozenset[str] = frozenset()
    entering: frozenset[int] = frozenset()
    readers: frozenset[str] = frozenset()
    is_covered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Chart:
    """A compiled definition.

    `revision` is the name of its behaviour, or another name under which a store has entities of it; `other_names` are
    the other names of the same revision. A chart that was compiled and not loaded has its label and content hash.
    `hidden` is None if no state is hidden.
    `document` is its source.

    `top` is the state whose final child ends the entity: the root, or the root of the XState machine below a synthetic
    one. `guards`, `assigns`, `handlers` and `charts` are the names that the application must register, sorted. `inline`
    are child charts written in place.
    """

    kind: str
    revision: str
    dialect: Dialect
    states: tuple[State, ...]
    transitions: tuple[Transition, ...]
    completion_root: int = 0
    unhandled: Literal["reject", "ignore", "defer"] = "reject"
    binding: Literal["early", "late"] = "early"
    create: Access | None = None
    read: Access | None = None
    events: tuple[EventType, ...] | None = None
    script: str | None = None
    label: str | None = None
    compatible: str | None = None
    upgrade: Literal["pinned", "safe"] | None = None
    retention: RetentionPolicy | None = None
    renamed: tuple[tuple[str, str], ...] = ()
    properties: Any = None
    guards: tuple[str, ...] = ()
    assigns: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()
    charts: tuple[str, ...] = ()
    inline: tuple[tuple[str, Chart], ...] = ()
    other_names: tuple[str, ...] = ()
    hidden: HiddenStates | None = None
    source: str = field(default="<definition>", compare=False)
    document: Document | None = field(default=None, compare=False, repr=False)

    @property
    def saga_fields(self) -> frozenset[str]:
        """The fields of the context in which sagas record their progress."""
        return frozenset(each.saga.field for each in self.states if each.saga is not None)

    @property
    def hidden_fields(self) -> frozenset[str]:
        """The fields of the context that no author declared: the progress of sagas, and who approved what."""
        records_actors = any(each.approvals is not None for each in self.events or ())
        return self.saga_fields | {ACTORS_FIELD} if records_actors else self.saga_fields

    def visible_context(self, context: dict[str, Any]) -> dict[str, Any]:
        """Return a context as its author declared it: without sagas, approvals, and what the driver keeps there."""
        hidden = self.hidden_fields
        if not hidden and KEY_FIELD not in context and HELD_FIELD not in context:
            return context
        hidden |= {KEY_FIELD, HELD_FIELD}
        return {name: value for name, value in context.items() if name not in hidden}

    @property
    def revision_text(self) -> str:
        """The revision for readers: its label, if it has one, and its name."""
        is_in_name = self.label is None or self.revision.startswith(f"{self.label}+")
        return self.revision if is_in_name else f"{self.label} {self.revision}"

    def is_revision(self, name: str) -> bool:
        """Return whether a name means the revision of this chart."""
        return name == self.revision or name in self.other_names

    def state(self, name: str) -> State | None:
        """Return the state with this id, or None."""
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

        `targets` are those of the transition, with each history replaced by its effective targets.
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
