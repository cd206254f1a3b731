"""Files of the repository: no machine's paths, no registry, no lock files, nothing built."""

import re
import tomllib

from tests.tidy.tracked import ROOT, name, read, tracked_files

# A path that exists on one machine only. The lookbehind lets URLs and relative paths pass.
MACHINE_PATH = re.compile(r"(?<![\w.~$}*-])/(?:root|home|Users|work|opt|mnt|private|tmp)/[\w.-]+")
# Where packages come from is the configuration of the machine that installs.
REGISTRY = re.compile(
    r"\b(?:(?:test\.)?pypi\.(?:org|python\.org)|pythonhosted\.org|registry\.(?:npmjs\.org|yarnpkg\.com)|npmjs\.com"
    r"|anaconda\.org|ghcr\.io|docker\.io|quay\.io|crates\.io)\b"
)
LOCK_FILES = frozenset({
    "Pipfile.lock", "npm-shrinkwrap.json", "package-lock.json", "pnpm-lock.yaml", "poetry.lock", "pylock.toml",
    "uv.lock", "yarn.lock",
})  # fmt: skip
BUILT = frozenset({".so", ".pyd", ".dylib", ".dll", ".o", ".a", ".whl", ".pyc"})


def places(pattern: re.Pattern[str]) -> list[str]:
    """Gives `file:line: text` for each match in the project."""
    return [
        f"{name(path)}:{number}: {match.group()}"
        for path in tracked_files()
        for number, line in enumerate((read(path) or "").splitlines(), start=1)
        for match in pattern.finditer(line)
    ]


def test_the_patterns_find_what_they_are_for() -> None:
    slash = "/"
    assert MACHINE_PATH.search(f"see {slash}home{slash}ada/notes")
    assert MACHINE_PATH.search(f'"{slash}tmp{slash}x"')
    assert not MACHINE_PATH.search("https://example.org/home/page")
    assert not MACHINE_PATH.search("docs/home/page.md")
    assert REGISTRY.search("https://pypi" + ".org/simple")
    assert not REGISTRY.search("https://pypi.example.org")


def test_no_file_names_a_machine_path() -> None:
    assert [] == places(MACHINE_PATH)


def test_no_file_names_a_registry() -> None:
    assert [] == places(REGISTRY)


def test_no_lock_file_is_tracked() -> None:
    assert [] == [name(path) for path in tracked_files() if path.name in LOCK_FILES]


def test_nothing_built_is_tracked() -> None:
    assert [] == [name(path) for path in tracked_files() if path.suffix in BUILT]


def test_every_dependency_is_pinned() -> None:
    """constraints.txt holds an exact version for whatever pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [entry for group in project["dependency-groups"].values() for entry in group if isinstance(entry, str)]
    asked = {
        _canonical(re.split(r"[<>=!~\[; ]", wish, maxsplit=1)[0])
        for wish in [*project["project"]["dependencies"], *project["build-system"]["requires"], *groups, "pip"]
    }
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]

    assert [] == [line for line in pins if not re.fullmatch(r"[\w.-]+==[\w.!+]+", line)]
    assert set() == asked - {_canonical(line.split("==")[0]) for line in pins}


def test_scripts_are_executable() -> None:
    assert [] == [name(path) for path in (ROOT / ".ci").iterdir() if not path.stat().st_mode & 0o100]


def _canonical(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
