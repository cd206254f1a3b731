"""Section 4: which event names a descriptor takes."""

from __future__ import annotations

import pytest

from tests.conformance.semantics.life import Life


@pytest.mark.parametrize(
    ("descriptor", "name", "takes"),
    [
        ("foo", "foo", True),
        ("foo", "foo.bar", True),
        ("foo", "foo.bar.baz", True),
        ("foo", "foobar", False),
        ("foo", "Foo", False),
        ("foo", "fo", False),
        ("foo.bar", "foo", False),
        ("foo.*", "foo", True),
        ("foo.*", "foo.bar", True),
        ("foo.*", "foobar", False),
        ("*", "anything.at.all", True),
        ("a, b.c", "a", True),
        ("a, b.c", "b.c.d", True),
        ("a, b.c", "b", False),
    ],
)
def test_section_4_descriptors_match_whole_tokens(descriptor: str, name: str, takes: bool) -> None:
    """A prefix of whole tokens, case-sensitive; several in one transition (W3C 399)."""
    life = Life(f"unhandled: ignore\nstates: {{a: {{on: {{'{descriptor}': {{actions: [taken]}}}}}}}}")

    assert ("taken" if takes else "") == life.send(name)


def test_section_4_a_star_takes_done_and_error_events_too() -> None:
    life = Life("""
        states:
          c:
            on: {"*": {actions: [{log: "= event.name"}]}}
            states: {a: {on: {e: f}}, f: {type: final, entry: [{log: "= 1 // 0"}]}}
        """)

    assert "-a +f error.execution done.state.c" == life.send("e")


def test_section_4_made_transitions_stand_before_on() -> None:
    """A state's own `*` does not hide its `onDone`; written `transitions` come after `on`."""
    life = Life("""
        states:
          c:
            on: {"*": {actions: [star]}}
            onDone: {actions: [done]}
            states: {a: {on: {e: f}}, f: {type: final}}
        """)

    assert "-a +f done" == life.send("e")


def test_section_4_the_star_of_a_descendant_hides_them() -> None:
    """Inner states win, as in SCXML."""
    life = Life("""
        states:
          c:
            onDone: {actions: [done]}
            states: {a: {on: {e: f}}, f: {type: final}}
          """)
    hidden = Life("""
        states:
          o: {after: {1s: {actions: [timer]}}, states: {a: {on: {"*": {actions: [star]}}}}}
        """)

    assert "-a +f done" == life.send("e")
    assert "star" == hidden.fire(hidden.timer("after.1s.o"))
