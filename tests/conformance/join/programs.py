"""Programs with their own table, one for each driver that `join` accepts."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiosqlite
import asyncpg  # type: ignore[import-untyped]  # it ships no types
import django
import django.conf
import django.db
import psycopg
import sqlalchemy
from django.db import transaction as django_transaction
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import interlock
from interlock.model.journal.entry import Receipt
from interlock.ports.clock import SystemClock
from interlock.runtime.blocking import BlockingRuntime
from interlock.testing.clock import VirtualClock
from interlock.testing.join_suite import ORDER, JoinProgram, JoinSubject
from tests.support.eventually import LOOK_SECONDS, PATIENCE_SECONDS, eventually_blocking
from tests.support.postgres_server import asked

CREATE = "CREATE TABLE IF NOT EXISTS booking (name text NOT NULL)"
STALE = (sqlite3.OperationalError, psycopg.Error, asyncpg.PostgresError, sqlalchemy.exc.DBAPIError, django.db.Error)


def options_of(charged: list[str]) -> dict[str, Any]:
    """How the runtime of a program is opened: with a worker whose clock stands still."""
    chart = interlock.loads(ORDER)

    @chart.handler("charge")
    async def charge(attempt: interlock.Attempt) -> None:
        charged.append(attempt.entity)

    return {"charts": [chart], "work": True, "clock": VirtualClock(SystemClock().now_ms())}


class Blocking(ABC):
    """A program without an event loop. A driver adds `execute` and how transactions start and end."""

    stale_errors = STALE

    def __init__(self, url: str) -> None:
        self._charged: list[str] = []
        self.runtime: BlockingRuntime = interlock.connect(url, **options_of(self._charged))

    @property
    @abstractmethod
    def connection(self) -> Any:
        """What is joined."""

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Run a statement of the program."""

    def begin(self) -> None:
        self.execute("BEGIN")

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def savepoint(self) -> None:
        self.execute("SAVEPOINT mine")

    def rollback_to_savepoint(self) -> None:
        self.execute("ROLLBACK TO SAVEPOINT mine")

    def release_savepoint(self) -> None:
        self.execute("RELEASE SAVEPOINT mine")

    def read(self) -> None:
        self.execute("SELECT * FROM booking")

    def write(self, name: str) -> None:
        self.execute(f"INSERT INTO booking (name) VALUES ('{name}')")

    def create(self, entity: str, **options: Any) -> Receipt:
        return self.runtime.join(self.connection).create(entity, **options)

    def send(self, entity: str, event: str, **options: Any) -> Receipt:
        return self.runtime.join(self.connection).send(entity, event, **options)

    def lock(self, *entities: str) -> None:
        self.runtime.join(self.connection).lock(*entities)

    def joined_state(self, entity: str) -> interlock.Snapshot:
        """An entity as the transaction sees it."""
        return self.runtime.join(self.connection).state(entity)

    def charged(self) -> Collection[str]:
        return self._charged

    def until(self, condition: Callable[[], bool]) -> None:
        eventually_blocking(condition)

    def state(self, entity: str) -> str:
        return self.runtime.state(entity).configuration[0]

    def close(self) -> None:
        self.runtime.close()


class Sqlite3Program(Blocking):
    """The module `sqlite3`."""

    def __init__(self, url: str, place: str) -> None:
        super().__init__(url)
        self._connection = sqlite3.connect(place)
        self._connection.row_factory = lambda cursor, row: {"a": row}  # its own settings do not concern us
        self._connection.text_factory = bytes

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection

    def execute(self, statement: str) -> None:
        self._connection.execute(statement).fetchall()

    def close(self) -> None:
        self._connection.close()
        super().close()


class PsycopgProgram(Blocking):
    """psycopg 3."""

    def __init__(self, url: str, place: str) -> None:
        super().__init__(url)
        self._connection = psycopg.connect(place, row_factory=psycopg.rows.dict_row)

    @property
    def connection(self) -> Any:
        return self._connection

    def begin(self) -> None:
        """With the first statement."""

    def execute(self, statement: str) -> None:
        self._connection.execute(statement.encode())

    def close(self) -> None:
        self._connection.close()
        super().close()


def engine_of(place: str, isolation: str | None) -> sqlalchemy.Engine:
    options: dict[str, Any] = {} if isolation is None else {"isolation_level": isolation}
    engine = sqlalchemy.create_engine(place, **options)
    if engine.dialect.name == "sqlite":
        use_savepoints(engine)
    return engine


