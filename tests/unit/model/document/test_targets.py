"""Ids and targets: V5 and V6 of the vocabulary."""

from __future__ import annotations

import pytest

from interlock.model.document.document import Document, State
from interlock.model.document.targets import SUGGESTIONS_MAX, TargetIndex, Unresolved


def _tree() -> TargetIndex:
    deep = State(key="a", states=(State(key="x", states=(State(key="leaf"),)), State(key="y", id="why")))
    return TargetIndex(
        Document(kind="k", root=State(states=(deep, State(key="b", states=(State(key="x"),)), State(key="c"))))
    )


def _index(tree: TargetIndex, name: str) -> int:
    return tree.by_id[name]


def test_an_id_is_the_dotted_path_unless_given() -> None:
    assert _tree().ids == ["", "a", "a.x", "a.x.leaf", "why", "b", "b.x", "c"]


@pytest.mark.parametrize(
    ("source", "text", "target"),
    [
        ("a", "b", "b"),
        ("a.x", "y", "why"),
        ("a.x", "b.x", "b.x"),
        ("a.x.leaf", "c", "c"),
        ("a", "a", "a"),
        ("a", ".x", "a.x"),
        ("a", ".x.leaf", "a.x.leaf"),
        ("c", "#why", "why"),
        ("c", "#a.x.leaf", "a.x.leaf"),
        ("c", "#a.x", "a.x"),
        ("", "a", "a"),
        ("", "a.x", "a.x"),
    ],
)
def test_targets_are_looked_for_outward(source: str, text: str, target: str) -> None:
    """Siblings first, then the children of each ancestor; `.` below, `#` anywhere."""
    tree = _tree()

    assert tree.resolve_target(_index(tree, source), text) == _index(tree, target)


def test_an_id_may_be_followed_by_a_path() -> None:
    """`#why` has no children, `#a.x` is an id itself; `#a` with a path goes below it."""
    inner = State(key="p", id="pid", states=(State(key="q", id="other", states=(State(key="r", id="deep"),)),))
    tree = TargetIndex(Document(kind="k", root=State(states=(inner,))))

    assert tree.resolve_target(0, "#pid.q") == 2
    assert tree.resolve_target(0, "#pid.q.r") == 3
    assert isinstance(tree.resolve_target(0, "#pid.z"), Unresolved)


def test_a_name_at_two_levels_is_ambiguous() -> None:
    inner = State(key="a", states=(State(key="b"), State(key="c")))
    tree = TargetIndex(Document(kind="k", root=State(states=(inner, State(key="b")))))
    found = tree.resolve_target(_index(tree, "a.c"), "b")

    assert isinstance(found, Unresolved)
    assert found.code == "target.ambiguous"
    assert found.hint == 'write "#a.b" or "#b"'


@pytest.mark.parametrize(
    ("text", "hint"),
    [("cc", 'did you mean "c"?'), ("#wy", 'did you mean "#why"?'), (".xx", 'did you mean "x"?'), ("zzzzz", None)],
)
def test_an_unknown_target_comes_with_the_nearest_name(text: str, hint: str | None) -> None:
    tree = _tree()
    found = tree.resolve_target(_index(tree, "a"), text)

    assert isinstance(found, Unresolved)
    assert found.code == "target.unknown"
    assert found.hint == hint


def test_a_far_state_is_suggested_by_its_id() -> None:
    tree = _tree()
    found = tree.resolve_target(_index(tree, "c"), "a.x.laef")

    assert isinstance(found, Unresolved)


def test_initial_looks_among_its_own_children() -> None:
    """With or without a leading dot; `#id` anywhere."""
    tree = _tree()
    a = _index(tree, "a")

    assert tree.resolve_child(a, "x") == _index(tree, "a.x")
    assert tree.resolve_child(a, ".x.leaf") == _index(tree, "a.x.leaf")
    assert tree.resolve_child(a, "#b") == _index(tree, "b")
    assert isinstance(tree.resolve_child(a, "b"), Unresolved)


def test_in_takes_an_id_before_a_target() -> None:
    tree = _tree()

    assert tree.resolve_in_state(_index(tree, "c"), "a.x") == _index(tree, "a.x")
    assert tree.resolve_in_state(_index(tree, "a.x"), "y") == _index(tree, "why")
    assert isinstance(tree.resolve_in_state(0, ""), Unresolved)


def test_a_second_state_of_one_id_is_a_duplicate() -> None:
    tree = TargetIndex(Document(kind="k", root=State(states=(State(key="a", id="n"), State(key="b", id="n")))))

    assert list(tree.duplicate_ids()) == [2]


def test_descendants_and_ancestors_follow_the_numbers() -> None:
    tree = _tree()
    a, leaf = _index(tree, "a"), _index(tree, "a.x.leaf")

    assert tree.is_descendant(leaf, a)
    assert not tree.is_descendant(a, a)
    assert list(tree.ancestors(leaf)) == [_index(tree, "a.x"), a, 0]


def test_suggestions_for_unknown_targets_are_limited() -> None:
    tree = _tree()
    found = [tree.resolve_target(1, "#nowhere") for _ in range(SUGGESTIONS_MAX + 1)]

    last = found[-1]
    assert isinstance(last, Unresolved)
    assert ("target.unknown", None) == (last.code, last.hint)
    assert SUGGESTIONS_MAX + 1 == tree.suggestion_count
