"""A subscription that collects facts: three services confirm, in any order, perhaps twice, perhaps never.

Run it with `python examples/subscription/subscription.py`: one subscription gets its confirmations in order, one in
reverse and twice, one never gets its account and is verified by a person, and the last gets the missing confirmation
while a person verifies.

Each confirmation carries the number that its service gave it, and the chart accepts a number once (`dedupe`). So
services may repeat themselves.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Protocol

import interlock

CHART = Path(__file__).with_name("subscription.interlock.yaml")
SERVICES = {"payment": "payments", "account": "identity", "entitlement": "billing"}
PERSON = {"id": "joan", "roles": ["support"]}


class Desk(Protocol):
    """Sends requests: to a service by its name, or to a person."""

    async def ask(self, whom: str, entity: str, key: str) -> None:
        """Request a confirmation, which arrives later as an event; a repeated key is sent once."""


def subscriptions(desk: Desk, definition: Path = CHART) -> interlock.BoundChart:
    """The chart with its handlers."""
    chart = interlock.load(definition)

    @chart.handler("payment.request")
    async def request_payment(attempt: interlock.Attempt) -> None:
        await desk.ask("payment", attempt.entity, attempt.key)

    @chart.handler("account.request")
    async def request_account(attempt: interlock.Attempt) -> None:
        await desk.ask("account", attempt.entity, attempt.key)

    @chart.handler("entitlement.request")
    async def request_entitlement(attempt: interlock.Attempt) -> None:
        await desk.ask("entitlement", attempt.entity, attempt.key)

    @chart.handler("person.notify")
    async def notify_person(attempt: interlock.Attempt) -> None:
        await desk.ask("person", attempt.entity, attempt.key)

    return chart


class Tray:
    """Simulated inboxes of the services."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[str, str]] = {}

    async def ask(self, whom: str, entity: str, key: str) -> None:
        """As `Desk.ask`."""
        self.asked[key] = (whom, entity)


def confirm(runtime: interlock.BlockingRuntime, entity: str, service: str) -> str:
    """Send a service's confirmation; returns the outcome."""
    number, principal = f"{service}-{entity}", {"id": service, "roles": [SERVICES[service]]}
    return runtime.send(entity, f"{service}.confirmed", {"number": number}, principal=principal).outcome


def wait_for(runtime: interlock.BlockingRuntime, entity: str, state: str) -> None:
    """Wait until a subscription is in a state."""
    for entry in runtime.watch(entity):
        if state in entry.after:
            return


def main() -> None:
    """Four subscriptions, on a database in a temporary folder. Timeouts are short here: a second instead of days."""
    with (
        tempfile.TemporaryDirectory() as folder,
        interlock.connect(f"sqlite:///{folder}/subscriptions.db", charts=[subscriptions(Tray())], work=True) as runtime,
    ):
        for number in range(1, 5):
            runtime.create(f"subscription/{number}", {"customer": "ada", "patience": "1s"}, key="created")

        print("1, in order:", *(confirm(runtime, "subscription/1", each) for each in SERVICES))
        print("2, in reverse:", *(confirm(runtime, "subscription/2", each) for each in reversed(SERVICES)))
        print("2, again:", *(confirm(runtime, "subscription/2", each) for each in SERVICES))

        for number in (3, 4):
            confirm(runtime, f"subscription/{number}", "payment")
            confirm(runtime, f"subscription/{number}", "entitlement")
            wait_for(runtime, f"subscription/{number}", "incomplete.verification_pending")
        print("3, 4: no account in time, a person checks")
        print(
            "3, a person:",
            runtime.send("subscription/3", "verification.passed", {"by": "joan"}, principal=PERSON).outcome,
        )
        print("4, later:", confirm(runtime, "subscription/4", "account"))

        print(
            "all:",
            *(state for number in range(1, 5) for state in runtime.state(f"subscription/{number}").configuration),
        )


if __name__ == "__main__":
    main()
