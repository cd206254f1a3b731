"""Random documents: every class of the model, in the order of transitions that YAML tries.

`documents()` is for round trips of any format that carries everything; its names include those that YAML 1.1 mistypes.
Targets and expressions are texts only: most of these documents do not compile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from interlock.model.document import actions as act
from interlock.model.document import document as doc
from interlock.model.document.field import FIELD_TYPES, UNSET, Field
from interlock.model.document.formats import FORMATS

KEYS = st.sampled_from(
    ["a", "b", "paid", "on", "off", "no", "null", "1", "0x1F", "x-y", "1e3", "été", "true", "y", "2026-11-15"]
)
IDS = st.sampled_from(["a", "live.power", "off", "1.5", "s0.1", "(chart)", "~"])
EVENTS = st.sampled_from(["go", "payment.confirmed", "no", "1", "urn:x", "été.1", "doneness"])
DESCRIPTORS = st.sampled_from(["*", "go", "go.*", "payment.", "no", "done.state.a", "after.*", "1.5"])
TARGETS = st.sampled_from(["a", "paid", "live.power", ".child", "#s0.1", "no", "1"])
DURATIONS = st.sampled_from(["250ms", "30s", "1h30m", "7d", "0ms"])
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "=x",
            "\\=x",
            "\\\\=",
            "two\nlines",
            "two\nlines\n",
            " two\n lines ",
            "a: b",
            "x #y",
            "12:30",
            "<<",
            "\x85\u2028",
            "- a",
            "\ufeff",
            "%",
        ]
    ),
)
WORDS = st.sampled_from(["send_receipt", "net.allocate", "no", "\\=odd", "a b", "été", "1_000"])
NAMES = st.one_of(WORDS, st.just("=name"))
EXPRESSIONS = st.sampled_from(
    [
        "",
        "context.a",
        "event.data['x: y'] == \"z\"",
        "a # b",
        "[1, 2]",
        "{'a': 1}",
        "not true",
        "x\n+ y",
        "'\\\\'",
        "= x",
    ]
).map(act.Expression)
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**64), 2**64), st.floats(allow_nan=False, allow_infinity=False), TEXTS
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(PLAIN, EXPRESSIONS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)
TEXT_VALUES = TEXTS | EXPRESSIONS
EVENT_VALUES = EVENTS | EXPRESSIONS


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """None, or one of the strategy."""
    return st.none() | strategy


def tuples(strategy: st.SearchStrategy[Any], low: int = 0, high: int = 2, **unique: Any) -> st.SearchStrategy[Any]:
    """A tuple of a few."""
    return st.lists(strategy, min_size=low, max_size=high, **unique).map(tuple)


def distinct(strategy: st.SearchStrategy[Any], name: str, high: int = 2) -> st.SearchStrategy[Any]:
    """A tuple of a few that differ in one attribute."""
    return tuples(strategy, high=high, unique_by=lambda each: getattr(each, name))


@st.composite
def some(draw: st.DrawFn, /, make: Callable[..., Any], optional: dict[str, Any], **always: Any) -> Any:
    """A value with everything in `always` and a few of what is optional: small, so that a test sees many."""
    chosen = draw(st.lists(st.sampled_from(sorted(optional)), max_size=3, unique=True))
    return make(
        **{name: draw(each) for name, each in always.items()}, **{name: draw(optional[name]) for name in chosen}
    )


TOMBSTONES = st.dictionaries(IDS, st.just("2027-01-31"), min_size=1, max_size=2).map(lambda each: tuple(each.items()))

GUARDS: st.SearchStrategy[act.Guard] = st.recursive(
    st.one_of(
        st.builds(act.GuardName, name=NAMES, arguments=maybe(VALUES)),
        st.builds(act.GuardExpression, expression=EXPRESSIONS),
        st.builds(act.GuardIn, state=TEXTS),
    ),
    lambda inner: st.one_of(
        st.builds(act.GuardAll, guards=tuples(inner)),
        st.builds(act.GuardAny, guards=tuples(inner)),
        st.builds(act.GuardNot, guard=inner),
    ),
    max_leaves=3,
)
PAIRS = st.dictionaries(TEXTS, VALUES, max_size=2).map(lambda each: tuple(each.items()))
MAPPINGS = st.dictionaries(TEXTS, VALUES, max_size=2) | EXPRESSIONS
ACTIONS: st.SearchStrategy[act.Action] = st.recursive(
    st.one_of(
        st.builds(act.Do, name=NAMES, arguments=maybe(MAPPINGS)),
        st.builds(act.Assign, values=PAIRS),
        st.builds(act.AssignCall, name=NAMES, arguments=maybe(VALUES)),
        st.builds(act.Raise, event=EVENT_VALUES, data=VALUES),
        st.builds(
            act.Send,
            event=EVENT_VALUES,
            to=maybe(TEXT_VALUES),
            delay=maybe(DURATIONS | EXPRESSIONS),
            id=maybe(TEXT_VALUES),
            id_location=maybe(TEXTS),
            data=VALUES,
            type=maybe(TEXT_VALUES),
            restore=maybe(st.sampled_from(["deadline", "remaining", "restart"])),
        ),
        st.builds(act.Cancel, id=TEXT_VALUES),
        st.builds(act.Emit, type=TEXT_VALUES, data=VALUES),
        st.builds(act.Log, label=maybe(TEXTS), value=VALUES),
        st.builds(act.Script, text=TEXTS),
    ),
    lambda inner: st.one_of(
        st.builds(act.If, branches=tuples(st.tuples(GUARDS, tuples(inner)), 1), otherwise=tuples(inner)),
        st.builds(act.Foreach, items=VALUES, item=TEXTS, index=maybe(TEXTS), block=tuples(inner)),
    ),
    max_leaves=3,
)
BLOCKS = tuples(ACTIONS)
ROLES = maybe(tuples(WORDS.filter(lambda each: not each.startswith("="))))


_TRANSITION_PARTS: dict[str, Any] = {
    "guard": GUARDS,
    "actions": BLOCKS,
    "reenter": st.booleans(),
    "roles": ROLES,
    "description": TEXTS,
    "meta": PLAIN,
}
RESTORES = st.sampled_from(["deadline", "remaining", "restart"])


def transitions(**fixed: Any) -> st.SearchStrategy[doc.Transition]:
    """A transition; what its key says is fixed."""
    parts = {**_TRANSITION_PARTS, **({"restore": RESTORES} if fixed.get("origin") == "after" else {})}
    return some(doc.Transition, parts, targets=tuples(TARGETS), **{name: st.just(each) for name, each in fixed.items()})


RESULTS = tuples(transitions())


@st.composite
def tried(draw: st.DrawFn, *, done: bool = True) -> tuple[doc.Transition, ...]:
    """The transitions of one state, in the order of YAML's keys."""
    made = [*draw(tuples(transitions(origin="always")))]
    for delay in draw(tuples(DURATIONS | EXPRESSIONS, unique_by=lambda each: getattr(each, "text", each))):
        made += draw(tuples(transitions(origin="after", delay=delay), 1))
    made += draw(tuples(transitions(origin="onDone"))) if done else ()
    for events in draw(tuples(tuples(DESCRIPTORS, 1), unique=True)):
        made += draw(tuples(transitions(events=events), 1))
    for events in draw(tuples(tuples(DESCRIPTORS))):
        made.append(draw(transitions(origin="transitions", events=events)))
    return tuple(made)


