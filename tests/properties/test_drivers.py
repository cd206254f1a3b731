"""The simulation of the test kit and the runtime give an entity the same events, for the same charts and inputs.

Events, configurations and contexts of every stored step are compared, of children too. The charts cover timers, delayed
sends, calls, invokes with every kind of result, children, sends between entities with and without a receiver, sagas.
Each event is sent at another millisecond, and all delays are multiples of 500 ms, so no two timers are due at the same
time: in which order those fire is not specified.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import interlock
from interlock.assemble.charts import BoundChart
from interlock.effects.handlers import Attempt
from interlock.errors import RejectedError
from interlock.model.encoding.codec import to_builtins
from interlock.testing.clock import VirtualClock
from interlock.testing.simulation import Simulation

HUB = """
interlock: 1
kind: hub
unhandled: ignore
context:
  n: {type: integer, default: 0}
  seen: {type: any}
  mode: {type: string, default: fine}
  first: {type: any}
  second: {type: any}
on:
  fine: {actions: [{assign: {mode: fine}}]}
  refused: {actions: [{assign: {mode: refused}}]}
  broken: {actions: [{assign: {mode: broken}}]}
  malformed: {actions: [{assign: {mode: malformed}}]}
  pong: {actions: [{assign: {n: "= context.n + 1", seen: "= event.data"}}]}
  tick: {actions: [{assign: {n: "= context.n + 10", seen: "= event.data"}}]}
  error.communication: {actions: [{assign: {seen: "= event.data"}}]}
initial: idle
states:
  idle:
    on:
      ping: {actions: [{send: {event: ping, to: peer/1, id: p, data: {n: "= context.n"}}}]}
      lost: {actions: [{send: {event: ping, to: peer/404, id: l}}]}
      denied: {actions: [{send: {event: shut, to: peer/1, id: d}}]}
      allowed: {actions: [{send: {event: open, to: peer/1}}]}
      later: {actions: [{send: {event: tick, delay: 3s, id: t, data: {n: "= context.n"}}}]}
      stop: {actions: [{cancel: t}]}
      remote: {actions: [{send: {event: ping, to: peer/1, delay: 2s, id: r}}]}
      nowhere: {actions: [{send: {event: ping, to: peer/404, delay: 2s, id: w}}]}
      note: {actions: [{do: note, with: {mode: "= context.mode"}}]}
      wait: waiting
      work: working
      stall: stalled
      raise: family
      plan: plan
      gamble: gamble
  waiting: {after: {5s: idle, 1s: {actions: [{assign: {n: "= context.n + 100"}}]}}, on: {back: idle}}
  working:
    invoke:
      id: job
      src: work
      input: {mode: "= context.mode"}
      timeout: 4s
      onDone: {target: idle, actions: [{assign: {seen: "= event.data"}}]}
      onError: {target: idle, actions: [{assign: {seen: "= event.data"}}]}
    on: {back: idle}
  stalled:
    invoke:
      id: job
      src: stall
      timeout: 4s
      onError: {target: idle, actions: [{assign: {seen: "= event.data"}}]}
  family:
    invoke:
      id: kid
      type: chart
      src: kid
      input: {n: "= context.n"}
      autoforward: true
      timeout: 20s
      onDone: {target: idle, actions: [{assign: {seen: "= event.data"}}]}
      onError: {target: idle, actions: [{assign: {seen: "= event.data"}}]}
    on:
      back: idle
      ask: {actions: [{send: {event: ask, to: kid}}]}
  plan:
    saga:
      steps:
        - id: first
          do: {src: work, input: {mode: fine}, output: first}
          compensate: {src: work, input: {mode: fine}}
        - id: second
          do: {src: work, input: {mode: "= context.mode"}, output: second}
          compensate: {src: work, input: {mode: fine}}
          timeout: 4s
        - id: third
          do: {src: work, input: {mode: "= context.mode"}, key: "= entity.id"}
      onDone: {target: idle, actions: [{assign: {seen: completed}}]}
      onCompensated: {target: idle, actions: [{assign: {seen: compensated}}]}
      onError: {target: idle, actions: [{assign: {seen: blocked}}]}
  gamble:
    saga:
      steps:
        - id: stake
          do: {src: work, input: {mode: fine}, output: first}
          compensate: {src: work, input: {mode: "= context.mode"}}
        - id: wait
          do: {src: stall}
          compensate: {src: note, input: {mode: fine}}
          timeout: 4s
      onDone: {target: idle, actions: [{assign: {seen: completed}}]}
      onCompensated: {target: idle, actions: [{assign: {seen: compensated}}]}
      onError: {target: idle, actions: [{assign: {seen: blocked}}]}
    on: {back: idle}
"""

PEER = """
interlock: 1
kind: peer
unhandled: ignore
context: {n: {type: integer, default: 0}}
events:
  ping: {roles: [system]}
  open: {roles: [system], permit: "= principal.id == 'hub/1'"}
  shut: {roles: [operator]}
states:
  here:
    on:
      ping: {actions: [{assign: {n: "= context.n + 1"}}, {send: {event: pong, to: hub/1, data: "= context.n"}}]}
      open: {actions: [{assign: {n: 0}}]}
      shut: gone
  gone: {}
"""

KID = """
interlock: 1
kind: kid
errors: raise
unhandled: ignore
context: {n: {type: integer, required: true}, mode: {type: string, default: fine}}
on:
  refused: {actions: [{assign: {mode: refused}}]}
  broken: {actions: [{assign: {mode: broken}}]}