def use_savepoints(engine: sqlalchemy.Engine) -> None:
    """The recipe of SQLAlchemy for SQLite: the driver starts no transaction automatically, so that savepoints work."""

    @sqlalchemy.event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN")


class SqlAlchemyProgram(Blocking):
    """A Connection of SQLAlchemy."""

    def __init__(self, url: str, place: str, *, isolation: str | None = None) -> None:
        super().__init__(url)
        self._engine = engine_of(place, isolation)
        self._connection = self.opened()
        self._nested: list[Any] = []

    def opened(self) -> Any:
        return self._engine.connect()

    @property
    def connection(self) -> Any:
        return self._connection

    def begin(self) -> None:
        """With the first statement."""

    def execute(self, statement: str) -> None:
        self._connection.execute(sqlalchemy.text(statement))

    def savepoint(self) -> None:
        self._nested.append(self._connection.begin_nested())

    def rollback_to_savepoint(self) -> None:
        self._nested.pop().rollback()

    def release_savepoint(self) -> None:
        self._nested.pop().commit()

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()
        super().close()


class SessionProgram(SqlAlchemyProgram):
    """A Session of SQLAlchemy."""

    def opened(self) -> Any:
        return Session(self._engine)


class DjangoProgram(Blocking):
    """Django."""

    _number = 0

    def __init__(self, url: str, place: dict[str, Any]) -> None:
        super().__init__(url)
        if not django.conf.settings.configured:
            django.conf.settings.configure(DATABASES={})
            django.setup()
        type(self)._number += 1
        self._alias = f"program{self._number}"
        made = django.db.connections.configure_settings({"default": {}, self._alias: place})
        django.db.connections.databases[self._alias] = made[self._alias]
        self._blocks: list[Any] = []

    @property
    def connection(self) -> Any:
        return django.db.connections[self._alias]

    def execute(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    def begin(self) -> None:
        self._blocks.append(django_transaction.atomic(using=self._alias))
        self._blocks[-1].__enter__()

    def commit(self) -> None:
        self._blocks.pop().__exit__(None, None, None)

    def rollback(self) -> None:
        error = RuntimeError("rolled back")
        self._blocks.pop().__exit__(RuntimeError, error, None)

    savepoint, rollback_to_savepoint, release_savepoint = begin, rollback, commit

    def close(self) -> None:
        while self._blocks:
            self.rollback()
        self.connection.close()
        del django.db.connections[self._alias]
        del django.db.connections.databases[self._alias]
        super().close()


class Asynchronous(ABC):
    """A program with an event loop, which runs only while the program is in a call."""

    stale_errors = STALE

    def __init__(self, url: str) -> None:
        self._charged: list[str] = []
        self.loop = asyncio.Runner()
        self.runtime = self.run(_open(url, options_of(self._charged)))

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run(call)

    @property
    @abstractmethod
    def connection(self) -> Any:
        """What is joined."""

    async def _execute(self, statement: str) -> None:
        await self.connection.execute(statement)

    def execute(self, statement: str) -> None:
        self.run(self._execute(statement))

    def begin(self) -> None:
        self.execute("BEGIN")

    def commit(self) -> None:
        self.run(self.connection.commit())

    def rollback(self) -> None:
        self.run(self.connection.rollback())

    def savepoint(self) -> None:
        self.execute("SAVEPOINT mine")

    def rollback_to_savepoint(self) -> None:
        self.execute("ROLLBACK TO SAVEPOINT mine")

    def release_savepoint(self) -> None:
        self.execute("RELEASE SAVEPOINT mine")

    def read(self) -> None:
        self.execute("SELECT * FROM booking")

    def write(self, name: str) -> None:
        self.execute(f"INSERT INTO booking (name) VALUES ('{name}')")

    async def _joined(self, name: str, *args: Any, **options: Any) -> Any:
        return await getattr(self.runtime.join(self.connection), name)(*args, **options)

    def create(self, entity: str, **options: Any) -> Any:
        return self.run(self._joined("create", entity, **options))

    def send(self, entity: str, event: str, **options: Any) -> Any:
        return self.run(self._joined("send", entity, event, **options))

    def lock(self, *entities: str) -> None:
        self.run(self._joined("lock", *entities))

    def joined_state(self, entity: str) -> Any:
        """An entity as the transaction sees it."""
        return self.run(self._joined("state", entity))

    def charged(self) -> Collection[str]:
        return self._charged

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(int(PATIENCE_SECONDS / LOOK_SECONDS)):
            if condition():
                return
            self.run(asyncio.sleep(LOOK_SECONDS))
        raise AssertionError("the condition did not hold in time")

    def state(self, entity: str) -> str:
        name: str = self.run(self.runtime.state(entity)).configuration[0]
        return name

    def close(self) -> None:
        self.run(self.runtime.close())
        self.loop.close()


async def _open(url: str, options: dict[str, Any]) -> interlock.Runtime:
    return await interlock.open(url, **options)


class AiosqliteProgram(Asynchronous):
    """aiosqlite."""

    def __init__(self, url: str, place: str) -> None:
        super().__init__(url)
        self._connection = self.run(self._connect(place))

    async def _connect(self, place: str) -> aiosqlite.Connection:
        return await aiosqlite.connect(place)

    @property
    def connection(self) -> Any:
        return self._connection

    async def _execute(self, statement: str) -> None:
        await self._connection.execute_fetchall(statement)

    def close(self) -> None:
        self.run(self._connection.close())
        super().close()


class AsyncPsycopgProgram(Asynchronous):
    """psycopg 3, asynchronous."""

    def __init__(self, url: str, place: str) -> None:
        super().__init__(url)
        self._connection = self.run(psycopg.AsyncConnection.connect(place))

    @property
    def connection(self) -> Any:
        return self._connection

    def begin(self) -> None:
        """With the first statement."""

    def close(self) -> None:
        self.run(self._connection.close())
        super().close()


class AsyncpgProgram(Asynchronous):
    """asyncpg, with a connection that its pool has lent."""

    def __init__(self, url: str, place: str) -> None:
        super().__init__(url)
        self._pool = self.run(self._connect(place))
        self._connection = self.run(self._take())
        self._transactions: list[Any] = []

    async def _connect(self, place: str) -> Any:
        return await asyncpg.create_pool(place, min_size=1, max_size=1)

    async def _take(self) -> Any:
        return await self._pool.acquire()

    @property
    def connection(self) -> Any:
        return self._connection

    def begin(self) -> None:
        self._transactions.append(self._connection.transaction())
        self.run(self._transactions[-1].start())

    def commit(self) -> None:
        self.run(self._transactions.pop().commit())

    def rollback(self) -> None:
        self.run(self._transactions.pop().rollback())

    savepoint, rollback_to_savepoint, release_savepoint = begin, rollback, commit

    def close(self) -> None:
        while self._transactions:
            self.rollback()
        self.run(self._pool.release(self._connection))
        self.run(self._pool.close())
        super().close()


class AsyncSqlAlchemyProgram(Asynchronous):
    """An AsyncConnection of SQLAlchemy."""

    def __init__(self, url: str, place: str, *, isolation: str | None = None) -> None:
        super().__init__(url)
        options: dict[str, Any] = {} if isolation is None else {"isolation_level": isolation}
        self._engine = create_async_engine(place, **options)
        if self._engine.dialect.name == "sqlite":
            use_savepoints(self._engine.sync_engine)
        self._connection = self.run(self.opened())
        self._nested: list[Any] = []

    async def opened(self) -> Any:
        return await AsyncConnection(self._engine).start()

    @property
    def connection(self) -> Any:
        return self._connection

    def begin(self) -> None:
        """With the first statement."""

    async def _execute(self, statement: str) -> None:
        await self._connection.execute(sqlalchemy.text(statement))

    def savepoint(self) -> None:
        self._nested.append(self.run(self._begin_nested()))

    async def _begin_nested(self) -> Any:
        return await self._connection.begin_nested()

    def rollback_to_savepoint(self) -> None:
        self.run(self._nested.pop().rollback())

    def release_savepoint(self) -> None:
        self.run(self._nested.pop().commit())

    def close(self) -> None:
        self.run(self._connection.close())
        self.run(self._engine.dispose())
        super().close()


class AsyncSessionProgram(AsyncSqlAlchemyProgram):
    """An AsyncSession of SQLAlchemy."""

    async def opened(self) -> Any:
        return AsyncSession(self._engine)


def sqlite_programs(path: Path, url: str) -> dict[str, Callable[[], Any]]:
    """Every driver on a SQLite file."""
    django_place = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}
    immediate = django_place | {"OPTIONS": {"transaction_mode": "IMMEDIATE"}}
    return {
        "sqlite3": lambda: Sqlite3Program(url, str(path)),
        "aiosqlite": lambda: AiosqliteProgram(url, str(path)),
        "sqlalchemy connection": lambda: SqlAlchemyProgram(url, f"sqlite:///{path}"),
        "sqlalchemy session": lambda: SessionProgram(url, f"sqlite:///{path}"),
        "sqlalchemy async connection": lambda: AsyncSqlAlchemyProgram(url, f"sqlite+aiosqlite:///{path}"),
        "sqlalchemy async session": lambda: AsyncSessionProgram(url, f"sqlite+aiosqlite:///{path}"),
        "django": lambda: DjangoProgram(url, django_place),
        "django immediate": lambda: DjangoProgram(url, immediate),
    }


