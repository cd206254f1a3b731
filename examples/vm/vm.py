"""A virtual machine with two child entities that work in parallel; unneeded resources are released.

Run it with `python examples/vm/vm.py`: five machines are requested; one has no route, one has no space for its content,
one does not boot, and one is deleted while it is being created. In the end only resources in use are held.

`vm.interlock.yaml` invokes `network.interlock.yaml` and `storage.interlock.yaml`. Each child is an entity with its own
journal, retries and compensations; its parent only gets the result.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Protocol

import interlock

FOLDER = Path(__file__).parent
SETTLED = {"live", "setup_failed", "gone"}
OWNER = {"id": "grace", "roles": ["owner"]}


class Services(Protocol):
    """What the handlers need from network, disks and hypervisor. Each service accepts a key once."""

    async def do(self, operation: str, key: str, entity: str) -> str:
        """Perform an operation once per key and return its number. Raises RejectedError if it is refused."""

    async def undo(self, name: str) -> None:
        """Undo the operation with this key or number. An unknown key can no longer be used."""


def provider(services: Services, folder: Path = FOLDER) -> list[interlock.BoundChart]:
    """The three charts with their handlers."""
    vm = interlock.load(folder / "vm.interlock.yaml")
    network = interlock.load(folder / "network.interlock.yaml")
    storage = interlock.load(folder / "storage.interlock.yaml")

    @network.handler("net.allocate")
    async def allocate(attempt: interlock.Attempt) -> str:
        return await services.do("address", attempt.key, attempt.input["vm"])

    @network.handler("net.announce")
    async def announce(attempt: interlock.Attempt) -> str:
        return await services.do("route", attempt.key, attempt.input["vm"])

    @network.handler("net.release")  # called by the network, which knows the key, or by the machine
    @vm.handler("net.release")
    async def release(attempt: interlock.Attempt) -> None:
        await services.undo(attempt.input.get("compensates") or attempt.input["address"])

    @storage.handler("disk.create")
    async def create(attempt: interlock.Attempt) -> str:
        return await services.do("volume", attempt.key, attempt.input["vm"])

    @storage.handler("disk.fill")
    async def fill(attempt: interlock.Attempt) -> str:
        return await services.do("content", attempt.key, attempt.input["vm"])

    @storage.handler("disk.remove")
    @vm.handler("disk.remove")
    async def remove(attempt: interlock.Attempt) -> None:
        await services.undo(attempt.input.get("compensates") or attempt.input["volume"])

    @vm.handler("hypervisor.boot")
    async def boot(attempt: interlock.Attempt) -> str:
        return await services.do("power", attempt.key, attempt.entity)

    @vm.handler("hypervisor.destroy")
    async def destroy(attempt: interlock.Attempt) -> None:
        await services.undo(attempt.input.get("compensates") or attempt.input["power"])

    return [vm, network, storage]


class Rack:
    """Simulated services, in memory, with the given shortages."""

    def __init__(self, shortages: dict[str, str]) -> None:
        self.shortages = shortages
        self.done: dict[str, tuple[str, str, str]] = {}
        self.closed: set[str] = set()

    async def do(self, operation: str, key: str, entity: str) -> str:
        """As `Services.do`."""
        if self.shortages.get(entity) == operation or key in self.closed:
            raise interlock.RejectedError(f"no {operation} for {entity}", code=f"{operation}.refused")
        return self.done.setdefault(key, (entity, operation, f"{operation}-{len(self.done) + 1}"))[-1]

    async def undo(self, name: str) -> None:
        """As `Services.undo`. A route ends with its address, a content with its volume."""
        found = [key for key, (*_, number) in self.done.items() if name in (key, number)]
        self.closed |= set(found) or {name}

    def held(self, entity: str) -> list[str]:
        """Return the resources of a machine: operations that were performed and not undone."""
        mine = [(key, operation) for key, (owner, operation, _) in self.done.items() if owner == entity]
        held = {operation for key, operation in mine if key not in self.closed}
        return sorted(held - {"route", "content"})


SHORTAGES = {
    "vm/1": ("nothing is missing", ""),
    "vm/2": ("no route to its address", "route"),
    "vm/3": ("no room for its content", "content"),
    "vm/4": ("it does not boot", "power"),
    "vm/5": ("deleted while it is being created", ""),
}


def app() -> list[interlock.BoundChart]:
    """For `interlock run examples.vm.vm:app`: a worker whose services do not fail."""
    return provider(Rack({}))


def main() -> None:
    """Five machines, on a database in a temporary folder."""
    rack = Rack({entity: operation for entity, (_, operation) in SHORTAGES.items()})
    charts = provider(rack)
    with (
        tempfile.TemporaryDirectory() as folder,
        interlock.connect(f"sqlite:///{folder}/machines.db", charts=charts, work=True) as machines,
    ):
        for entity in SHORTAGES:
            machines.create(entity, {"image": "debian"}, key="created")
            machines.send(entity, "setup.requested", key="wanted", principal=OWNER)
        machines.send("vm/5", "delete.requested", key="unwanted", principal=OWNER)
        for entity, (story, _) in SHORTAGES.items():
            end = next(each for entry in machines.watch(entity) for each in entry.after if each in SETTLED)
            print(f"{entity}: {story}: {end}, holds {', '.join(rack.held(entity)) or 'nothing'}")


if __name__ == "__main__":
    main()
