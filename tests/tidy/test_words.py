"""The parts of the style guide on words that a test can judge."""

import re

from tests.tidy.tracked import PACKAGE, ROOT, name, read, tracked_files

LEFTOVER = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b")  # the brackets keep this line from finding itself


def test_nothing_is_left_for_later() -> None:
    """What is unfinished is not on the main branch; a marker in a file is a promise that is not kept."""
    found = [
        f"{name(path)}:{number}"
        for path in tracked_files()
        for number, line in enumerate((read(path) or "").splitlines(), start=1)
        if LEFTOVER.search(line)
    ]

    assert [] == found


def test_no_module_is_a_grab_bag() -> None:
    nameless = {"base", "common", "core", "helpers", "manager", "misc", "util", "utils"}
    compiled = "core"  # the C core of shared memory, which has a fallback in Python
    found = [
        name(path)
        for path in PACKAGE.rglob("*")
        if path.stem.strip("_") in nameless - ({compiled} if path.is_relative_to(PACKAGE / "shm") else set())
    ]

    assert [] == found


def test_each_page_has_one_title() -> None:
    wrong = {}
    for path in tracked_files():
        if path.suffix != ".md" or (path.parent == ROOT / "changelog.d" and path.name != "README.md"):
            continue
        outside_code = re.sub(r"^(`{3,}|~{3,}).*?^\1", "", read(path) or "", flags=re.MULTILINE | re.DOTALL)
        titles = re.findall(r"^# .+$", outside_code, flags=re.MULTILINE)
        if len(titles) != 1:
            wrong[name(path)] = titles

    assert {} == wrong