def postgres_programs(dsn: str, url: str) -> dict[str, Callable[[], Any]]:
    """Every driver on a PostgreSQL server."""
    parts = urlsplit(dsn)
    rest = dsn.partition("://")[2]
    place = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username,
        "PASSWORD": parts.password,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    return {
        "psycopg": lambda: PsycopgProgram(url, dsn),
        "psycopg async": lambda: AsyncPsycopgProgram(url, dsn),
        "asyncpg": lambda: AsyncpgProgram(url, dsn),
        "sqlalchemy connection": lambda: SqlAlchemyProgram(url, f"postgresql+psycopg://{rest}"),
        "sqlalchemy session": lambda: SessionProgram(url, f"postgresql+psycopg://{rest}"),
        "sqlalchemy session repeatable read": lambda: SessionProgram(
            url, f"postgresql+psycopg://{rest}", isolation="REPEATABLE READ"
        ),
        "sqlalchemy async connection psycopg": lambda: AsyncSqlAlchemyProgram(url, f"postgresql+psycopg://{rest}"),
        "sqlalchemy async session asyncpg": lambda: AsyncSessionProgram(url, f"postgresql+asyncpg://{rest}"),
        "sqlalchemy async session serializable": lambda: AsyncSessionProgram(
            url, f"postgresql+asyncpg://{rest}", isolation="SERIALIZABLE"
        ),
        "django": lambda: DjangoProgram(url, place),
    }


