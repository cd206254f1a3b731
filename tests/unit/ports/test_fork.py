"""Rules for forked children: all of them run, and freed objects have none."""

from __future__ import annotations

import gc

import pytest

from interlock.ports import fork
from interlock.ports.fork import after_fork

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


class Thing:
    """Something that is inherited."""

    def __init__(self) -> None:
        self.told = 0


def test_an_error_in_one_rule_does_not_stop_the_others() -> None:
    things = [Thing(), Thing(), Thing()]

    def told(thing: Thing) -> None:
        thing.told += 1
        if thing is things[1]:
            raise ValueError("no")

    for each in things:
        after_fork(each, told)
    with pytest.raises(ExceptionGroup) as caught:
        fork._run_rules()
    for each in things:
        after_fork(each, lambda _: None)

    assert ([1, 1, 1], 1) == ([each.told for each in things], len(caught.value.exceptions))


def test_a_freed_object_has_no_rule() -> None:
    gc.collect()  # what other tests left
    before = len(fork._rules)
    things = [Thing() for _ in range(5)]
    for each in things:
        after_fork(each, lambda _: None)
    during = len(fork._rules)
    del things, each
    gc.collect()

    assert (5, 0) == (during - before, len(fork._rules) - before)
