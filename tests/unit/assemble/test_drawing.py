"""A bound chart as a drawing."""

import pytest

import interlock
from interlock.errors import UsageError

LAMP = "interlock: 1\nkind: lamp\nstates: {dark: {on: {press: bright}}, bright: {on: {press: dark}}}\n"


def test_a_chart_is_drawn_with_states_or_a_snapshot_highlighted() -> None:
    lamp = interlock.loads(LAMP)
    snapshot = lamp.start(entity="lamp/1").snapshot

    assert lamp.draw("dark").svg == lamp.draw(snapshot).svg != lamp.draw().svg
    assert "● dark" in lamp.draw(snapshot).text


def test_a_notebook_shows_a_chart_as_svg_and_in_words() -> None:
    bundle = interlock.loads(LAMP)._repr_mimebundle_()

    assert {"image/svg+xml", "text/plain"} == bundle.keys()
    assert bundle["image/svg+xml"].startswith("<svg")


def test_two_revisions_are_drawn_as_one() -> None:
    before, after = interlock.loads(LAMP), interlock.loads(LAMP.replace("press: dark", "off: dark"))
    svg = after.diff(before).svg

    assert "+ off" in svg
    assert "- press" in svg


def test_an_unknown_state_or_theme_is_rejected_immediately() -> None:
    lamp = interlock.loads(LAMP)

    with pytest.raises(UsageError, match="drak"):
        lamp.draw("drak")
    with pytest.raises(UsageError, match="drak"):
        lamp.draw(theme="drak")
