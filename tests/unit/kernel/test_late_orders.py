"""Every order in which a saga can be left, ended and answered: each late step is compensated exactly once (S30)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

import interlock
from interlock.model.effect import Effect
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

TRIP = """
interlock: 1
kind: trip
context: {room: {type: string, nullable: true}}
initial: booking
states:
  booking:
    allow: {saga.left_midway: this is what the test is about}
    on: {trip.cancelled: cancelled, trip.forgotten: gone, trip.again: {target: booking, reenter: true}}
    expect: {within: 1h}
    saga:
      steps:
        - {id: room, do: {src: book.room, output: room}, timeout: 1m, compensate: {src: free.room}}
        - {id: taxi, do: {src: book.taxi}, timeout: 1m}
        - {id: flight, do: {src: book.flight}, timeout: 1m, compensate: {src: free.flight}}
      onDone: booked
      onCompensated: refused
      onError: refused
  booked: {expect: {within: forever}, on: {trip.forgotten: gone}}
  refused: {expect: {within: forever}}
  cancelled: {expect: {within: forever}, on: {trip.forgotten: gone}}
  gone: {type: final}
"""

SENT = ("trip.cancelled", "trip.forgotten", "trip.again")
ANSWERS = ("done", "unknown", "no")
DEPTH_MAX = 7


class World(Struct, frozen=True):
    """Where a trip is, what handlers are still busy with, and which events its senders have not sent yet."""

    snapshot: Snapshot
    busy: tuple[Effect, ...]
    unsent: tuple[str, ...]


def _after(world: World, step: Step, *, without: tuple[Effect | str, ...]) -> World:
    started = tuple(each for each in step.effects if each.type == "invoke")
    busy = tuple(each for each in (*world.busy, *started) if each not in without)
    return World(step.snapshot, busy, tuple(each for each in world.unsent if each not in without))


def _result(effect: Effect, answer: str) -> interlock.Event:
    if answer == "done":
        return interlock.done_event(effect, f"of {effect.key}")
    return interlock.failed_event(effect, "x", done="unknown" if answer == "unknown" else "no")


def _moves(trip: interlock.BoundChart, world: World) -> Iterator[tuple[World, Step, Effect | None, str]]:
    for name in world.unsent:
        step = trip.step(world.snapshot, name)
        if step.outcome == "applied":
            yield _after(world, step, without=(name,)), step, None, name
    for effect in world.busy:
        for answer in ANSWERS:
            step = trip.step(world.snapshot, _result(effect, answer))
            yield _after(world, step, without=(effect,)), step, effect, answer


def _check(world: World, step: Step, effect: Effect, answer: str) -> bool:
    """Whether this result was late and had to be made up for; fails when that did not happen, or too much did."""
    calls = [each.name for each in step.effects if each.type == "call"]
    if any(each.key == effect.key for each in world.snapshot.invokes):
        assert [] == calls
        return False
    booked = str(effect.name).startswith("book.") and effect.name != "book.taxi"
    wanted = [str(effect.name).replace("book", "free")] if booked and answer != "no" else []
    assert wanted == calls
    assert world.snapshot == replace(step.snapshot, version=world.snapshot.version)
    return bool(wanted)


def test_every_late_step_is_compensated_once_in_every_order() -> None:
    trip = interlock.loads(TRIP)
    first = trip.start(entity="trip/1")
    started = tuple(each for each in first.effects if each.type == "invoke")
    level, late, after_end = [World(first.snapshot, started, SENT)], 0, 0
    for _ in range(DEPTH_MAX):
        following: dict[bytes, World] = {}
        for world in level:
            for found, step, effect, answer in _moves(trip, world):
                if effect is not None and _check(world, step, effect, answer):
                    late += 1
                    after_end += world.snapshot.ended is not None
                following[interlock.encode((found.snapshot, [each.key for each in found.busy], found.unsent))] = found
        level = list(following.values())

    assert late > 200
    assert after_end > 50
