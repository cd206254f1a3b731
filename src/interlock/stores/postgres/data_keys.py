"""The data keys of a store on a PostgreSQL server, in a table next to its journals.

Rule 1: a server keeps copies of a deleted row: in dead rows, in its log and in every backup. So a key is destroyed for
good when the master key of its epoch is (`Destroyed.EPOCH`).
Rule 2: adding keys and retiring epochs lock the row of the epochs, so no key of a retired epoch appears afterwards.
"""

from __future__ import annotations

from typing import Any

from interlock.ports.trust.data_keys import DATA_KEYS_PAGE, DataKey, Destroyed, DestroyedKey
from interlock.stores.sql.database import Ask, Questions, SqlDatabase

ADD_EPOCH_ROW = "INSERT INTO data_key_epoch (tenant, oldest) VALUES ($1, 0) ON CONFLICT DO NOTHING"
SHARE_EPOCH_ROW = "SELECT oldest FROM data_key_epoch WHERE tenant = $1 FOR SHARE"
ADD_KEYS = """
    INSERT INTO data_key (tenant, kid, epoch, wrapped, created_ms)
    SELECT $1, kid, epoch, wrapped, created_ms
    FROM unnest($2::text[], $3::integer[], $4::bytea[], $5::bigint[]) AS k (kid, epoch, wrapped, created_ms)"""
FIND_KEY = "SELECT epoch, wrapped, created_ms, destroyed_ms FROM data_key WHERE tenant = $1 AND kid = $2"
DESTROY_KEY = """
    INSERT INTO data_key AS k (tenant, kid, epoch, wrapped, created_ms, destroyed_ms)
    VALUES ($1, $2, 0, NULL, $3, $3)
    ON CONFLICT (tenant, kid) DO UPDATE
    SET wrapped = NULL, destroyed_ms = coalesce(k.destroyed_ms, excluded.destroyed_ms)"""
DESTROYED_KEYS = """
    SELECT kid, destroyed_ms FROM data_key WHERE tenant = $1 AND kid > $2 AND destroyed_ms IS NOT NULL
    ORDER BY kid LIMIT $3"""
RETIRE_EPOCHS = "UPDATE data_key_epoch SET oldest = greatest(oldest, $2) WHERE tenant = $1"
KEYS_BEFORE = """
    SELECT kid, epoch, wrapped, created_ms FROM data_key
    WHERE tenant = $1 AND epoch < $2 AND wrapped IS NOT NULL ORDER BY kid LIMIT $3"""
REPLACE_KEYS = """
    UPDATE data_key AS k SET epoch = n.epoch, wrapped = n.wrapped
    FROM unnest($2::text[], $3::integer[], $4::bytea[]) AS n (kid, epoch, wrapped)
    WHERE k.tenant = $1 AND k.kid = n.kid AND k.wrapped IS NOT NULL"""
COUNT_KEYS = "SELECT epoch, count(*) FROM data_key WHERE tenant = $1 AND wrapped IS NOT NULL GROUP BY epoch"


class PostgresKeys:
    """The data keys of one tenant."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database
        self.tenant = database.tenant

    async def add_keys(self, keys: tuple[DataKey, ...]) -> bool:
        """Store keys; False if an epoch of them is retired."""
        columns = zip(*((each.kid, each.epoch, each.wrapped, each.created_ms) for each in keys), strict=True)
        values = (self._database.tenant, *map(list, columns))

        def add() -> Questions[bool]:
            yield Ask(ADD_EPOCH_ROW, (self._database.tenant,))
            ((oldest,),) = yield Ask(SHARE_EPOCH_ROW, (self._database.tenant,))
            if any(each.epoch < oldest for each in keys):
                return False
            yield Ask(ADD_KEYS, values)
            return True

        return await self._database.change_whole(add)

    async def find_key(self, kid: str) -> DataKey | DestroyedKey | None:
        """Return a key, or that it was destroyed."""
        rows = await self._rows(FIND_KEY, kid)
        if not rows:
            return None
        epoch, wrapped, created_ms, destroyed_ms = rows[0]
        return DestroyedKey(kid, destroyed_ms) if wrapped is None else DataKey(kid, epoch, bytes(wrapped), created_ms)

    async def destroy_key(self, kid: str, *, now_ms: int) -> Destroyed:
        """Destroy a key; its wrapped copies are useless when its epoch ends."""
        await self._change(DESTROY_KEY, kid, now_ms)
        return Destroyed.EPOCH

    async def destroyed_keys(self, *, after: str = "", limit: int = DATA_KEYS_PAGE) -> tuple[DestroyedKey, ...]:
        """Return destroyed keys by id."""
        return tuple(DestroyedKey(*row) for row in await self._rows(DESTROYED_KEYS, after, limit))

    async def retire_epochs(self, before: int) -> None:
        """Accept no key of an older epoch any more; waits for those that are being added."""

        def retire() -> Questions[None]:
            yield Ask(ADD_EPOCH_ROW, (self._database.tenant,))
            yield Ask(RETIRE_EPOCHS, (self._database.tenant, before))

        await self._database.change_whole(retire)

    async def keys_before(self, epoch: int, *, limit: int = DATA_KEYS_PAGE) -> tuple[DataKey, ...]:
        """Return keys that are wrapped under an older epoch."""
        found = await self._rows(KEYS_BEFORE, epoch, limit)
        return tuple(DataKey(kid, number, bytes(wrapped), created_ms) for kid, number, wrapped, created_ms in found)

    async def replace_keys(self, keys: tuple[DataKey, ...]) -> None:
        """Store the new wraps of keys that were not destroyed meanwhile."""
        columns = zip(*((each.kid, each.epoch, each.wrapped) for each in keys), strict=True)
        await self._change(REPLACE_KEYS, *map(list, columns))

    async def count_keys(self) -> dict[int, int]:
        """Return how many keys each epoch has."""
        return dict(await self._rows(COUNT_KEYS))

    async def _rows(self, statement: str, *values: Any) -> list[Any]:
        def read() -> Questions[list[Any]]:
            return (yield Ask(statement, (self._database.tenant, *values)))

        return await self._database.read(read)

    async def _change(self, statement: str, *values: Any) -> None:
        def change() -> Questions[None]:
            yield Ask(statement, (self._database.tenant, *values))

        await self._database.change(change)
