"""An order on a database, from the charge to the parcel, with services that fail in many ways.

Run it with `python examples/order/order.py`: six orders, each with another failure, and each card is charged at most
once. `order.interlock.yaml` defines the lifecycle; the handlers are here.

The rule for every handler: pass `attempt.key` to the service. A handler may run twice, if a process dies or a response
is lost; with the key, the service returns the result of the first call.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Protocol

import interlock

CHART = Path(__file__).with_name("order.interlock.yaml")
ENDS = {"shipped", "refunded", "charge_declined", "expired", "cancelled"}
CUSTOMER = {"id": "ada", "roles": ["customer"]}


class Services(Protocol):
    """What the handlers need from bank, warehouse and carrier. Each service accepts a key once."""

    async def do(self, operation: str, key: str, entity: str) -> str:
        """Perform an operation once per key and return its number. Raises RejectedError if it is refused."""

    async def undo(self, name: str) -> None:
        """Undo the operation with this key or number. An unknown key can no longer be used."""

    async def find(self, key: str) -> str | None:
        """Return the number of the operation with this key. None: not performed; the key can no longer be used."""


def shop(services: Services, definition: Path = CHART, *, older: str = "5m", every: str = "1m") -> interlock.BoundChart:
    """The chart with its handlers, and a reconciler for orders with an unresolved charge."""
    order = interlock.load(definition)

    @order.handler("payment.charge")
    async def charge(attempt: interlock.Attempt) -> dict[str, str]:
        return {"charge": await services.do("charge", attempt.key, attempt.entity)}

    @order.handler("payment.lookup")
    async def look_up(attempt: interlock.Attempt) -> dict[str, str | None]:
        return {"charge": await services.find(attempt.input["charge"])}

    @order.reconciler("unresolved-charges", state="charge_unresolved", older=older, every=every)
    async def look_again(request: interlock.ReconcileRequest) -> interlock.ReconcileResult:
        return interlock.ReconcileResult("charge.resolved", {"charge": await services.find(f"{request.entity}/charge")})

    @order.handler("payment.refund")
    async def refund(attempt: interlock.Attempt) -> None:
        await services.undo(attempt.input["charge"])

    @order.handler("stock.reserve")
    async def reserve(attempt: interlock.Attempt) -> str:
        return await services.do("reservation", attempt.key, attempt.entity)

    @order.handler("stock.release")
    async def release(attempt: interlock.Attempt) -> None:
        await services.undo(attempt.input["compensates"])

    @order.handler("carrier.book")
    async def book(attempt: interlock.Attempt) -> str:
        return await services.do("parcel", attempt.key, attempt.entity)

    @order.handler("carrier.cancel")
    async def cancel(attempt: interlock.Attempt) -> None:
        await services.undo(attempt.input["compensates"])

    return order


class Town:
    """Simulated services, in memory, with the given failures."""

    def __init__(self, failures: dict[tuple[str, str], str]) -> None:
        self.failures = failures
        self.done: dict[str, str] = {}
        self.closed: set[str] = set()

    async def do(self, operation: str, key: str, entity: str) -> str:
        """As `Services.do`, with the failure of this entity and operation, if any."""
        failure = self.failures.pop((entity, operation), None)
        if failure == "refused" or key in self.closed:
            raise interlock.RejectedError(f"no {operation} for {entity}", code=f"{operation}.refused")
        if failure == "no call":
            await asyncio.sleep(3_600)
        number = self.done.setdefault(key, f"{operation}-{len(self.done) + 1}")
        if failure == "no response":
            await asyncio.sleep(3_600)
        if failure == "lost response":
            raise interlock.UnavailableError("the bank is unreachable", code="bank.unreachable")
        return number

    async def undo(self, name: str) -> None:
        """As `Services.undo`."""
        self.closed |= {key for key, number in self.done.items() if name in (key, number)} or {name}

    async def find(self, key: str) -> str | None:
        """As `Services.find`."""
        if key not in self.done:
            self.closed.add(key)
        return self.done.get(key)

    def held(self, operation: str) -> list[str]:
        """Return operations that were performed and not undone."""
        return [number for key, number in self.done.items() if number.startswith(operation) and key not in self.closed]


FAILURES = {
    "order/1": ("no failure", "", ""),
    "order/2": ("the card is refused", "charge", "refused"),
    "order/3": ("charged, but the bank does not respond", "charge", "no response"),
    "order/4": ("not charged, but the bank does not respond", "charge", "no call"),
    "order/5": ("charged, but the response is lost", "charge", "lost response"),
    "order/6": ("charged and reserved, but no carrier", "parcel", "refused"),
}


def app() -> interlock.BoundChart:
    """For `interlock run examples.order.order:app`: a worker whose services do not fail."""
    return shop(Town({}))


def main() -> None:
    """Six orders, on a database in a temporary folder."""
    town = Town({(entity, operation): failure for entity, (_, operation, failure) in FAILURES.items()})
    with (
        tempfile.TemporaryDirectory() as folder,
        interlock.connect(f"sqlite:///{folder}/orders.db", charts=[shop(town)], work=True) as orders,
    ):
        for entity in FAILURES:
            orders.create(entity, {"amount": 4_990, "item": "lamp"}, key="created")
            orders.send(entity, "order.placed", key="placed", principal=CUSTOMER)
        for entity, (story, *_) in FAILURES.items():
            print(f"{entity}: {story}")
            print(f"  {' > '.join(visited_states(orders, entity))}")
    print(f"cards charged: {len(town.held('charge'))}, parcels on their way: {len(town.held('parcel'))}")


def visited_states(orders: interlock.BlockingRuntime, entity: str) -> list[str]:
    """The states of an order, up to its end."""
    states: list[str] = []
    for entry in orders.watch(entity):
        states += [each for each in entry.after if each not in states]
        if ENDS.intersection(entry.after):
            break
    return states


if __name__ == "__main__":
    main()
