"""The key file of a running server: read again when it changes, and the times of last use, next to it.

Rule 1: the file is looked at when a request arrives, at most every `KEY_FILE_AGE_MS`, in a thread.
Rule 2: while its new content cannot be used, the last valid one counts; the log says why, once per change.
Rule 3: times of last use are in `<key file>.used`, at most `USED_AGE_MS` old. Several servers may share one key file:
each writes the later of its times and those in the file. A server that cannot write them logs it once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from interlock.errors import InterlockError, UnavailableError
from interlock.model.limits import KEY_FILE_AGE_MS
from interlock.ports.clock import Clock
from interlock.ports.threads import in_thread
from interlock.ports.trust.private_file import file_signature
from interlock.trust.api_keys import ApiKeys
from interlock.trust.key_file import KeyFile, read_key_file
from interlock.trust.used_keys import write_used

USED_AGE_MS = 60_000

_log = logging.getLogger("interlock.web")


class KeyFileWatcher:
    """The content of a key file, as of the last `refresh`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._signature = file_signature(path)
        self.content: KeyFile = read_key_file(path)
        self.keys = ApiKeys(self.content.keys)
        self._looked_ms = self._wrote_ms = clock.now_ms()
        self._written: Mapping[str, int] = {}
        self._is_unwritable = False
        self._look: asyncio.Future[None] | None = None

    async def refresh(self) -> None:
        """Read the file again if it has changed. A file system that does not answer delays callers by a second."""
        if self._look is None:
            if 0 <= self._clock.now_ms() - self._looked_ms < KEY_FILE_AGE_MS:
                return
            self._look = asyncio.ensure_future(self._look_at_file())
        look = self._look
        await asyncio.wait({look}, timeout=KEY_FILE_AGE_MS / 1000)

    async def _look_at_file(self) -> None:
        now_ms = self._clock.now_ms()
        try:
            found = await in_thread(self._read_if_changed)
            self._looked_ms = now_ms
            if found is not None:
                used = self.keys.used_ms
                self.content, self.keys = found, ApiKeys(found.keys)
                self.keys.used_ms = used
                _log.info("the key file was read again", extra={"keys": len(found.keys)})
        except UnavailableError:  # no thread now: the next request tries again
            return
        finally:
            self._look = None
        if not 0 <= now_ms - self._wrote_ms < USED_AGE_MS:
            self._wrote_ms = now_ms
            await self.write_used()

    def _read_if_changed(self) -> KeyFile | None:
        signature = file_signature(self._path)
        if signature == self._signature:
            return None
        self._signature = signature
        try:
            return read_key_file(self._path)
        except InterlockError as error:
            _log.error(
                "the changed key file cannot be used, so the previous keys still count",
                extra={"code": error.code, "error": error.message, "hint": error.hint},
            )
            return None

    async def write_used(self) -> None:
        """Write the times of last use, if there are new ones."""
        used = dict(self.keys.used_ms)
        if used == self._written:
            return
        try:
            await in_thread(lambda: write_used(self._path, used))
            self._written = used
        except (OSError, UnavailableError) as error:
            if not self._is_unwritable:
                _log.warning("the last use of keys cannot be written", extra={"error": type(error).__name__})
            self._is_unwritable = True