@st.composite
def fields(draw: st.DrawFn, *, context: bool = False, depth: int = 1) -> Field:
    """A field; one of the context says how it gets its first value."""
    parts: dict[str, Any] = {
        "default": VALUES,
        "required": st.booleans(),
        "nullable": st.booleans(),
        "enum": tuples(PLAIN, 1),
        "min": st.integers(-9, 9) | st.floats(-9, 9),
        "max": st.integers(-9, 9),
        "length_max": st.integers(0, 9),
        "format": st.sampled_from(FORMATS),
        "index": st.booleans(),
        "personal": st.booleans(),
        "description": TEXTS,
    }
    if depth:
        parts["items"] = fields(depth=0).map(lambda each: replace(each, name="items"))
        parts["fields"] = distinct(fields(depth=0), "name")
    made: Field = draw(some(Field, parts, name=KEYS, type=st.sampled_from(FIELD_TYPES)))
    startless = made.default is UNSET and not (made.required or made.nullable or made.type == "any")
    return replace(made, nullable=True) if context and startless else made


APPROVALS = some(
    doc.Approvals,
    {
        "count": st.integers(1, 16),
        "without": tuples(EVENTS),
        "since": EVENTS,
        "within": DURATIONS,
    },
    of=EVENTS,
)
_ACCESS: dict[str, Any] = {"roles": ROLES, "permit": EXPRESSIONS}
EVENT_TYPES: st.SearchStrategy[doc.EventType] = some(
    doc.EventType,
    {
        "payload": distinct(fields(), "name"),
        "roles": ROLES,
        "permit": EXPRESSIONS,
        "approvals": APPROVALS,
        "dedupe": VALUES,
        "direction": st.sampled_from(["in", "internal", "out"]),
        "description": TEXTS,
    },
    name=EVENTS,
)
RETRIES = st.builds(
    doc.Retry,
    max=st.integers(0, 9),
    backoff=maybe(st.sampled_from(["1s", "1s..30s", "0ms..0ms"])),
    jitter=maybe(st.sampled_from(["full", "none"])),
    on=ROLES,
)
EXPECTS = st.builds(doc.Expect, within=DURATIONS | st.just("forever"), then=st.just("alert") | EVENTS)
FIELD_PATHS = st.sampled_from(["a", "a.b", "no", "1"])
SENSITIVES = st.builds(doc.Sensitive, fields=tuples(FIELD_PATHS, 1)) | st.builds(
    doc.Sensitive, hidden=st.just(True), fields=tuples(FIELD_PATHS), neutral=maybe(WORDS), roles=ROLES
)
CALLS: dict[str, Any] = {"input": VALUES, "output": FIELD_PATHS, "key": VALUES}
SAGA_STEPS: st.SearchStrategy[doc.SagaStep] = some(
    doc.SagaStep,
    {
        "guard": GUARDS,
        "compensate": st.builds(doc.SagaCall, src=NAMES, input=VALUES),
        "retry": RETRIES,
        "timeout": DURATIONS,
    },
    id=KEYS,
    do=some(doc.SagaCall, CALLS, src=NAMES),
)
SAGAS: st.SearchStrategy[doc.Saga] = some(
    doc.Saga,
    {
        "compensation": st.sampled_from(["reverse", "parallel", "none"]),
        "done": RESULTS,
        "compensated": RESULTS,
        "error": RESULTS,
    },
    steps=tuples(SAGA_STEPS, 1),
)
_INVOKE_PARTS: dict[str, Any] = {
    "id": IDS,
    "id_location": TEXTS,
    "input": VALUES,
    "autoforward": st.booleans(),
    "finalize": BLOCKS,
    "done": RESULTS,
    "error": RESULTS,
    "retry": RETRIES,
    "timeout": DURATIONS,
    "key": VALUES,
    "restore": st.sampled_from(["keep", "restart", "fail"]),
    "personal": st.just(True) | tuples(FIELD_PATHS.filter(str.isidentifier), 1),
}


