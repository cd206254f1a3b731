"""Comments survive a rewrite in canonical form, next to what they belong to."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.assemble.charts import format_writer, read_text
from interlock.definition.vocabulary.chart import SCHEMA_LINE
from interlock.definition.yaml.comments import carry_comments, find_comments

FILES = sorted(
    [*Path("examples").rglob("*.interlock.yaml"), *Path("src/interlock/cli/templates").rglob("*.interlock.yaml.in")]
)


def formatted(text: str) -> str:
    """The canonical form with its comments."""
    document = read_text(text, format="yaml", source="x").document
    assert document is not None
    return carry_comments(text, format_writer("yaml")(document).text)


def comments_of(text: str) -> list[str]:
    """All comments, sorted."""
    lines = text.split("\n")
    found = [lines[each.line - 1][each.column - 1 :].strip() for each in find_comments(text)]
    return sorted(each for each in found if each != SCHEMA_LINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name + "-" + path.name)
def test_every_comment_survives_and_the_result_is_stable(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("@kind@", "shop")
    found = formatted(text)

    assert comments_of(text) == comments_of(found)
    assert found == formatted(found)
    assert read_text(text, format="yaml", source="x").document == read_text(found, format="yaml", source="x").document


HEAD = f"{SCHEMA_LINE}\ninterlock: 1\nkind: lamp\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # above a key that moves, next to a key that moves
            "states:\n  a:\n    # out\n    on: {go: b}\n    expect: {within: 1h}  # soon\n  b: {type: final} # z\n",
            "states:\n  # out\n  a: {expect: {within: 1h}, on: {go: b}}  # soon\n  b: {type: final}  # z\n",
        ),
        (  # at the top and at the end
            "# about lamps\n\nstates: {a: {type: final}}\n# the end\n",
            "# about lamps\nstates:\n  a: {type: final}\n# the end\n",
        ),
        (  # a key that the canonical form does not have: the default is left out
            "unhandled: reject  # strict\nstates:\n  a: {type: final}\n",
            None,
        ),
        (  # what looks like a comment, and is none
            "description: 'a # b'\nstates:\n  a: {type: final, description: \"# c\"}  # d\n",
            'description: "a # b"\nstates:\n  a: {type: final, description: "# c"}  # d\n',
        ),
        (  # after the header of a block, and after the block
            "description: |  # long\n  # of the text\n  two\n# of the states\nstates: {a: {type: final}}\n",
            "description: |  # long\n  # of the text\n  two\n# of the states\nstates:\n  a: {type: final}\n",
        ),
    ],
)
def test_a_comment_stays_with_its_key(text: str, expected: str | None) -> None:
    found = formatted(f"interlock: 1\nkind: lamp\n{text}")

    assert comments_of(text) == comments_of(found)
    assert found == formatted(found)
    if expected is not None:
        assert HEAD + expected == found


def test_a_comment_above_the_schema_line_and_windows_line_ends_survive() -> None:
    text = f"# mine\r\n{SCHEMA_LINE}\r\ninterlock: 1\r\nkind: lamp # k\r\nstates: {{a: {{type: final}}}}\r\n"
    expected = f"{SCHEMA_LINE}\n# mine\ninterlock: 1\nkind: lamp  # k\nstates:\n  a: {{type: final}}\n"

    assert expected == formatted(text)
