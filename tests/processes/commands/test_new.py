"""`interlock new`: the created project passes its own test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.cli.commands.charts import new
from tests.support.cli import Caller
from tests.support.eventually import PATIENCE_SECONDS

FILES = ["README.md", "handlers.py", "interlock.schema.json", "interlock.toml", "requirements.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("template", new.TEMPLATES)
def test_a_project_passes_its_own_test_at_once(call: Caller, folder: Path, template: str) -> None:
    made = call("new", "parcel-return", "--template", template)
    project = folder / "parcel-return"
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"],
        cwd=project,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    chart = "order" if template == "order" else "parcel-return"
    checked = call("check", "--strict", project / f"{chart}.interlock.yaml")

    assert 0 == made.code, made.err
    assert 0 == tested.returncode, tested.stdout
    assert " passed" in tested.stdout
    assert (0, "") == (checked.code, checked.out.partition("no findings")[0]), checked.out
    assert sorted([*FILES, f"{chart}.interlock.yaml", f"test_{chart.replace('-', '_')}.py"]) == sorted(
        each.name for each in project.iterdir()
    )
