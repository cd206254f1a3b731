"""The document: a parsed definition with positions, before any name in it is resolved.

Every reader creates one and every writer takes one. Its meaning is that of YAML (`interlock: 1`): readers of other
formats rewrite what differs.

Rule 1: nothing here is resolved: targets are texts as an author may write them (`paid`, `.child`, `#id`).
Rule 2: order is document order. A state's transitions are in the order in which they are tried.
Rule 3: places are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from interlock.errors import NO_LOCATION, SourceLocation
from interlock.model.document.actions import Block, Expression, Guard, RestorePolicy, Value
from interlock.model.document.field import Field

StateType = Literal["state", "parallel", "final", "history"]
"""`state` is atomic or compound, depending on its children."""

DialectName = Literal["interlock", "scxml", "xstate"]
Origin = Literal["on", "always", "after", "onDone", "transitions"]
"""The key under which a transition was written. The compiler creates the descriptors of `after` and `onDone`."""

TRANSITION_ORDER: dict[Origin, int] = {"always": 0, "after": 1, "onDone": 2, "on": 3, "transitions": 4}
"""The order in which the transitions of a state are tried, by the key under which each is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A transition as written.

    `events` are descriptors; empty for `always`, `after`, `onDone` and an eventless one of `transitions`.
    `delay` belongs to `after`: a duration text or an Expression. `reenter` None: not given.
    `targets` empty: no target. `actions` is one block.
    """

    origin: Origin = "on"
    events: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    guard: Guard | None = None
    actions: Block = ()
    reenter: bool | None = None
    delay: Value = None
    restore: RestorePolicy | None = None
    roles: tuple[str, ...] | None = None
    description: str | None = None
    meta: Value = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Initial:
    """The initial transition of a compound state: targets among its children, and actions."""

    targets: tuple[str, ...]
    actions: Block = ()
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How the dispatcher retries an effect: `backoff` as written (`1s..30s`); `on` limits it to these error codes."""

    max: int
    backoff: str | None = None
    jitter: Literal["full", "none"] | None = None
    on: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoke:
    """A handler or a child chart that runs while its state is active.

    `src`: a name, an Expression giving one (or the text of a definition), or a whole Document inline.
    `type`: `handler`, `chart`, or an Expression giving one. `done` and `error` are the transitions of onDone and
    onError. `personal`: the fields of the result that are personal, or True for the whole result.
    """

    src: str | Expression | Document | None = None
    id: str | None = None
    id_location: str | None = None
    type: Value = "handler"
    input: Value = None
    autoforward: bool = False
    finalize: Block | None = None
    done: tuple[Transition, ...] = ()
    error: tuple[Transition, ...] = ()
    retry: Retry | None = None
    timeout: str | None = None
    key: Value = None
    restore: Literal["keep", "restart", "fail"] | None = None
    personal: tuple[str, ...] | Literal[True] | None = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaCall:
    """The call of a saga step or of its compensation; `output` is the context field for the result."""

    src: str
    input: Value = None
    output: str | None = None
    key: Value = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaStep:
    """One step of a saga; `guard` is its `if`."""

    id: str
    do: SagaCall
    guard: Guard | None = None
    compensate: SagaCall | None = None
    retry: Retry | None = None
    timeout: str | None = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saga:
    """Several effects with compensations; the compiler turns it into states."""

    steps: tuple[SagaStep, ...]
    compensation: Literal["reverse", "parallel", "none"] = "reverse"
    done: tuple[Transition, ...] = ()
    compensated: tuple[Transition, ...] = ()
    error: tuple[Transition, ...] = ()
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """When an entity counts as stuck: `within` a duration or `forever`; `then` is `alert` or an event's name."""

    within: str
    then: str = "alert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitive:
    """Fields that are masked while the state is active. With `hidden` the state itself is shown as `neutral`."""

    fields: tuple[str, ...] = ()
    hidden: bool = False
    neutral: str | None = None
    roles: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state as written. The root of a document is one too, with an empty key.

    `entry` and `exit` are blocks. `history`, `targets` and `actions` belong to a history state: its type, its default
    targets and their actions. `monotonic`: ids, or True for the children in document order. `allow`: lint code ->
    reason.
    """

    key: str = ""
    id: str | None = None
    type: StateType = "state"
    initial: Initial | None = None
    states: tuple[State, ...] = ()
    transitions: tuple[Transition, ...] = ()
    entry: tuple[Block, ...] = ()
    exit: tuple[Block, ...] = ()
    invokes: tuple[Invoke, ...] = ()
    context: tuple[Field, ...] = ()
    history: Literal["shallow", "deep"] = "shallow"
    targets: tuple[str, ...] = ()
    actions: Block = ()
    output: Value = None
    saga: Saga | None = None
    expect: Expect | None = None
    sensitive: Sensitive | None = None
    monotonic: tuple[str, ...] | Literal[True] | None = None
    allow: tuple[tuple[str, str], ...] = ()
    description: str | None = None
    tags: tuple[str, ...] = ()
    meta: Value = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvals:
    """The approvals that an event needs: `count` different users who sent the event `of`.

    Users who sent one of the events `without` (the key `not`) do not count. Only approvals after the last event `since`
    count, and for `within` at most.
    """

    of: str
    count: int = 1
    without: tuple[str, ...] = ()
    since: str | None = None
    within: str | None = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may create or read entities: `roles`, and a `permit`.

    `owner`, for reading only, is the indexed field of the context with the id of the principal who may read, too.
    """

    roles: tuple[str, ...] | None = None
    permit: Expression | None = None
    owner: str | None = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """A declared event. `payload` None: any payload; a tuple: exactly these fields."""

    name: str
    payload: tuple[Field, ...] | None = None
    roles: tuple[str, ...] | None = None
    permit: Expression | None = None
    approvals: Approvals | None = None
    dedupe: Value = None
    direction: Literal["in", "internal", "out"] = "in"
    description: str | None = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """States and events of earlier definitions, each with the day (`2027-01-31`) from which no use is expected."""

    states: tuple[tuple[str, str], ...] = ()
    events: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long entities are kept after they ended, and entries of living ones; and the archive that gets them first."""

    ended: str | None = None
    entries: str | None = None
    archive: str | None = None
    location: SourceLocation = field(default=NO_LOCATION, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole definition: the root state and the keys of the chart.

    `events` None: not declared, so any event is accepted. `unhandled` and `errors` None: the dialect's default.
    `script` is run once after the context is built, by a trusted language only.
    """

    kind: str
    root: State
    revision: str | None = None
    compatible: str | None = None
    upgrade: Literal["pinned", "safe"] | None = field(default=None, metadata={"hashed": False})
    dialect: DialectName = "interlock"
    unhandled: Literal["reject", "ignore", "defer"] | None = None
    errors: Literal["event", "raise"] | None = None
    binding: Literal["early", "late"] = "early"
    create: Access | None = field(default=None, metadata={"hashed": False})
    read: Access | None = field(default=None, metadata={"hashed": False})
    events: tuple[EventType, ...] | None = None
    script: str | None = None
    properties: Any = None
    renamed: tuple[tuple[str, str], ...] = ()
    removed: Removed | None = field(default=None, metadata={"hashed": False})
    retention: Retention | None = field(default=None, metadata={"hashed": False})
    source: str = field(default="<definition>", compare=False)
