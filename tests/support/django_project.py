"""The Django project of `docs/guide/django.md`, in a folder, on SQLite or PostgreSQL; each call is a process.

Settings of Django are those of a process, so a test of a project cannot run in the process of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.docs.pages import blocks
from tests.support.eventually import PATIENCE_SECONDS
from tests.tidy.tracked import ROOT

PAGE = ROOT / "docs" / "guide" / "django.md"

ON_POSTGRES = """
from shop.settings import *

DATABASES = {{
    "default": {{
        "ENGINE": "django.db.backends.postgresql",
        "NAME": {name!r},
        "USER": {user!r},
        "PASSWORD": {password!r},
        "HOST": {host!r},
        "PORT": {port!r},
    }}
}}
TEST_RUNNER = "interlock.contrib.django.test_runner.Runner"
"""

SCRIPT = """
import json
import django
django.setup()
def answer(value):
    print("ANSWER", json.dumps(value))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DjangoProject:
    """A project in a folder."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `manage.py`; the caller looks at the exit code."""
        return self._run([sys.executable, "manage.py", *words])

    def migrate(self) -> None:
        """Create the migrations and the tables of the project."""
        for words in (("makemigrations", "shop"), ("migrate",)):
            ended = self.manage(*words)
            assert ended.returncode == 0, ended.stderr

    def answer(self, code: str) -> Any:
        """Run Python code in the project, and return what it passes to `answer`."""
        ended = self._run([sys.executable, "-W", "error::RuntimeWarning", "-c", SCRIPT + code])
        assert ended.returncode == 0, ended.stderr
        line = next(each for each in ended.stdout.splitlines() if each.startswith("ANSWER "))
        return json.loads(line.removeprefix("ANSWER "))

    @contextmanager
    def process(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Start a program of this environment in the project; it is ended with the block."""
        command = [sys.executable, *words]
        with (self.folder / "process.log").open("a") as log:
            started = subprocess.Popen(
                command, cwd=self.folder, env=self._environment(), text=True, stdout=log, stderr=log
            )
        try:
            yield started
        finally:
            if started.poll() is None:
                started.terminate()
            started.wait(PATIENCE_SECONDS)

    def log(self) -> str:
        """What the processes have printed."""
        return (self.folder / "process.log").read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        (self.folder / name).write_text(text, encoding="utf-8")

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    def _environment(self) -> dict[str, str]:
        paths = [str(ROOT), *(each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each)]
        defaults = {"DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONPATH": os.pathsep.join(paths)}
        return os.environ | defaults | self.environment


def project_on_sqlite(folder: Path) -> DjangoProject:
    """Write the project of the page to a folder."""
    for block in blocks(PAGE):
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
    return DjangoProject(folder=folder)


def project_on_postgres(folder: Path, url: str) -> DjangoProject:
    """Write the project of the page to a folder, with the database at an address."""
    project = project_on_sqlite(folder)
    parts = urlsplit(url)
    text = ON_POSTGRES.format(
        name=parts.path.removeprefix("/"),
        user=parts.username,
        password=parts.password,
        host=parts.hostname,
        port=parts.port,
    )
    project.write("shop/settings_postgres.py", text)
    return DjangoProject(folder=folder, environment={"DJANGO_SETTINGS_MODULE": "shop.settings_postgres"})