@contextmanager
def sqlite_subject(path: Path, driver: str) -> Iterator[JoinSubject]:
    """A program on the SQLite file of a new store."""
    url = f"sqlite:///{path}"

    def names() -> set[str]:
        with sqlite3.connect(path) as connection:
            found = {row[0] for row in connection.execute("SELECT name FROM booking")}
        connection.close()
        return found

    with _subject(url, sqlite_programs(path, url)[driver], names, locks_at_begin="immediate" in driver) as subject:
        with sqlite3.connect(path) as connection:
            connection.execute(CREATE)
        connection.close()
        yield subject


@contextmanager
def postgres_subject(dsn: str, schema: str, driver: str) -> Iterator[JoinSubject]:
    """A program on the database of a new store, with tables of the same names as the store's on its own path."""
    url = f"{dsn}?schema={schema}"
    for table in ("work", "entity", "journal"):
        asked(dsn, f"CREATE TABLE IF NOT EXISTS {table} (mine integer)")
    asked(dsn, CREATE)
    asked(dsn, "TRUNCATE booking")

    def names() -> set[str]:
        return {row[0] for row in asked(dsn, "SELECT name FROM booking")}

    with _subject(url, postgres_programs(dsn, url)[driver], names) as subject:
        yield subject


def _subject(
    url: str, open_program: Callable[[], Any], names: Callable[[], Collection[str]], *, locks_at_begin: bool = False
) -> AbstractContextManager[JoinSubject]:
    @contextmanager
    def opened() -> Iterator[JoinSubject]:
        with ExitStack() as stack:
            observer = stack.enter_context(interlock.connect(url, charts=[interlock.loads(ORDER)]))
            program = open_program()
            stack.callback(program.close)
            checked: JoinProgram = program
            one_writer = url.startswith("sqlite")
            yield JoinSubject(
                program=checked,
                names=names,
                observer=observer,
                one_writer=one_writer,
                locks_at_begin=locks_at_begin,
            )

    return opened()
