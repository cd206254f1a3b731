"""The example charts written in Python: what the builder is for, and what its documents are compared by."""

from interlock.definition.builder import namespace as build
from interlock.model.document.document import Document, State


def order() -> Document:
    """The order chart."""
    return build.chart(
        "order",
        revision="1.0.0",
        context=[build.integer("amount", min=1, required=True), build.string("payment", nullable=True)],
        events=[
            build.event(
                "payment.confirmed",
                roles="payments",
                payload=[build.string("id")],
                dedupe=build.expr("event.data.id"),
            ),
            build.event("order.cancelled", roles=["customer", "support"]),
            build.event("parcel.shipped", roles="warehouse"),
            build.event("refund.retried", roles="support"),
        ],
        initial="unpaid",
        states=[
            build.state(
                "unpaid",
                build.after("48h", "expired"),
                build.on("payment.confirmed", "paid", actions=build.assign(payment=build.expr("event.data.id"))),
                build.on("order.cancelled", "cancelled"),
            ),
            build.state(
                "paid",
                build.on("parcel.shipped", "shipped"),
                build.on("order.cancelled", "refund_pending"),
                entry="send_receipt",
                expect="2d",
            ),
            build.state(
                "refund_pending",
                build.on("order.cancelled"),  # already asked
                build.invoke(
                    "payment.refund",
                    id="refund",
                    input={"payment": build.expr("context.payment")},
                    timeout="20s",
                    retry=build.retry(8, backoff="1s..5m", jitter="full"),
                    done="cancelled",
                    error="refund_failed",
                ),
            ),
            build.state("refund_failed", build.on("refund.retried", "refund_pending"), expect="1h", tags="alert"),
            build.final("expired"),
            build.final("shipped"),
            build.final("cancelled"),
        ],
    )


def vm() -> Document:
    """The virtual computer's chart: sagas, regions, history, timers."""
    sizes = ["s", "m", "l"]
    expr = build.expr
    return build.chart(
        "vm",
        build.on("delete.requested", "removal", guard=expr("not context.protected")),
        revision="3.1.0",
        compatible=">=3.0 <4",
        context=[
            build.string("image", required=True),
            build.boolean("protected", default=False),
            build.string("size", enum=sizes, default="s"),
            build.string("size_wanted", nullable=True),
            build.string("address", nullable=True),
            build.string("volume", nullable=True),
            build.integer("failures", default=0),
            build.integer("removals", default=0),
        ],
        events=[
            build.event("quota.granted", roles="system"),
            build.event("start.requested", roles=["owner", "operator"]),
            build.event("stop.requested", roles=["owner", "operator"]),
            build.event("resume.requested", roles="operator"),
            build.event("resize.requested", roles="owner", payload=[build.string("size", enum=sizes)]),
            build.event("delete.requested", roles=["owner", "admin"], dedupe=expr("event.id")),
            build.event("health.good", roles="system"),
            build.event("health.bad", roles="system", payload=[build.string("reason")]),
            build.event("hour.passed", direction="internal"),
        ],
        monotonic=["requested", "setup", "removal", "gone"],
        initial="requested",
        states=[
            build.state("requested", build.on("quota.granted", "setup"), build.after("24h", "expired")),
            build.final("expired", output={"reason": "quota"}),
            build.state(
                "setup",
                expect=build.expect("5m", then="alert"),
                sensitive=["address", "volume"],
                allow={"saga.left_midway": "removal gives back whatever setup had got"},
                saga=build.saga(
                    build.saga_step(
                        "address",
                        build.call("net.allocate", input={"vm": expr("entity.id")}, output="address"),
                        guard=expr("context.address == null"),
                        compensate=build.call("net.release", input={"address": expr("context.address")}),
                        retry=build.retry(5, backoff="1s..30s", jitter="full"),
                        timeout="30s",
                    ),
                    build.saga_step(
                        "volume",
                        build.call("disk.create", input={"size": expr("context.size")}, output="volume"),
                        guard=expr("context.volume == null"),
                        compensate=build.call("disk.remove", input={"volume": expr("context.volume")}),
                        timeout="2m",
                    ),
                    build.saga_step(
                        "boot", build.call("hypervisor.boot", input={"image": expr("context.image")}), timeout="1m"
                    ),
                    done="live",
                    compensated="setup_failed",
                    error="setup_blocked",
                ),
            ),
            build.state("setup_failed", build.on("start.requested", "setup"), build.after("7d", "removal")),
            build.state("setup_blocked", tags="alert", expect="1h"),
            _live(),
            build.state(
                "paused",
                build.on("resume.requested", "live.last", actions=build.assign(failures=0)),
                build.after("7d", "removal"),
            ),
            build.state(
                "stop_pending",
                build.invoke("hypervisor.stop", id="stop", timeout="5m", done="stopped", error="stop_failed"),
            ),
            build.state("stop_failed", build.on("stop.requested", "stop_pending"), tags="alert", expect="1h"),
            build.state(
                "stopped",
                build.on("start.requested", "setup"),
                build.on("hour.passed", actions=["bill_storage", build.send("hour.passed", delay="1h", id="billing")]),
                expect="forever",
                entry=build.send("hour.passed", delay="1h", id="billing"),
                exit=build.cancel("billing"),
            ),
            _removal(),
            build.state(
                "removal_failed",
                build.after("1m", "removal", guard=expr("context.removals < 10")),
                tags="alert",
                expect="1h",
                entry=build.assign(removals=expr("context.removals + 1")),
            ),
            build.final("gone", output={"deleted": True}),
        ],
    )


