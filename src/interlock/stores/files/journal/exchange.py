"""Records of one entity that come from elsewhere and go there: adopted, or released.

Rule 1: adopted records are put in place as a whole segment, in one step: all of them are here, or none.
Rule 2: records are released by the base of a new segment that says so; only then files are removed. The snapshot beside
the journal must be of the last version by then: from there on it is no cache any more, and neither are its keys.
"""

from __future__ import annotations

from interlock.errors import UnavailableError
from interlock.model.journal.record import JournalRecord
from interlock.ports.store import Append
from interlock.stores.files.journal.durable_io import unavailable
from interlock.stores.files.journal.rotation import following, released, verified
from interlock.stores.files.journal.work import WorkJournal


class ExchangeJournal(WorkJournal):
    """The handle of one entity, with what is done to journals as a whole."""

    def adopt(self, append: Append, records: tuple[JournalRecord, ...]) -> int:
        """Takes over records that follow those here; the version reached. Those here already are passed over."""
        with self._mutex:
            self._shared.check_poison(self.address)
            self._find_directory(create=True)
            with self._locked():
                self._catch_up()
                self._confirm()
                new = tuple(each for each in records if each.version > self.mark.version)
                if new:
                    body = verified(self._chain, self.mark, new)
                    self._repair()
                    self._rotate(following(self._base, self.mark, durable=len(body)), body)
                if self.mark.version == append.snapshot.version > self._kept_version:
                    self.facts = self._shared.shapes.after_append(self.facts, append)
                    self.snapshot = append.snapshot
                    self._keep_surely()
                return self.mark.version

    def release(self, version: int, archive: str) -> bool:
        """Lets the records go, if the entity has ended and is at this version. They went when this returns."""
        with self._mutex:
            self._shared.check_poison(self.address)
            if not self._find_directory(create=False):
                return False
            with self._locked():
                self._catch_up()
                if self.mark.version != version or self._ended() is None:
                    return False
                if self._base.since <= version:
                    self._repair()
                    self._rotate(released(self._base, self.mark, archive))
                self._sweep()
                self._sync_names()
                return True

    def _keep_surely(self) -> None:
        """The same where records depend on it: those that came, and those that go."""
        try:
            self._replace_state(is_sure=True)
        except OSError as error:
            raise unavailable(self.address.entity, "snapshot", error) from error
        self._kept_version = self.mark.version

    def _ended(self) -> str | None:
        """How the entity ended, by the snapshot beside the journal: of its last version, with all its work."""
        kept = self._read_kept()
        if kept is not None and kept.mark.version == self.mark.version:
            if kept.mark == self.mark:
                return kept.snapshot.ended
            self.snapshot = kept.snapshot
        if self.snapshot is None:
            message = f"no snapshot of `{self.address.entity}` at version {self.mark.version} is kept"
            raise UnavailableError(message, code="store.snapshot", hint="adopt its records here once more, then retry")
        self._confirm()
        self._keep_surely()
        return self.snapshot.ended
