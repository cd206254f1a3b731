"""Facts about a file store: `<root>/facts.json`, a mapping of names to texts, replaced as a whole.

Rule: writers take the lock of the file's folder in turn; a reader sees the old mapping or the new one.
"""

from __future__ import annotations

import contextlib

import msgspec

from interlock.errors import CorruptionError
from interlock.model.audit import AuditRow
from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.stores.files.audit import FileAudit
from interlock.stores.files.durable_io import DurableIO, replace_file, unavailable
from interlock.stores.files.root import Root

FACTS = "facts.json"
LOCK = "facts.lock"
WHAT = "the facts of the store"
_READ_BYTES = 1_048_576


class FileFacts:
    """The facts of one root."""

    def __init__(self, io: DurableIO, root: Root, audit: FileAudit) -> None:
        self._audit = audit
        self._fs = io.fs
        self._root = root
        self._lock_ms_max = io.settings.lock_ms_max

    def read(self) -> dict[str, str]:
        """Return all facts. Raises CorruptionError for a damaged file."""
        try:
            file = self._fs.open_file(self._root.directory, FACTS)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise unavailable(WHAT, "read", error) from error
        try:
            data = self._fs.read(file, 0, _READ_BYTES)
        except OSError as error:
            raise unavailable(WHAT, "read", error) from error
        finally:
            self._fs.close(file)
        try:
            return msgspec.json.decode(data, type=dict[str, str])
        except UNDECODABLE as error:
            raise CorruptionError(f"cannot decode {FACTS}: {error}", code="store.facts") from error

    def save(self, name: str, value: str | None, *, audit: AuditRow | None = None) -> None:
        """Set or remove a fact. The row about who does it is durable before (ADR 0043)."""
        self._root.check_writable()
        fs = self._fs
        try:
            lock = fs.open_append(self._root.directory, LOCK)
            try:
                fs.lock(lock, self._lock_ms_max)
                facts = {key: text for key, text in self.read().items() if key != name}
                if value is not None:
                    facts[name] = value
                if audit is not None:
                    self._audit.append((audit,))
                replace_file(fs, self._root.directory, FACTS, encode(dict(sorted(facts.items()))))
            finally:
                with contextlib.suppress(OSError):
                    fs.close(lock)
        except OSError as error:
            raise unavailable(WHAT, "write", error) from error
