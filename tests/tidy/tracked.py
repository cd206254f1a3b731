"""Which files belong to the project, and their text.

A file belongs when git tracks it or would track it. Outside a git checkout (an unpacked archive, a copy without its
history) it is every file that does not lie in a folder made by a tool.
"""

import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "interlock"

_MADE_BY_TOOLS = re.compile(
    r"^(\..+cache|\.cache|\.git|\.hypothesis|\.venv.*|__pycache__|build|dist|htmlcov|node_modules|site|.+\.egg-info)$"
)
_MADE_FILES = re.compile(r"^(\.coverage.*|package-lock\.json|.+\.py[co])$")


@cache
def tracked_files() -> tuple[Path, ...]:
    """Gives every file of the project, sorted, as absolute paths."""
    listed = _listed_by_git()
    files = _listed_by_walking(ROOT) if listed is None else listed
    return tuple(sorted(files))


@cache
def read(path: Path) -> str | None:
    """Gives a file's text, or None for one that is not UTF-8 text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def name(path: Path) -> str:
    """Gives a path as people write it: from the project's root, with slashes."""
    return path.relative_to(ROOT).as_posix()


def python_files(*folders: str) -> tuple[Path, ...]:
    """Gives the Python files below the named folders of the root."""
    return tuple(path for path in tracked_files() if path.suffix == ".py" and name(path).startswith(folders))


def modules() -> dict[str, Path]:
    """Gives every module of the package by its dotted name."""
    found = {}
    for path in python_files("src/interlock/"):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def markdown_files() -> tuple[Path, ...]:
    """Gives the project's pages."""
    return tuple(path for path in tracked_files() if path.suffix == ".md")


def _listed_by_git() -> list[Path] | None:
    command = ["git", "-C", str(ROOT)]
    try:
        top = subprocess.run([*command, "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False)
        if top.returncode != 0 or Path(top.stdout.strip()).resolve() != ROOT:
            return None
        listed = subprocess.run(
            [*command, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError:
        return None
    paths = (ROOT / line for line in listed.stdout.split("\0") if line)
    return [path for path in paths if path.is_file()]  # a file deleted but not yet committed is still listed


def _listed_by_walking(folder: Path) -> list[Path]:
    found: list[Path] = []
    for path in folder.iterdir():
        if path.is_dir():
            if not _MADE_BY_TOOLS.match(path.name):
                found.extend(_listed_by_walking(path))
        elif not _MADE_FILES.match(path.name):
            found.append(path)
    return found
