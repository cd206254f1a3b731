"""A fleet of devices that is kept as it should be: a reconciler compares what is wanted with what is.

Run it with `python examples/device_fleet/fleet.py`: four devices get new firmware; one of them is offline at first, and
one is changed behind our back afterwards. Nobody reports any of this: the reconciler looks, finds the difference, and
tells the device, which goes the one way it has.

Wishes and reality are kept apart. `firmware.wanted` only changes the wish. Whether a wish is new, a device was swapped
or an update got lost, the reconciler sees the same thing: two values that differ.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Protocol

import interlock

CHART = Path(__file__).with_name("device.interlock.yaml")
OPERATOR = {"id": "mae", "roles": ["operator"]}


class Devices(Protocol):
    """What is out there."""

    async def observe(self, device: str) -> str:
        """The firmware that a device runs. Raises UnavailableError when it does not answer."""

    async def install(self, device: str, firmware: str, key: str) -> None:
        """Install firmware; a repeated key, or what is there already, is nothing to do."""


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
    """Stands for the devices: what they run, and which of them do not answer an update."""

    def __init__(self, firmware: dict[str, str]) -> None:
        self.firmware = firmware
        self.offline: set[str] = set()
        self.installs = 0

    async def observe(self, device: str) -> str:
        """As `Devices.observe`."""
        return self.firmware[device]

    async def install(self, device: str, firmware: str, key: str) -> None:
        """As `Devices.install`. One that is offline refuses once, and is back afterwards."""
        if device in self.offline:
            self.offline.remove(device)
            raise interlock.RejectedError(f"{device} is offline: `{key}` is not installed", code="device.offline")
        self.firmware[device] = firmware
        self.installs += 1


def wait_until_updated(runtime: interlock.BlockingRuntime, device: str, *, after: int) -> list[str]:
    """Where a device goes after a version, until it has been updated."""
    states: list[str] = []
    for entry in runtime.watch(device, after=after):
        states += entry.after
        if entry.event.name == "done.invoke.update":
            return states
    return states


def main() -> None:
    """Four devices, on a database in a temporary folder. The reconciler looks ten times a second here."""
    field = Field({f"device/{number}": "1.0" for number in range(1, 5)})
    with (
        tempfile.TemporaryDirectory() as folder,
        interlock.open(f"sqlite:///{folder}/fleet.db", charts=[fleet(field, every="100ms")]) as runtime,
    ):
        for device in field.firmware:
            runtime.create(device, {"firmware": "1.0", "pause": "200ms"}, key="created")
        field.offline.add("device/2")

        print("2.0 is wanted; one device is offline")
        for device in field.firmware:
            wished = runtime.send(device, "firmware.wanted", {"firmware": "2.0"}, principal=OPERATOR)
            print(f"  {device}: {' > '.join(wait_until_updated(runtime, device, after=wished.version))}")

        print("somebody puts 0.9 on device/3")
        version = runtime.state("device/3").version
        field.firmware["device/3"] = "0.9"
        print(f"  device/3: {' > '.join(wait_until_updated(runtime, 'device/3', after=version))}")
    print(f"all run {', '.join(set(field.firmware.values()))} after {field.installs} installations")


if __name__ == "__main__":
    main()