initial: small
states:
  small:
    on:
      ask: {actions: [{send: {event: pong, to: parent, data: {n: "= context.n"}}}]}
      grow: {actions: [{assign: {n: "= context.n + 1"}}]}
      toil: toiling
      stay: staying
    exit: [{send: {event: pong, to: parent, data: moved}}]
    after: {8s: grown}
  staying: {}
  toiling:
    invoke: {id: job, src: work, input: {mode: "= context.mode"}, onDone: grown}
  grown: {type: final, output: {n: "= context.n"}}
"""

HUB_EVENTS = (
    *("fine", "refused", "broken", "malformed"),
    *("ping", "lost", "denied", "allowed", "later", "stop", "remote", "nowhere", "note", "tick"),
    *("wait", "work", "stall", "raise", "plan", "gamble", "back", "ask", "grow", "toil", "stay"),
)

Input = tuple[str, str] | int
"""An event for an entity, or milliseconds by which the clock advances."""

LAST_MS = 60_000
"""How far the clock advances at the end: longer than every timer and timeout, so that nothing runs any more."""

INPUTS = st.one_of(
    st.sampled_from([("hub/1", each) for each in HUB_EVENTS]),
    st.sampled_from([("peer/1", "ping"), ("peer/1", "shut")]),
    st.sampled_from([500, 1_000, 4_000, 9_000]),
)


def charts() -> list[BoundChart]:
    """The charts with their handlers. What `work` does depends on its input."""
    hub, peer, kid = (interlock.loads(text) for text in (HUB, PEER, KID))
    for chart in (hub, kid):
        chart.handler("work")(work)
    hub.handler("note")(work)
    return [hub, peer, kid]


async def work(attempt: Attempt) -> Any:
    """Succeed or fail immediately."""
    mode = attempt.input["mode"]
    if mode == "refused":
        raise RejectedError("not now", code="work.refused")
    if mode == "broken" and attempt.name == "work":  # after such an error a call is tried again
        raise ConnectionError("gone")
    if mode == "malformed":
        return {1, 2}
    return {"key": attempt.key, "number": attempt.number, "timeout_ms": attempt.timeout_ms}


async def stall(attempt: Attempt) -> None:
    """Give no result until cancelled. In a simulation the same is an effect without a handler."""
    await asyncio.Event().wait()


PRINCIPAL = {"id": "tester", "kind": "user", "roles": ["system", "operator"]}

History = dict[str, list[Any]]
"""By entity: the events of its entries, the states after each, and its last snapshot."""


def simulated(inputs: list[Input]) -> History:
    """The history of a simulation."""
    simulation = Simulation(*charts(), time_ms=1_000_000)
    simulation.create("hub/1")
    simulation.create("peer/1")
    simulation.settle()
    for each in (*inputs, LAST_MS):
        if isinstance(each, int):
            simulation.advance(each)
        else:
            simulation.send(*each, principal=PRINCIPAL)
            simulation.advance(1)
    versions: dict[str, int] = defaultdict(int)
    found: History = defaultdict(list)
    for record in simulation.trace:
        after = record.step.snapshot
        if after.version > versions[record.entity] and record.event is not None:
            found[record.entity].append((to_builtins(record.event), after.configuration))
        versions[record.entity] = after.version
    for entity, snapshot in simulation.snapshots.items():
        found[entity].append(to_builtins(snapshot))
    return dict(found)


async def run(inputs: list[Input]) -> History:
    """The history in a runtime."""
    clock, bound = VirtualClock(time_ms=1_000_000), charts()
    bound[0].handler("stall")(stall)
    async with interlock.open("memory:", charts=bound, clock=clock) as runtime:
        await runtime.create("hub/1")
        await runtime.create("peer/1")
        await clock.advance()
        for each in (*inputs, LAST_MS):
            if isinstance(each, int):
                await clock.advance(each)
            else:
                await runtime.send(*each, principal=PRINCIPAL)
                await clock.advance(1)
        found: History = {}
        for kind in ("hub", "peer", "kid"):
            for row in (await runtime.list(interlock.EntityQuery(kind=kind))).rows:
                entries = await runtime.journal(row.entity)
                found[row.entity] = [(to_builtins(each.event), each.after) for each in entries[1:]]
                found[row.entity].append(to_builtins(await runtime.state(row.entity)))
        return found


def on_hub(*inputs: str | int) -> list[Input]:
    """Events for the hub, and advances of the clock."""
    return [each if isinstance(each, int) else ("hub/1", each) for each in inputs]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(inputs=st.lists(INPUTS, max_size=14))
@example(inputs=on_hub("wait", 9_000, "later", "stop", "later", 4_000, "remote", 4_000, "nowhere", 4_000))
@example(inputs=on_hub("ping", "lost", "denied", "allowed", "note", "refused", "note", "malformed", "note"))
@example(inputs=on_hub("work", "refused", "work", "broken", "work", "malformed", "work", "stall", 9_000))
@example(inputs=on_hub("raise", "ask", "grow", 9_000, "raise", "toil", "raise", "stay", 9_000, 9_000, 9_000))
@example(inputs=on_hub("raise", "back", "raise", "refused", "toil", "raise", "broken", "toil"))
@example(inputs=on_hub("plan", "refused", "plan", "broken", "plan", "malformed", "plan"))
@example(inputs=on_hub("gamble", 9_000, "gamble", "back", 9_000, "gamble", "refused", 9_000))
def test_simulation_and_runtime_give_the_same_events(inputs: list[Input]) -> None:
    assert asyncio.run(run(inputs)) == simulated(inputs)