@st.composite
def invokes(draw: st.DrawFn, depth: int) -> doc.Invoke:
    """An invoke; with some depth left its source may be a chart."""
    named = some(
        doc.Invoke,
        {**_INVOKE_PARTS, "type": st.sampled_from(["handler", "chart"]) | EXPRESSIONS},
        src=NAMES | EXPRESSIONS,
    )
    inline = some(doc.Invoke, _INVOKE_PARTS, src=documents(depth=1), type=st.just("chart"))
    made: doc.Invoke = draw(named | inline if depth > 0 else named)
    return made


INITIALS = st.builds(doc.Initial, targets=tuples(TARGETS, 1), actions=BLOCKS)
_ABOUT: dict[str, Any] = {
    "id": IDS,
    "description": TEXTS,
    "tags": tuples(TEXTS),
    "meta": PLAIN,
    "allow": st.dictionaries(WORDS, WORDS, max_size=1).map(lambda each: tuple(each.items())),
}
_ACTING: dict[str, Any] = {
    **_ABOUT,
    "entry": tuples(BLOCKS),
    "exit": tuples(BLOCKS),
    "expect": EXPECTS,
    "sensitive": SENSITIVES,
}
_HISTORY: dict[str, Any] = {
    **_ABOUT,
    "history": st.sampled_from(["shallow", "deep"]),
    "targets": tuples(TARGETS),
    "actions": BLOCKS,
}
_COMPOUND: dict[str, Any] = {
    "initial": INITIALS,
    "monotonic": st.just(True) | tuples(TARGETS, 1),
    "context": distinct(fields(context=True), "name"),
}


