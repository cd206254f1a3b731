"""What a handle does at once: nothing is waited for but one flush, and nothing is opened.

Rule 1: where there is more to do, the answer is None and nothing was done: a thread does it all.
Rule 2: what a handle knows is told only if the journal still ends with it, and all of it is durable.
Rule 3: the caller may be the main thread, where Ctrl-C is raised between any two instructions.
"""

from __future__ import annotations

import contextlib

from interlock.errors import InterlockError
from interlock.ports.store import Append, AppendResult, Duplicate, Loaded
from interlock.stores.files.journal.durable_io import LOCKED
from interlock.stores.files.journal.journal import NOTHING, Journal


class PromptJournal(Journal):
    """The handle of one entity, with what it does in the thread of an event loop."""

    def append_at_once(self, append: Append) -> AppendResult | None:
        """`append`, where nothing is waited for but one flush. None where there is more to do: then nothing was done.

        Another thread that takes the mutex in the moment between is waited for, for as long as it has it. This may be
        the main thread, where Ctrl-C is raised between any two instructions: then the handle, which may have advanced
        by half a step, is closed, and its lock goes with it.
        """
        if self._mutex.locked():
            return None
        with self._mutex:
            self._shared.check_poison(self.address)
            if self._file < 0:
                return None
            try:
                with self._locked(ms_max=0):
                    if not self._is_short(append):
                        return None
                    return self._refused(append) or self._written(append)
            except InterlockError as error:
                if error.code != LOCKED:
                    raise
                return None
            except BaseException:
                self._drop()
                raise

    def known(self, key: str | None) -> Loaded | Duplicate | None:
        """The entity as this handle has it, if that is how it is now; `Duplicate` for a key that was kept.

        None where it is not known, or a thread is at work here: whoever asks reads it from the disk.
        """
        if self._mutex.locked():
            return None
        with self._mutex, contextlib.suppress(OSError):
            snapshot, facts = self.snapshot, self.facts
            if self._file < 0 or snapshot is None or facts is None or self._shared.is_poisoned(self.address):
                return None
            if snapshot.version == self.mark.version and self.durable >= self._records_end and self._is_at_end():
                version = None if key is None else self._keys.get(key)
                if version is not None:
                    self._check_name()
                return Loaded(snapshot.version, facts.changed_ms, snapshot) if version is None else Duplicate(version)
        return None

    def _is_short(self, append: Append) -> bool:
        """Whether a write and its flush is all: nothing to read, to repair, to announce, and no snapshot due.

        Nor a hint for another process, which may have to wait for its turn. A first entry has names to look at.
        """
        if not self._is_at_end() or self._is_full() or self.mark.version == 0:
            return False
        if append.left != NOTHING and self._shared.note is None:
            return False
        if append.left.born and not self._has_marker():
            return False
        return not self._snapshot_due(append.expected, append.snapshot)
