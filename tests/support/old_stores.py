"""Stores as an earlier release left them: without definitions, or with the schema of that release.

An earlier schema is made from a store that this release wrote: the tables and columns that the earlier schema has are
copied, and nothing else. The test handles rows that an earlier release wrote in another way.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from interlock.stores.postgres.address import parse_address
from interlock.stores.sql.schema import migrations
from interlock.stores.sqlite.prefix import APPLICATION_ID


def forget_definitions(path: Path) -> None:
    """Delete the definitions of a SQLite store. Its entities keep the names of their revisions."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("definition", "definition_body", "definition_alias"):
            connection.execute(f"DELETE FROM {table}")


def return_sqlite_to_schema(path: Path, number: int) -> None:
    """Give a closed SQLite store the schema with a number, and the rows that it has a place for."""
    newer = path.with_name(f"{path.name}-newer")
    path.rename(newer)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for each in migrations("sqlite"):
            if each.number <= number:
                connection.executescript(each.text)
                connection.execute("INSERT INTO schema_version (version, name) VALUES (?, ?)", each[:2])
        connection.execute("ATTACH ? AS newer", (str(newer),))
        shared = (
            "SELECT o.name FROM main.sqlite_master AS o JOIN newer.sqlite_master AS n USING (type, name)"
            " WHERE o.type = 'table' AND o.name NOT LIKE 'sqlite%' AND o.name <> 'schema_version'"
        )
        for (table,) in connection.execute(shared).fetchall():
            columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
            connection.execute(f"DELETE FROM main.{table}")
            connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM newer.{table}")
    newer.unlink()


async def return_postgres_to_schema(url: str, number: int) -> None:
    """Give a PostgreSQL store without connections the schema with a number, and the rows that it has a place for."""
    address = parse_address(url)
    newer = f"{address.schema}_newer"
    connection = await asyncpg.connect(address.dsn)
    try:
        async with connection.transaction():
            await connection.execute(f'ALTER SCHEMA "{address.schema}" RENAME TO "{newer}"')
            await connection.execute(f'CREATE SCHEMA "{address.schema}"')
            await connection.execute(f'SET LOCAL search_path TO "{address.schema}"')
            for each in migrations("postgres"):
                if each.number <= number:
                    await connection.execute(each.text)
                    await connection.execute(
                        "INSERT INTO schema_version (version, name) VALUES ($1, $2)", each.number, each.name
                    )
            shared = """
                SELECT o.relname, string_agg(quote_ident(a.attname), ', ')
                FROM pg_class AS o
                JOIN pg_class AS n ON n.relname = o.relname AND n.relnamespace = to_regnamespace($2)
                JOIN pg_attribute AS a ON a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped
                WHERE o.relnamespace = to_regnamespace($1) AND o.relkind IN ('r', 'p') AND NOT o.relispartition
                  AND o.relname <> 'schema_version'
                GROUP BY o.relname"""
            for table, columns in await connection.fetch(shared, f'"{address.schema}"', f'"{newer}"'):
                await connection.execute(f"DELETE FROM {table}")
                rows = f'({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM "{newer}".{table}'
                await connection.execute(f"INSERT INTO {table} {rows}")
            await connection.execute("SET LOCAL client_min_messages TO warning")
            await connection.execute(f'DROP SCHEMA "{newer}" CASCADE')
    finally:
        await connection.close()