def _live() -> State:
    expr = build.expr
    return build.parallel(
        "live",
        build.on("stop.requested", "stop_pending"),
        expect="forever",
        entry=build.emit("vm.live", {"address": expr("context.address")}),
        states=[
            build.state(
                "power",
                states=[
                    build.state(
                        "steady",
                        build.on("resize.requested", guard=expr("event.data.size == context.size")),
                        build.on(
                            "resize.requested",
                            "resize_pending",
                            actions=build.assign(size_wanted=expr("event.data.size")),
                        ),
                    ),
                    build.state(
                        "resize_pending",
                        build.invoke(
                            "hypervisor.resize",
                            id="resize",
                            input={"size": expr("context.size_wanted")},
                            timeout="90s",
                            done=build.to(
                                "steady", actions=build.assign(size=expr("context.size_wanted"), size_wanted=None)
                            ),
                            error=build.to(
                                "steady", actions=[build.log("resize failed"), build.assign(size_wanted=None)]
                            ),
                        ),
                    ),
                ],
            ),
            build.state(
                "health",
                states=[
                    build.state("good", build.on("health.bad", "suspect")),
                    build.state(
                        "suspect",
                        build.always("paused", guard=expr("context.failures >= 3")),
                        build.after("30s", "suspect", reenter=True),
                        build.on("health.good", "good", actions=build.assign(failures=0)),
                        entry=build.assign(failures=expr("context.failures + 1")),
                    ),
                ],
            ),
            build.deep_history("last", ["power.steady", "health.good"]),
        ],
    )


def _removal() -> State:
    expr = build.expr
    return build.state(
        "removal",
        build.on("delete.requested"),
        saga=build.saga(
            build.saga_step("power", "hypervisor.destroy", timeout="2m"),
            build.saga_step(
                "disk",
                build.call("disk.remove", input={"volume": expr("context.volume")}),
                guard=expr("context.volume != null"),
                timeout="2m",
            ),
            build.saga_step(
                "address",
                build.call("net.release", input={"address": expr("context.address")}),
                guard=expr("context.address != null"),
                timeout="30s",
            ),
            compensation="none",
            done="gone",
            error="removal_failed",
        ),
    )


def every_word() -> Document:
    """A chart that says everything the vocabulary can say; `EVERY_WORD` is the same in YAML."""
    expr = build.expr
    child = build.chart("all.child", states=[build.final("over")])
    return build.chart(
        "all",
        build.on("reset", "first", roles=["admin"], reenter=None),
        build.after(expr("context.wait"), "first", restore="remaining"),
        build.transition("first", event="late", description="after all others", meta={"n": [1, 2.5]}),
        build.transition("second", guard="tired"),
        revision="2",
        compatible=">=1",
        upgrade="safe",
        description="everything",
        unhandled="defer",
        errors="raise",
        binding="late",
        context=[
            build.field("wait", default=expr("1 + 1"), description="any"),
            build.number("ratio", min=0.5, max=9, default=1, enum=[1, 2.5]),
            build.field("tags", "array", items="string", length_max=9, default=[]),
            build.field(
                "address",
                "object",
                fields=[build.string("city", required=True), build.string("street", length_max=80)],
                nullable=True,
            ),
            build.field("rows", "array", items=build.integer("row", min=0), required=True),
        ],
        events=[
            build.event("reset", permit=expr("principal.id == 'root'"), description="begin again"),
            build.event(
                "paid", payload=[build.boolean("full", default=True), build.string("note", required=False)], dedupe="k"
            ),
            build.event("told", direction="out"),
        ],
        script="x = 1",
        sensitive="address",
        properties={"never": ["second"]},
        renamed={"old": "first"},
        removed={"states": {"gone": "2027-01-31"}, "events": {"lost": "2027-02-01"}},
        retention={"ended": "90d", "entries": "400d", "archive": "file:///var/archive/all"},
        allow={"state.trap": "it is one"},
        id="top",
        tags=["a"],
        meta={"team": None},
        initial=build.initial("first", actions="greet"),
        states=[
            build.state(
                "first",
                build.on(
                    ["paid", "told.*"], "second", guard=build.all_of("rich", build.not_(build.in_state("second")))
                ),
                build.on("a, b", guard=build.any_of(expr("true"), build.guard("of_age", {"years": 18}))),
                build.always("second", guard="done", actions=["a", build.do("b", {"x": expr("1")})]),
                build.on_done("second"),
                build.invoke(
                    expr("context.which"),
                    id="child",
                    id_location="wait",
                    type=expr("context.kind"),
                    input=(1, "= literal"),
                    autoforward=True,
                    finalize=[build.assign({"address.city": "Ulm"}, wait=0)],
                    done=[build.to("second", guard="ok"), build.to(actions="shrug")],
                    key="one",
                    restore="fail",
                    retry=build.retry(2, on=["timeout"]),
                ),
                build.invoke(child),
                id="one",
                description="the first",
                context=[build.field("own", default=None)],
                entry=build.blocks(["a", build.script("y = 2")], build.assign_from("count", [1])),
                exit=[
                    build.raise_("gone"),
                    build.raise_(expr("event.name"), {"x": 1}),
                    build.send(
                        "later", {"n": 1}, to="parent", delay=expr("'5s'"), id="s", id_location="wait", type="scxml"
                    ),
                    build.cancel(expr("context.wait")),
                    build.emit(expr("'t'"), data=None),
                    build.log(expr("1"), label="n"),
                    build.if_("p", "q", elif_=[(expr("r"), ["s", "t"])], else_="u"),
                    build.foreach(expr("context.rows"), "v", item="wait", index="ratio"),
                    build.foreach([1, 2], ["w"], item="wait"),
                ],
                sensitive=build.sensitive("busy", fields=["wait"], roles="admin"),
                monotonic=True,
                initial=["inner"],
                states=[build.state("inner"), build.history("back", "inner", actions="look", allow={"a": "b"})],
            ),
            build.parallel(
                "second",
                description="both",
                sensitive=build.sensitive(),
                states=[build.state("left", monotonic=["x"], states=[build.final("x")]), build.state("right")],
            ),
            build.final(
                "end", build.on("ping"), entry="bye", exit="gone", output=expr("context.wait"), expect="forever"
            ),
        ],
    )


