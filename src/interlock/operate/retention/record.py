"""The record of a run: an entity of the kind `interlock-retention`. Its journal says what was removed, and by whom.

Rule 1: a batch is recorded before anything of it is removed, with the version and the hash of each entity. What the
store then refuses is still there; every removed entity has its tombstone, with the same head.
Rule 2: a run that finds nothing writes nothing.
Rule 3: records are never removed: they are the evidence for tombstones, which stay, too (`observe.audit_proof`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from interlock.operate.retention.rules import RetentionReport, RetentionRule
from interlock.runtime.charts.registry import CONSOLE_ROLE, RETENTION_KIND
from interlock.runtime.history.retention_records import BATCH, Removed, What, batch_payload
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

    async def add(self, what: What, removed: Iterable[Removed], report: RetentionReport) -> None:
        """Record what is about to be removed."""
        if not self._is_created:
            await self._create()
        await self._send(BATCH, {**batch_payload(what, removed), "counts": report.counts()})

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
