"""Lives of entities with handlers, timers, children and messages, to be run on memory and on Temporal, and compared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import interlock
from interlock.assemble.charts import BoundChart
from interlock.errors import NotFoundError, RejectedError
from interlock.model.encoding.codec import to_builtins
from interlock.runtime.runtime import Runtime
from tests.support.eventually import eventually

SHOP = """
interlock: 1
kind: shop
context: {tries: {type: integer, default: 0}, note: {type: string, nullable: true}, given: {type: any, nullable: true}}
states:
  open:
    on:
      charge: charging
      wait: waiting
      tell: {actions: [{send: {to: "= event.data.to", event: poke, data: {from: "= entity.id"}}}]}
      poke: {actions: [{assign: {given: "= event.data"}}]}
      survey: surveyed
      close: closed
      leave: leaving
      unsent: {actions: [{send: {to: shop/nowhere, event: poke}}]}
      error.communication: {actions: [{assign: {note: lost}}]}
      notify: {actions: [notify]}
  charging:
    invoke:
      {id: charge, src: charge, input: {n: "= context.tries"}, timeout: 20s, retry: {max: 3, backoff: 10ms..20ms},
       onDone: {target: open, actions: [{assign: {given: "= event.data"}}]},
       onError: {target: open, actions: [{assign: {note: "= event.data.code"}}]}}
  waiting: {after: {300ms: {target: open, actions: [{assign: {note: woken}}]}}, on: {charge: open}}
  leaving: {invoke: {id: slow, src: slow, onDone: open}, on: {close: closed}}
  surveyed:
    invoke:
      id: survey
      type: chart
      src:
        context: {n: {type: integer, default: 0}}
        states:
          asked: {on: {answered: told}, after: {20s: told}}
          told: {type: final, output: "= event.name"}
      autoforward: true
      onDone: {target: open, actions: [{assign: {given: "= event.data"}}]}
      onError: {target: open, actions: [{assign: {note: "= event.data.code"}}]}
    on: {answered: {}}
  closed: {type: final}
"""

TRIP = """
interlock: 1
kind: tour
context: {flight: {type: string, nullable: true}, hotel: {type: string, nullable: true}}
states:
  wanted: {on: {ordered: booking}, expect: {within: forever}}
  booking:
    saga:
      steps:
        - id: flight
          do: {src: flight.book, output: flight}
          timeout: 1m
          compensate: {src: flight.cancel, input: {flight: "= context.flight"}}
        - id: hotel
          do: {src: hotel.book, output: hotel}
          timeout: 1m
          compensate: {src: hotel.cancel, input: {hotel: "= context.hotel"}}
        - {id: car, do: {src: car.rent}, timeout: 1m}
      onDone: booked
      onCompensated: refused
      onError: stuck
  booked: {type: final}
  refused: {type: final}
  stuck: {on: {checked: refused}, expect: {within: 1d}}
"""


class Ledger:
    """An external service: it counts what was performed, by key."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.started = asyncio.Event()
        self.fails = 2

    def performed(self, name: str) -> list[str]:
        """The keys under which something was performed."""
        return [key for each, key in self.calls if each == name]


def charts(ledger: Ledger) -> list[BoundChart[Any]]:
    """The charts of the lives, with handlers that write to a ledger."""
    shop, tour = interlock.loads(SHOP), interlock.loads(TRIP)

    @shop.handler("charge")
    async def charge(effect: interlock.Attempt) -> dict[str, Any]:
        ledger.calls.append(("charge", effect.key))
        if effect.number <= ledger.fails:
            raise TimeoutError("the bank did not answer")
        return {"number": effect.number, "key": effect.key}

    @shop.handler("slow")
    async def slow(effect: interlock.Attempt) -> None:
        ledger.started.set()
        await effect.cancel_requested.wait()

    @shop.handler("notify")
    def notify(effect: interlock.Attempt) -> None:
        ledger.calls.append(("notify", effect.key))

    def book(name: str) -> Callable[[interlock.Attempt], Awaitable[str]]:
        async def perform(effect: interlock.Attempt) -> str:
            ledger.calls.append((name, effect.key))
            if name == "car.rent":
                raise RejectedError("no car is left", code="sold_out")
            return f"{name}-1"

        return perform

    for name in ("flight.book", "flight.cancel", "hotel.book", "hotel.cancel", "car.rent"):
        tour.handler(name)(book(name))
    return [shop, tour]


def entry_facts(entry: Any) -> dict[str, Any]:
    """An entry without times, what follows from them, and attempts: Temporal has those in its own history."""
    found = to_builtins(entry)
    found.pop("digest", None)
    found.pop("attempts", None)
    found["event"].pop("time_ms", None)
    found["event"].pop("clock_ms", None)
    for effect in found.get("effects", ()):
        effect["payload"].pop("due_ms", None)
    return dict(found)


async def journals(runtime: Runtime, *entities: str) -> dict[str, list[dict[str, Any]]]:
    """The entries of entities and of their children, without times."""
    found = {}
    waiting = list(entities)
    while waiting:
        entity = waiting.pop()
        entries = await runtime.journal(entity)
        found[entity] = [entry_facts(each) for each in entries]
    return found


async def in_state(runtime: Runtime, entity: str, state: str, *, version: int = 0) -> None:
    """Wait until an entity is in a state."""

    async def is_there() -> bool:
        try:
            snapshot = await runtime.state(entity)
        except NotFoundError:
            return False
        return state in snapshot.configuration and snapshot.version >= version

    await eventually(is_there, f"{entity} in {state}")
