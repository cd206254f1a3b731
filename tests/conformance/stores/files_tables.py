"""Work in journals, as a table to hold against others: a whole file store on a simulated file system."""

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
    """One process that appends and performs. Journals rotate and snapshots are kept, so that both are passed often.

    `restart` ends the process between any two calls, without a word: what it knew must be in the journals. What is in
    hand is not, and goes back.
    """

    SETTINGS = Settings(snapshot_every=3, segment_bytes_max=900)

    def __init__(self) -> None:
        self.world = World()
        self._versions: dict[str, int] = {}
        self.fs = Simulated(self.world, process=0)
        self.restart()

    def restart(self) -> None:
        """The process dies, and another takes over."""
        self.fs.die()
        self.fs = Simulated(self.world, process=self.fs.process + 1)
        self.journals: BlockingFileStore = opened(self.fs, self.SETTINGS)
        self.dispatch = self.journals.dispatcher()
        self.dispatch.claim("timer", None, owner="", now_ms=-1, until_ms=0, limit=0)

    def keep(self, entity: str, left: WorkDelta) -> None:
        """What an entry leaves: the append of a step."""
        version = self._versions[entity] = self._versions.get(entity, 0) + 1
        answer = self.journals.append(replace(step(version, f"k{version}", entity=entity), left=left))

        assert isinstance(answer, Appended), answer

    def fence(self, entity: str, place: WorkId) -> int | None:
        """The newest attempt."""
        page = self.dispatch.works(WorkQuery(entity=entity, place=place))
        return page.rows[0].attempts if page.rows else None

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Take up."""
        return self.dispatch.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Hold."""
        return self.dispatch.renew(claims, until_ms=until_ms)

    def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Let go."""
        return self.dispatch.settle(settled, now_ms=now_ms)

    def soonest(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next is due."""
        return self.dispatch.soonest(lane, names)

    def works(self, query: WorkQuery) -> WorkPage:
        """List."""
        return self.dispatch.works(query)

    def revive(self, entity: str, place: WorkId, *, now_ms: int) -> bool:
        """Try dead work again."""
        return self.dispatch.revive(entity, place, now_ms=now_ms)

    def drop(self, entity: str, place: WorkId) -> bool:
        """Forget."""
        return self.dispatch.drop(entity, place)
