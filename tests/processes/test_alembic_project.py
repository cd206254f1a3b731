"""The project of `docs/guide/sqlalchemy.md` under real Alembic: every driver, both databases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock.testing.join_suite import ORDER
from tests.docs.pages import blocks
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.postgres_server import database_or_skip
from tests.tidy.tracked import ROOT

pytestmark = pytest.mark.slow

BLOCKING = """
from alembic import context
from interlock.contrib.tables import include_name
from models import Base
from sqlalchemy import create_engine

engine = create_engine(context.config.get_main_option("sqlalchemy.url"))
with engine.connect() as connection:
    context.configure(
        connection=connection, target_metadata=Base.metadata, include_name=include_name, include_schemas=True
    )
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
"""

ASYNC = ("sqlite+aiosqlite", "postgresql+asyncpg", "postgresql+psycopg_async")
DRIVERS = ("sqlite", "postgresql+psycopg", *ASYNC)


class AlembicProject:
    """A folder with migrations, and a database."""

    def __init__(self, folder: Path, driver: str) -> None:
        self.folder = folder
        for block in blocks(ROOT / "docs" / "guide" / "sqlalchemy.md"):
            if block.file:
                path = folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
        if driver not in ASYNC:
            (folder / "migrations" / "env.py").write_text(BLOCKING, encoding="utf-8")
        if driver.startswith("sqlite"):
            self.url = f"sqlite:///{folder / 'shop.db'}"
            theirs = self.url.replace("sqlite", driver, 1)
        else:
            self.url = database_or_skip()
            theirs = self.url.replace("postgresql", driver, 1)
        ini = folder / "alembic.ini"
        text = ini.read_text(encoding="utf-8").replace("sqlite+aiosqlite:///shop.db", theirs)
        ini.write_text(text, encoding="utf-8")

    def alembic(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Alembic."""
        return subprocess.run(
            [sys.executable, "-m", "alembic", *words],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    def used(self) -> int:
        """Use the store without migrations; the version that an entity reaches."""
        with interlock.connect(self.url, charts=[interlock.loads(ORDER)], migrate=False) as orders:
            orders.create("order/1")
            assert orders.verify("order/1").problem is None
            return orders.send("order/1", "paid").version


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_tables_come_with_a_revision_and_stay(driver: str, tmp_path: Path) -> None:
    project = AlembicProject(tmp_path, driver)
    upgraded = project.alembic("upgrade", "head")
    assert upgraded.returncode == 0, upgraded.stderr
    version = project.used()
    checked = project.alembic("check")  # exits with an error if autogenerate would drop a table
    current = project.alembic("current")
    back = project.alembic("downgrade", "-1")
    again = project.alembic("upgrade", "head")

    assert (2, 0, 0) == (version, checked.returncode, again.returncode), checked.stderr
    assert "0002 (head)" in current.stdout
    assert back.returncode != 0
    assert "the tables of a store cannot be downgraded" in back.stderr
    with interlock.connect(project.url, charts=[interlock.loads(ORDER)], migrate=False) as orders:
        assert 2 == orders.state("order/1").version


@pytest.mark.parametrize("driver", ["sqlite+aiosqlite", "postgresql+asyncpg"])
def test_the_printed_statements_create_the_store(driver: str, tmp_path: Path) -> None:
    project = AlembicProject(tmp_path, driver)
    printed = project.alembic("upgrade", "head", "--sql")
    assert printed.returncode == 0, printed.stderr
    run_script(project.url, printed.stdout)

    assert 2 == project.used()
    assert "0002 (head)" in project.alembic("current").stdout


@pytest.mark.parametrize("driver", ["sqlite", "postgresql+psycopg"])
def test_a_revision_that_fails_later_leaves_nothing_half_done(driver: str, tmp_path: Path) -> None:
    """Where the database has transactions for its schema, nothing; on SQLite all tables of the store."""
    project = AlembicProject(tmp_path, driver)
    revision = tmp_path / "migrations" / "versions" / "0002_interlock.py"
    good = revision.read_text(encoding="utf-8")
    revision.write_text(good.replace("    upgrade_tables(op)", "    upgrade_tables(op)\n    1 / 0"), encoding="utf-8")
    failed = project.alembic("upgrade", "head")
    revision.write_text(good, encoding="utf-8")
    mended = project.alembic("upgrade", "head")

    assert failed.returncode != 0
    assert 0 == mended.returncode, mended.stderr
    assert 2 == project.used()


def run_script(url: str, script: str) -> None:
    """Run printed statements as the tools of the databases do."""
    if url.startswith("sqlite"):
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(script)
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(script.encode())
