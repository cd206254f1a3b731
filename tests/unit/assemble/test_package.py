"""The package itself: names that are imported when they are used, and nothing else."""

import importlib

import pytest


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    interlock = importlib.import_module("interlock")

    with pytest.raises(AttributeError, match="module 'interlock' has no attribute 'nonsense'"):
        _ = interlock.nonsense
    assert not hasattr(interlock, "nonsense")


def test_every_name_is_listed_and_is_the_one_of_its_home() -> None:
    """`dir` shows them before they are used; the second use finds the first one's object."""
    interlock = importlib.import_module("interlock")

    assert set(interlock.__all__) <= set(dir(interlock))
    for name in interlock.__all__:
        assert getattr(interlock, name) is getattr(interlock, name)
    assert interlock.build is importlib.import_module("interlock.definition.builder.namespace")
    assert interlock.__version__ == importlib.import_module("importlib.metadata").version("interlock")
