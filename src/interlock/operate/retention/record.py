"""The record of a run: an entity of the kind `interlock-retention`. Its journal says what was removed, and by whom.

Rule 1: a batch is recorded before anything of it is removed, with the hash over entity, version and head of each. What
the store then refuses is still there; every removed entity has its tombstone, with the same head.
Rule 2: a run that finds nothing writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from interlock.operate.retention.rules import RetentionReport, RetentionRule
from interlock.runtime.charts.registry import CONSOLE_ROLE, RETENTION_KIND
from interlock.runtime.runtime import Runtime


class RetentionRecord:
    """The record of one run."""

    def __init__(self, runtime: Runtime, rules: tuple[RetentionRule, ...], *, who: str, reason: str | None) -> None:
        self._runtime = runtime
        self._rules = rules
        self._principal = {"id": who, "kind": "user", "roles": [CONSOLE_ROLE]}
        self._reason = reason
        self._is_created = False
        self.entity = f"{RETENTION_KIND}/{runtime.clock.now_ms():013}-{runtime.clock.token()[:8]}"

    async def add(self, what: str, removed: Iterable[tuple[str, int, str]], report: RetentionReport) -> None:
        """Record what is about to be removed: entity, version and head of each."""
        found = tuple(removed)
        if not self._is_created:
            await self._create()
        batch = {"what": what, "entities": len(found), "first": found[0][0], "last": found[-1][0]}
        await self._send(
            "retention.batch", {"batch": {**batch, "digest": heads_digest(found)}, "counts": report.counts()}
        )

    async def finish(self, report: RetentionReport) -> None:
        """Record the result."""
        if self._is_created:
            await self._send("retention.finished", {"counts": report.counts()})

    async def _create(self) -> None:
        plan = {"rules": [msgspec.to_builtins(each) for each in self._rules], "who": self._principal["id"]}
        context: dict[str, Any] = {"plan": plan, "noted_ms": self._runtime.clock.now_ms()}
        receipt = await self._runtime.create(
            self.entity, context, key="begin", principal=self._principal, reason=self._reason
        )
        receipt.expect()
        self._is_created = True

    async def _send(self, event: str, payload: dict[str, Any]) -> None:
        receipt = await self._runtime.send(self.entity, event, payload, principal=self._principal)
        receipt.expect()


def heads_digest(removed: Iterable[tuple[str, int, str]]) -> str:
    """Return the hash over entity, version and head of each of these, in this order."""
    found = blake2b(digest_size=16)
    for entity, version, head in removed:
        found.update(f"{entity}/{version}/{head}\n".encode())
    return found.hexdigest()
