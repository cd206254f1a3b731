"""The work of a file store on a simulated file system, as a table to compare with others."""

from __future__ import annotations

from msgspec.structs import replace

from interlock.model.journal.work import Lane, WorkDelta, WorkId
from interlock.ports.store import Appended
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import Settings
from tests.crash.life import opened, step
from tests.crash.simulated.file_system import Simulated, World


class FilesTable:
    """One process that appends and claims. Journals rotate and snapshots are written often, so that both are tested.

    `restart` ends the process between any two calls, without a close: its knowledge must be in the journals. Claims are
    not stored; their work is pending again.
    """

    SETTINGS = Settings(snapshot_every=3, segment_bytes_max=900)

    def __init__(self) -> None:
        self.world = World()
        self._versions: dict[str, int] = {}
        self.fs = Simulated(self.world, process=0)
        self.restart()

    def restart(self) -> None:
        """End the process, and continue with another."""
        self.fs.die()
        self.fs = Simulated(self.world, process=self.fs.process + 1)
        self.journals: BlockingFileStore = opened(self.fs, self.SETTINGS)
        self.dispatch = self.journals.dispatcher()
        self.dispatch.claim("timer", None, owner="", now_ms=-1, until_ms=0, limit=0)

    def apply(self, entity: str, left: WorkDelta) -> None:
        """What an entry leaves: the append of a step."""
        version = self._versions[entity] = self._versions.get(entity, 0) + 1
        answer = self.journals.append(replace(step(version, f"k{version}", entity=entity), work=left))

        assert isinstance(answer, Appended), answer

    def fence(self, entity: str, work_id: WorkId) -> int | None:
        """The newest attempt."""
        page = self.dispatch.list_work(WorkQuery(entity=entity, id=work_id))
        return page.rows[0].attempts if page.rows else None

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work."""
        return self.dispatch.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Extend leases."""
        return self.dispatch.renew(claims, until_ms=until_ms)

    def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Release claims."""
        return self.dispatch.settle(settled, now_ms=now_ms)

    def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next is due."""
        return self.dispatch.next_due_ms(lane, names)

    def list_work(self, query: WorkQuery) -> WorkPage:
        """List."""
        return self.dispatch.list_work(query)

    def requeue_dead_letter(self, entity: str, work_id: WorkId, *, now_ms: int) -> bool:
        """Try dead work again."""
        return self.dispatch.requeue_dead_letter(entity, work_id, now_ms=now_ms)

    def delete_work(self, entity: str, work_id: WorkId) -> bool:
        """Forget."""
        return self.dispatch.delete_work(entity, work_id)
