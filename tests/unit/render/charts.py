"""Charts that show everything a drawing can show, made without a reader."""

from interlock.compiler.build import compile_document
from interlock.model.charts.chart import Chart
from interlock.model.document.actions import (
    Assign,
    Cancel,
    Do,
    Emit,
    Expression,
    GuardExpression,
    GuardIn,
    GuardNot,
    Send,
)
from interlock.model.document.document import Document, Initial, Invoke, State, Transition
from interlock.model.document.field import Field


def compiled(document: Document) -> Chart:
    """The chart of a document that has no errors."""
    chart = compile_document(document).chart
    assert chart is not None
    return chart


def on(event: str, *targets: str, **fields: object) -> Transition:
    """A transition under `on`."""
    return Transition(events=(event,), targets=targets, **fields)  # type: ignore[arg-type]  # the tests know the fields


def expression(text: str) -> GuardExpression:
    """A guard written as an expression."""
    return GuardExpression(expression=Expression(text))


def hostile() -> Chart:
    """A chart in which every text tries to end its quotes, its line or its diagram."""
    text = "\"] } ; --> [*] \\ <b> %% // ** #1; @enduml */ `x` ~ _y_ $z & : { <<fork>> \u2028 ''"
    literal = '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\u2028", " ") + '"'
    guard = expression(f"{literal} in [1, 2]")
    assign = Assign(values=(("note", text),))
    states = (
        State(key="a", entry=((assign,),), transitions=(on("go", "b", guard=guard, actions=(assign,)),)),
        State(key="b", transitions=(on("stay", guard=guard, actions=(assign,)),)),
    )
    return compiled(
        Document(kind='a "kind" [*] }', root=State(context=(Field(name="note", default=""),), states=states))
    )


def flat() -> Chart:
    """Two states and a final one."""
    states = (
        State(
            key="unpaid", transitions=(Transition(origin="after", delay="48h", targets=("expired",)), on("pay", "paid"))
        ),
        State(key="paid", type="final", output={"ok": True}),
        State(key="expired", type="final"),
    )
    return compiled(Document(kind="order", revision="1.0.0", root=State(states=states)))


def nested() -> Chart:
    """Compound and parallel states, histories, several targets, root transitions, lines of every sort."""
    power = State(key="power", states=(State(key="steady", transitions=(on("resize", "busy"),)), State(key="busy")))
    health = State(
        key="health",
        initial=Initial(targets=("good",), actions=(Do(name="probe"),)),
        states=(
            State(key="good", transitions=(on("bad", "poor"), on("worse", "poor"))),
            State(
                key="poor",
                transitions=(
                    Transition(origin="always", targets=("#paused",), guard=expression("context.failures >= 3")),
                    on("reset", "#live", reenter=None),
                ),
            ),
        ),
    )
    live = State(
        key="live",
        type="parallel",
        entry=((Emit(type="vm.live"),),),
        exit=((Cancel(id="billing"),),),
        invokes=(Invoke(id="watch", src="hypervisor.watch", error=(Transition(targets=("paused",)),)),),
        transitions=(on("again", ".power.steady", reenter=True), on("note", actions=(Do(name="note"),))),
        states=(
            power,
            health,
            State(key="last", type="history", history="deep", targets=("power.steady", "health.good")),
        ),
    )
    setup = State(
        key="setup",
        initial=Initial(targets=("address",)),
        transitions=(Transition(origin="onDone", targets=("live",)), on("retry", "setup", reenter=True)),
        states=(
            State(key="address", transitions=(on("got", "ready"),)),
            State(key="ready", type="final"),
            State(key="before", type="history", targets=("address",), actions=(Do(name="begin"),)),
        ),
    )
    paused = State(
        key="paused",
        entry=((Send(event="hour.passed", delay="1h", id="billing"),),),
        transitions=(
            on("resume", "live.last"),
            on("split", "live.power.busy", "live.health.poor"),
            on("restore", "setup.before", guard=GuardNot(guard=GuardIn(state="live"))),
        ),
    )
    root = State(
        context=(Field(name="failures", type="integer", default=0),),
        initial=Initial(targets=("setup",)),
        transitions=(
            on("delete", "gone", guard=expression("context.failures < 9")),
            on("ping", actions=(Do(name="pong"),)),
        ),
        states=(setup, live, paused, State(key="gone", type="final")),
    )
    return compiled(Document(kind="vm", dialect="scxml", root=root))


def parallel_root() -> Chart:
    """A chart whose root is parallel and acts, with an arrow between its regions."""
    left = State(key="left", states=(State(key="a", transitions=(on("x", "#right.d"),)), State(key="b")))
    right = State(key="right", states=(State(key="c"), State(key="d")))
    root = State(
        type="parallel", states=(left, right), transitions=(on("reset", "left.b"),), entry=((Do(name="hello"),),)
    )
    return compiled(Document(kind="pair", dialect="scxml", root=root))