EVERY_WORD = """
interlock: 1
kind: all
revision: "2"
compatible: ">=1"
upgrade: safe
description: everything
unhandled: defer
errors: raise
binding: late
id: top
tags: [a]
meta: {team: null}
context:
  wait: {default: "= 1 + 1", description: any}
  ratio: {type: number, min: 0.5, max: 9, default: 1, enum: [1, 2.5]}
  tags: {type: array, items: string, length_max: 9, default: []}
  address:
    {type: object, nullable: true,
     fields: {city: {type: string, required: true}, street: {type: string, length_max: 80}}}
  rows: {type: array, items: {type: integer, min: 0}, required: true}
events:
  reset: {permit: "= principal.id == 'root'", description: begin again}
  paid: {payload: {full: {type: boolean, default: true}, note: {type: string, required: false}}, dedupe: k}
  told: {direction: out}
script: x = 1
sensitive: [address]
properties: {never: [second]}
renamed: {old: first}
removed: {states: {gone: 2027-01-31}, events: {lost: 2027-02-01}}
retention: {ended: 90d, entries: 400d, archive: "file:///var/archive/all"}
allow: {state.trap: it is one}
on: {reset: {target: first, roles: [admin]}}
after: {"= context.wait": {target: first, onRestore: remaining}}
transitions:
  - {event: late, target: first, description: after all others, meta: {n: [1, 2.5]}}
  - {target: second, guard: tired}
initial: {target: first, actions: [greet]}
states:
  first:
    id: one
    description: the first
    context: {own: {default: null}}
    on:
      paid, told.*: {target: second, guard: {all: [rich, {not: {in: second}}]}}
      a, b: {guard: {any: ["= true", {name: of_age, with: {years: 18}}]}}
    always: {target: second, guard: done, actions: [a, {do: b, with: {x: "= 1"}}]}
    onDone: second
    invoke:
      - id: child
        idLocation: wait
        src: "= context.which"
        type: "= context.kind"
        input: [1, "\\\\= literal"]
        autoforward: true
        finalize: [{assign: {address.city: Ulm, wait: 0}}]
        onDone: [{target: second, guard: ok}, {actions: [shrug]}]
        key: one
        onRestore: fail
        retry: {max: 2, on: [timeout]}
      - src: {kind: all.child, states: {over: {type: final}}}
    entry: [[a, {script: y = 2}], [{assign: count, with: [1]}]]
    exit:
      - {raise: gone}
      - {raise: {event: "= event.name", data: {x: 1}}}
      - {send: {event: later, data: {n: 1}, to: parent, delay: "= '5s'", id: s, idLocation: wait, type: scxml}}
      - {cancel: "= context.wait"}
      - {emit: {type: "= 't'"}}
      - {log: {label: n, value: "= 1"}}
      - {if: p, then: [q], elif: [{if: "= r", then: [s, t]}], else: [u]}
      - {foreach: {in: "= context.rows", item: wait, index: ratio, do: [v]}}
      - {foreach: {in: [1, 2], item: wait, do: [w]}}
    sensitive: {fields: [wait], as: busy, roles: [admin]}
    monotonic: true
    initial: [inner]
    states:
      inner: {}
      back: {type: history, target: inner, actions: [look], allow: {a: b}}
  second:
    type: parallel
    description: both
    sensitive: true
    states: {left: {monotonic: [x], states: {x: {type: final}}}, right: {}}
  end: {type: final, on: {ping: {}}, entry: [bye], exit: [gone], output: "= context.wait", expect: {within: forever}}
"""
