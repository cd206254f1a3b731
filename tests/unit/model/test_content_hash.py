"""The content hash of a document in which every class and every field of the model occurs.

The hash is in snapshots and journals as part of a chart's revision. It covers the names of classes and fields, so
renaming one would give every stored chart another revision.
"""

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from interlock.model.document import actions as act
from interlock.model.document import document as doc
from interlock.model.document import field as fld
from interlock.model.encoding.codec import content_hash

EXPRESSION = act.Expression("context.a", inside=(("a", "b.a"),), malformed="expression.syntax: text")
GUARD = act.GuardAll(
    guards=(
        act.GuardName(name="known", arguments={"a": [EXPRESSION, 1]}),
        act.GuardAny(guards=(act.GuardIn(state="b"),)),
        act.GuardNot(guard=act.GuardExpression(expression=EXPRESSION)),
    )
)
BLOCK: act.Block = (
    act.Do(name="mail", arguments={"to": "x"}),
    act.Assign(values=(("a", 1), ("b.c", EXPRESSION))),
    act.AssignCall(name="count", arguments=[True, None]),
    act.Raise(event="go", data={"x": 1.5}),
    act.Send(
        event="go", to="self", delay="30s", id="timer", id_location="a", data=1, type="scxml", restore="remaining"
    ),
    act.Cancel(id="timer"),
    act.Emit(type="paid", data={"x": "y"}),
    act.Log(label="here", value=EXPRESSION),
    act.If(branches=((GUARD, (act.Script(text="x = 1"),)),), otherwise=(act.Do(name="else"),)),
    act.Foreach(items=[1, 2], item="a", index="b", block=(act.Do(name="each"),)),
)
FIELD = fld.Field(
    name="a",
    type="object",
    default={"x": 1},
    required=True,
    nullable=True,
    enum=({"x": 1}, "=x"),
    min=1,
    max=2.5,
    length_max=9,
    format="date",
    index=True,
    items=fld.Field(name="items", type="string"),
    fields=(fld.Field(name="x", type="integer", default=1),),
    description="a field",
)
TRANSITION = doc.Transition(
    origin="after",
    events=("go", "payment.*"),
    targets=("b", "#c"),
    guard=GUARD,
    actions=BLOCK,
    reenter=False,
    delay="30s",
    restore="deadline",
    roles=("clerk",),
    description="a transition",
    meta={"color": "red"},
)
RETRY = doc.Retry(max=3, backoff="1s..30s", jitter="full", on=("busy",))
CALL = doc.SagaCall(src="pay", input={"x": EXPRESSION}, output="a", key="k")


def document(inline: doc.Document | None = None, *, personal: bool = True) -> doc.Document:
    """A document that says everything; `inline` is a chart inside it. Without `personal` it has no personal data."""
    field = replace(FIELD, personal=personal)
    state = doc.State(
        key="b",
        id="b.id",
        type="parallel",
        initial=doc.Initial(targets=("x",), actions=BLOCK),
        states=(doc.State(key="x"),),
        transitions=(TRANSITION,),
        entry=(BLOCK, ()),
        exit=(BLOCK,),
        invokes=(
            doc.Invoke(
                src=inline or EXPRESSION,
                id="job",
                id_location="a",
                type="chart",
                input={"x": 1},
                autoforward=True,
                finalize=BLOCK,
                done=(TRANSITION,),
                error=(TRANSITION,),
                retry=RETRY,
                timeout="5s",
                key=EXPRESSION,
                restore="restart",
                personal=("iban",) if personal else None,
            ),
        ),
        context=(field,),
        history="deep",
        targets=("x",),
        actions=BLOCK,
        output={"x": EXPRESSION},
        saga=doc.Saga(
            steps=(doc.SagaStep(id="s", do=CALL, guard=GUARD, compensate=CALL, retry=RETRY, timeout="5s"),),
            compensation="parallel",
            done=(TRANSITION,),
            compensated=(TRANSITION,),
            error=(TRANSITION,),
        ),
        expect=doc.Expect(within="1h", then="late"),
        sensitive=doc.Sensitive(fields=("a",), hidden=True, neutral="busy", roles=("clerk",)),
        monotonic=("x",),
        allow=(("state.trap", "meant"),),
        description="a state",
        tags=("tag",),
        meta=[1],
    )
    return doc.Document(
        kind="everything",
        root=doc.State(states=(state,)),
        revision="3.1",
        compatible=">=3",
        upgrade="safe",
        dialect="scxml",
        unhandled="defer",
        errors="raise",
        binding="late",
        create=doc.Access(roles=("clerk",), permit=EXPRESSION),
        read=doc.Access(roles=("clerk",), permit=EXPRESSION, owner="who"),
        events=(
            doc.EventType(
                name="go",
                payload=(field,),
                roles=("clerk",),
                permit=EXPRESSION,
                approvals=doc.Approvals(of="approve", count=2, without=("ask",), since="ask", within="1h"),
                dedupe=EXPRESSION,
                direction="internal",
                description="an event",
            ),
        ),
        script="x = 1",
        properties={"always": ["x"]},
        renamed=(("old", "new"),),
        retention=doc.Retention(ended="90d", entries="400d", archive="file:///archive"),
        removed=doc.Removed(states=(("gone", "2027-01-31"),), events=(("lost", "2027-01-31"),)),
    )


def values(value: Any) -> Iterator[Any]:
    """Every dataclass inside a value."""
    if is_dataclass(value):
        yield value
        for each in fields(value):
            yield from values(getattr(value, each.name))
    elif isinstance(value, dict):
        for each in value.values():
            yield from values(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from values(each)


def test_the_document_sets_every_compared_field_of_every_class() -> None:
    found = {
        (type(each).__name__, field.name)
        for each in values(document())
        for field in fields(each)
        if field.default is MISSING or getattr(each, field.name) != field.default
    }
    classes = [
        each
        for module in (act, doc, fld)
        for each in vars(module).values()
        if isinstance(each, type) and is_dataclass(each) and each.__module__ == module.__name__
    ]

    assert {(each.__name__, field.name) for each in classes for field in fields(each) if field.compare} <= found


def test_the_content_hash_stays_what_it_was() -> None:
    """Names of classes and fields are part of it: pin an old name in `model/encoding/codec.py` when one must change."""
    found = document(personal=False)
    (event,) = found.events or ()
    before = replace(found, create=None, read=None, events=(replace(event, approvals=None),))

    assert content_hash(before) == "adc0705c1064"
    assert content_hash(found) == "d6090aa4f0a4"
    assert content_hash(document(inline=document(personal=False), personal=False)) == "ac17368c0274"
    assert content_hash(document()) == "c8d0c20f6188"
