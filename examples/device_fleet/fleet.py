"""A fleet of devices with a reconciler that compares wanted and actual firmware.

Run it with `python examples/device_fleet/fleet.py`: four devices get new firmware. One of them is offline at first, and
one is changed from outside afterwards. No event reports this: the reconciler finds the difference and sends an event to
the device.

Wanted and actual state are separate. `firmware.wanted` only changes the wanted value. A new target, a replaced device
and a lost update all look the same to the reconciler: two values that differ.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Protocol

import interlock

CHART = Path(__file__).with_name("device.interlock.yaml")
OPERATOR = {"id": "mae", "roles": ["operator"]}


class Devices(Protocol):
    """The devices in the field."""

    async def observe(self, device: str) -> str:
        """The firmware that a device runs. Raises UnavailableError if it does not answer."""

    async def install(self, device: str, firmware: str, key: str) -> None:
        """Install firmware; does nothing for a repeated key or if it is already installed."""


def fleet(devices: Devices, *, every: str = "1m", definition: Path = CHART) -> interlock.BoundChart:
    """The chart with its handler and its reconciler."""
    device = interlock.load(definition)

    @device.handler("firmware.install")
    async def install(attempt: interlock.Attempt) -> None:
        await devices.install(attempt.entity, attempt.input["firmware"], attempt.key)

    @device.reconciler("firmware", state="steady", every=every, desired="firmware", drift="firmware.drifted")
    async def observe(seen: interlock.ReconcileRequest) -> str:
        return await devices.observe(seen.entity)

    return device


class Field:
    """Simulated devices: what they run, and which of them do not answer an update."""

    def __init__(self, firmware: dict[str, str]) -> None:
        self.firmware = firmware
        self.offline: set[str] = set()
        self.installs = 0

    async def observe(self, device: str) -> str:
        """As `Devices.observe`."""
        return self.firmware[device]

    async def install(self, device: str, firmware: str, key: str) -> None:
        """As `Devices.install`. An offline device refuses once, and is online afterwards."""
        if device in self.offline:
            self.offline.remove(device)
            raise interlock.RejectedError(f"{device} is offline: `{key}` is not installed", code="device.offline")
        self.firmware[device] = firmware
        self.installs += 1


def wait_until_updated(runtime: interlock.BlockingRuntime, device: str, *, after: int) -> list[str]:
    """The states of a device after a version, until it has been updated."""
    states: list[str] = []
    for entry in runtime.watch(device, after=after):
        states += entry.after
        if entry.event.name == "done.invoke.update":
            return states
    return states


def main() -> None:
    """Four devices, on a database in a temporary folder. The reconciler runs ten times a second here."""
    field = Field({f"device/{number}": "1.0" for number in range(1, 5)})
    with (
        tempfile.TemporaryDirectory() as folder,
        interlock.connect(f"sqlite:///{folder}/fleet.db", charts=[fleet(field, every="100ms")], work=True) as runtime,
    ):
        for device in field.firmware:
            runtime.create(device, {"firmware": "1.0", "pause": "200ms"}, key="created")
        field.offline.add("device/2")

        print("2.0 is wanted; one device is offline")
        for device in field.firmware:
            receipt = runtime.send(device, "firmware.wanted", {"firmware": "2.0"}, principal=OPERATOR)
            print(f"  {device}: {' > '.join(wait_until_updated(runtime, device, after=receipt.version))}")

        print("device/3 is downgraded to 0.9 by hand")
        version = runtime.state("device/3").version
        field.firmware["device/3"] = "0.9"
        print(f"  device/3: {' > '.join(wait_until_updated(runtime, 'device/3', after=version))}")
    print(f"all run {', '.join(set(field.firmware.values()))} after {field.installs} installations")


if __name__ == "__main__":
    main()
