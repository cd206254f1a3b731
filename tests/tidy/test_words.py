"""The words of the style guide that a test can judge: those with no right use in this project."""

import re

import pytest

from tests.tidy.tracked import PACKAGE, ROOT, name, read, tracked_files

# Not here: words that are wrong for one concept only (type, index, log, code, state, machine). Reviewers judge those.
BANNED = frozenset({
    "blueprint", "blueprints", "dao", "fsm", "helper", "helpers", "manager", "managers", "memento", "misc",
    "reconstitute", "rehydrate", "rehydrated", "rehydration", "util", "utils",
})  # fmt: skip
# Pages whose subject is other people's words.
EXEMPT = frozenset({"docs/glossary.md", "docs/adr/0002-one-word-per-concept.md"})
# "Context manager" is Python's name for a thing of Python's.
PYTHON_TERMS = re.compile(r"context[ -]managers?", re.IGNORECASE)
LEFTOVER = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b")  # the brackets keep this line from finding itself


def words(text: str) -> list[str]:
    """Gives the words of a text, identifiers taken apart, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", PYTHON_TERMS.sub("", text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("StateManager", ["state", "manager"]),
        ("parse_helper2", ["parse", "helper"]),
        ("an FSM here", ["an", "fsm", "here"]),
        ("@contextmanager", ["contextmanager"]),
        ("a context manager", ["a"]),
    ],
)
def test_identifiers_are_taken_apart(text: str, expected: list[str]) -> None:
    """A banned word is found inside a name, and Python's own terms are not taken for ours."""
    assert expected == words(text)


def test_source_and_docs_use_no_banned_word() -> None:
    """One word per concept: these words stand for none of ours, in text or in file names."""
    found = []
    for path in tracked_files():
        place = name(path)
        if not place.startswith(("src/", "docs/", "examples/", "README.md")) or place in EXEMPT:
            continue
        for number, line in enumerate([place, *(read(path) or "").splitlines()]):
            found += [f"{place}:{number}: {word}" for word in words(line) if word in BANNED]

    assert [] == found


def test_nothing_is_left_for_later() -> None:
    """What is unfinished is not on the main branch; a marker in a file is a promise nobody reads."""
    found = [
        f"{name(path)}:{number}"
        for path in tracked_files()
        for number, line in enumerate((read(path) or "").splitlines(), start=1)
        if LEFTOVER.search(line)
    ]

    assert [] == found


def test_rooms_are_not_grab_bags() -> None:
    """A module called after no concept has no owner."""
    nameless = {"base", "common", "core", "helpers", "manager", "misc", "util", "utils"}
    compiled = "core"  # the C core of shared memory, of which every other way is a fallback
    found = [
        name(path)
        for path in PACKAGE.rglob("*")
        if path.stem.strip("_") in nameless - ({compiled} if path.is_relative_to(PACKAGE / "shm") else set())
    ]

    assert [] == found


def test_each_page_has_one_title() -> None:
    """A page is about one thing and says so in its first heading."""
    wrong = {}
    for path in tracked_files():
        if path.suffix != ".md" or (path.parent == ROOT / "changelog.d" and path.name != "README.md"):
            continue
        outside_code = re.sub(r"^(`{3,}|~{3,}).*?^\1", "", read(path) or "", flags=re.MULTILINE | re.DOTALL)
        titles = re.findall(r"^# .+$", outside_code, flags=re.MULTILINE)
        if len(titles) != 1:
            wrong[name(path)] = titles

    assert {} == wrong
