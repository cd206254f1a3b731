"""The audit of a store: rows about attempts that no journal records, in one chain for each tenant, append-only."""

from __future__ import annotations

from typing import Protocol

from interlock.model.audit import AuditRecord, AuditRow


class AuditLog(Protocol):
    """The rows of one tenant. Their numbers start at 1 and have no gaps."""

    @property
    def first_audit_head(self) -> str:
        """The head before the first row of the tenant."""

    async def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
        """Append rows; on return they are durable. Raises UnavailableError when they are not.

        Callers wait for it together: a store commits the rows of all of them together, and never drops one.
        """

    async def audit_before(
        self, sequence: int | None, *, actor: str | None = None, limit: int = 50
    ) -> tuple[AuditRecord, ...]:
        """Return the rows before a number (None: the newest), newest first; with `actor`, theirs only."""

    async def audit_after(self, sequence: int, *, limit: int = 1_000) -> tuple[AuditRecord, ...]:
        """Return the rows after a number, in order."""

    async def former_audit_after(self, former: int, *, limit: int = 1_000) -> tuple[AuditRecord, ...]:
        """Return the rows of earlier releases, of all tenants, after a former number and in their order."""
