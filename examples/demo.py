"""One chart, three lives: load the order, live it on a clock that we move, print what happened, draw it.

Run it with `make demo`, or `python examples/demo.py`. Nothing is installed, stored or sent: a step only describes its
effects, and here a few lines of Python stand in for the payment service.
"""

from __future__ import annotations

from pathlib import Path

import interlock
from interlock.render.mermaid import mermaid
from interlock.testing.simulate import Record, Simulation

HERE = Path(__file__).parent
HOUR = 3_600_000

order = interlock.load(HERE / "order.interlock.yaml")
refunds = iter(["the bank is closed", None])  # the first refund fails, the second succeeds


@order.handler("send_receipt")
def send_receipt(effect: interlock.Effect) -> None:
    """Stands for an e-mail; `effect.key` is what a real one would be deduplicated by."""


@order.handler("payment.refund")
def refund(effect: interlock.Effect) -> dict[str, str]:
    """Stands for the payment service: fails once, then pays back."""
    problem = next(refunds)
    if problem:
        raise RuntimeError(problem)
    return {"refunded": effect.input["payment"]}


def main() -> None:
    """Live the three lives, then tell them."""
    world = Simulation(order)

    for name in ("order/A-1", "order/A-2", "order/A-3"):
        world.create(name, {"amount": 4990})
    for name in ("order/A-1", "order/A-2"):
        world.send(name, "payment.confirmed", {"id": f"pay-{name[-1]}"})
    world.settle()
    world.send("order/A-1", "parcel.shipped")  # the life everybody wants
    world.send("order/A-2", "order.cancelled")  # paid, then cancelled: money must go back
    world.settle()
    world.send("order/A-2", "payment.confirmed", {"id": "again"})  # too late: rejected, and nothing changes
    world.send("order/A-2", "refund.retried")
    world.advance(49 * HOUR)  # nobody ever pays A-3: its own timer ends it

    for entity in world.snapshots:
        print(f"\n{entity}")
        for record in world.trace:
            if record.entity == entity:
                print(told(record))

    print(f"\nThe same chart as a picture (Mermaid; {order!r}):\n")
    print(mermaid(order.chart))
    print(f"{len(world.trace)} steps, {len(world.snapshots)} entities. Now play it yourself:")
    print("  .venv/bin/interlock simulate examples/order.interlock.yaml --context '{\"amount\": 4990}'")


def told(record: Record) -> str:
    """One step as a line: when, which event, how it was taken, where it led, and what it asks the world to do."""
    step = record.step
    event = record.event.name if record.event else "created"
    taken = step.outcome if step.reason is None else f"{step.outcome} ({step.reason})"
    effects = ", ".join(f"{each.type} {each.name}" if each.name else each.type for each in step.effects)
    where = ", ".join(step.snapshot.configuration)
    hours = record.time_ms / HOUR
    return f"  {hours:4.0f}h  {event:<24} {taken:<26} v{step.snapshot.version}  {where:<16} {effects}".rstrip()


if __name__ == "__main__":
    main()