@st.composite
def states(draw: st.DrawFn, depth: int) -> doc.State:
    """A state of any type, with at most `depth` levels below it."""
    kind = draw(st.sampled_from(["state", "state", "parallel", "final", "history"]))
    always: dict[str, Any] = {"key": KEYS, "type": st.just(kind)}
    parts = _HISTORY
    if kind == "final":
        parts = {**_ACTING, "transitions": tried(done=False), "output": VALUES}
    elif kind != "history":
        parts = {**_ACTING, **_COMPOUND, "transitions": tried(), "invokes": tuples(invokes(depth), 1), "saga": SAGAS}
        if kind == "parallel":
            parts = {name: each for name, each in parts.items() if name not in ("initial", "monotonic")}
        if depth > 0:
            always["states"] = distinct(states(depth - 1), "key", 3)
    made: doc.State = draw(some(doc.State, parts, **always))
    return made


@st.composite
def documents(draw: st.DrawFn, depth: int = 3) -> doc.Document:
    """A document whose states go at most `depth` levels deep."""
    root = some(
        doc.State,
        {**_ABOUT, **_COMPOUND, "transitions": tried(done=False), "sensitive": SENSITIVES},
        type=st.sampled_from(["state", "parallel"]),
        states=st.lists(states(depth - 1), min_size=1, max_size=3, unique_by=lambda each: each.key).map(tuple),
    )
    parts = {
        "revision": TEXTS,
        "compatible": TEXTS,
        "upgrade": st.sampled_from(["pinned", "safe"]),
        "dialect": st.sampled_from(["scxml", "xstate"]),
        "unhandled": st.sampled_from(["reject", "ignore", "defer"]),
        "errors": st.sampled_from(["event", "raise"]),
        "binding": st.sampled_from(["early", "late"]),
        "create": some(doc.Access, _ACCESS),
        "read": some(doc.Access, {**_ACCESS, "owner": WORDS.filter(lambda each: " " not in each)}),
        "events": distinct(EVENT_TYPES, "name"),
        "script": TEXTS,
        "properties": PLAIN,
        "renamed": st.dictionaries(IDS, IDS, max_size=1).map(lambda each: tuple(each.items())),
        "removed": some(doc.Removed, {"states": TOMBSTONES, "events": TOMBSTONES}),
        "retention": some(
            doc.Retention,
            {
                "ended": st.sampled_from(["90d", "1h30m"]),
                "entries": st.sampled_from(["400d", "30d"]),
                "archive": st.just("file:///var/archive"),
            },
        ),
    }
    made: doc.Document = draw(
        some(doc.Document, parts, kind=st.sampled_from(["order", "vm.resize", "no", "1"]), root=root)
    )
    return made
