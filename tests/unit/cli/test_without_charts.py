"""`send` without a chart: the entity is stepped by its definition in the store, or the error names what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import LAMP, Caller
from tests.support.old_stores import forget_definitions

STORES = ("sqlite:///lamps.db", "file:lamps")
PROGRAM = """
import interlock

lamps = interlock.load("guarded.yaml")
lamps.guard("may_shine")(lambda context, event: True)
"""


@pytest.mark.parametrize("store", STORES)
def test_an_entity_is_stepped_by_its_stored_definition(call: Caller, folder: Path, store: str) -> None:
    (folder / "payload.yaml").write_text(
        LAMP.replace("kind: lamp", "kind: lamp\nevents: {press: {payload: {n: {type: integer, required: true}}}}")
    )
    call("create", store, "lamp/1", "--chart", "payload.yaml")
    tried = call("send", store, "lamp/1", "press", '{"n": 1}', "--dry-run")
    sent = call("send", store, "lamp/1", "press", '{"n": 1}')
    misspelled = call("send", store, "lamp/1", "pres")
    malformed = call("send", store, "lamp/1", "press", '{"n": "one"}')

    assert [0, 0, 2, 2] == [each.code for each in (tried, sent, misspelled, malformed)]
    assert "applied: bright (version 2)" in sent.out
    assert 'did you mean "press"?' in misspelled.err
    assert 0 == call("verify", store).code


@pytest.mark.parametrize("store", STORES)
def test_a_missing_function_is_named_with_the_program_that_has_it(call: Caller, folder: Path, store: str) -> None:
    (folder / "guarded.yaml").write_text(LAMP.replace("press: bright", "press: {target: bright, guard: may_shine}"))
    (folder / "program.py").write_text(PROGRAM)
    call("create", store, "lamp/1", "--chart", "program:lamps")
    alone = call("send", store, "lamp/1", "press")
    with_code = call("send", store, "lamp/1", "press", "--chart", "program:lamps")

    assert (7, 0) == (alone.code, with_code.code)
    assert "`may_shine`" in alone.err
    assert "--chart module:name" in alone.err


def test_without_a_definition_the_error_says_how_to_give_one(call: Caller, folder: Path) -> None:
    call("create", STORES[0], "lamp/1", "--chart", "lamp.yaml")
    forget_definitions(folder / "lamps.db")
    sent = call("send", STORES[0], "lamp/1", "press")

    assert 7 == sent.code
    assert "--chart FILE" in sent.err


def test_an_unknown_entity_is_an_error(call: Caller, folder: Path) -> None:
    call("create", STORES[0], "lamp/1", "--chart", "lamp.yaml")

    assert 6 == call("send", STORES[0], "lamp/2", "press").code
