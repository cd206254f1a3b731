"""The arguments of `create` and `send`, which several classes pass on, are shown by each of them."""

from __future__ import annotations

from inspect import signature

import pytest

import interlock
from interlock.runtime.request_checks import CREATE_ARGUMENTS, SEND_ARGUMENTS


@pytest.mark.parametrize(
    "shown", [interlock.Runtime, interlock.BlockingRuntime, interlock.Joined, interlock.AsyncJoined]
)
def test_every_runtime_shows_the_arguments_of_create_and_send(shown: type) -> None:
    """Not `**options`: `help` and interactive tools would name none of them. A new argument cannot be left out."""
    created, sent = signature(vars(shown)["create"]).parameters, signature(vars(shown)["send"]).parameters

    assert ["self", "entity", *CREATE_ARGUMENTS] == list(created)
    assert ["self", "entity", "event", *SEND_ARGUMENTS] == [each for each in sent if each not in ("unknown", "reader")]
