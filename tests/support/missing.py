"""Runs code in another interpreter in which some modules cannot be imported: an install without an extra.

Removing modules from `sys.modules` of the test's own process leaves two copies of them behind, and tests that run later
then patch one copy and use the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_BLOCKED = """\
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
_ERROR = """\
import json
from interlock.errors import InterlockError
try:
{code}
except InterlockError as error:
    print(json.dumps([type(error).__name__, error.code, error.hint]))
"""


def run_without(*modules: str, code: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter without these modules; return how it ended."""
    command = [sys.executable, "-c", _BLOCKED.format(modules=modules) + code]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def error_without(*modules: str, code: str) -> list[str | None]:
    """Return class, code and hint of the error that code raises in an interpreter without these modules."""
    lines = "\n".join(f"    {each}" for each in code.splitlines())
    ended = run_without(*modules, code=_ERROR.format(code=lines))
    assert ended.returncode == 0, ended.stderr
    found: list[str | None] = json.loads(ended.stdout)
    return found
