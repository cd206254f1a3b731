"""`--log`: transitions and warnings as lines of JSON or for people, written by a thread; nothing stays configured."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading

import pytest

from interlock.cli.output import log_handler
from interlock.cli.output.log_handler import LogForm, show_logs
from interlock.cli.output.terminal import Terminal
from interlock.runtime.entities.transition_log import LOGGER, open_transition_log

TRANSITION = {"entity_id": "lamp/1", "duration_ms": 7}


def _log() -> None:
    logging.getLogger("interlock.web").info("a request was refused")
    logging.getLogger(LOGGER).info("transition", extra=TRANSITION)
    try:
        raise ValueError("no such bank")
    except ValueError:
        logging.getLogger("interlock.effects").warning("a handler raised", exc_info=True, extra={"handler": "charge"})


def test_json_has_transitions_and_warnings_and_their_fields(capsys: pytest.CaptureFixture[str]) -> None:
    with show_logs(Terminal(), LogForm.JSON):
        assert open_transition_log() is not None
        _log()
    first, second = [json.loads(each) for each in capsys.readouterr().err.splitlines()]

    assert ("info", LOGGER, "transition", "lamp/1", 7) == (
        first["level"],
        first["logger"],
        first["message"],
        first["entity_id"],
        first["duration_ms"],
    )
    assert ("warning", "charge", "ValueError: no such bank") == (second["level"], second["handler"], second["error"])


def test_lines_for_people_have_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    with show_logs(Terminal(), LogForm.CONSOLE):
        _log()
    lines = capsys.readouterr().err.splitlines()

    assert "info: transition entity_id=lamp/1 duration_ms=7" == lines[0]
    assert "warning: a handler raised: ValueError: no such bank handler=charge" == lines[1]


def test_without_it_transitions_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    with show_logs(Terminal()):
        assert open_transition_log() is None
        _log()

    assert "transition" not in capsys.readouterr().err


def test_nothing_stays_configured() -> None:
    ours, transitions = logging.getLogger("interlock"), logging.getLogger(LOGGER)
    before = ours.level, ours.propagate, list(ours.handlers), transitions.level
    with show_logs(Terminal(), LogForm.JSON):
        pass

    assert before == (ours.level, ours.propagate, list(ours.handlers), transitions.level)


def test_a_slow_terminal_delays_nothing_and_lost_lines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal takes the first line only when all have been logged."""
    monkeypatch.setattr(log_handler, "LINES_WAITING_MAX", 3)
    slow = _Slow()
    monkeypatch.setattr(sys, "stderr", slow)
    with show_logs(Terminal(), LogForm.JSON):
        logging.getLogger(LOGGER).info("transition", extra={"number": 0})
        slow.is_blocked.wait()
        for number in range(1, 8):
            logging.getLogger(LOGGER).info("transition", extra={"number": number})
        slow.goes_on.set()
    lines = [json.loads(each) for each in slow.getvalue().splitlines()]

    assert [0, 1, 2, 3] == [each["number"] for each in lines[:-1]]
    assert ("log lines were dropped", 4) == (lines[-1]["message"], lines[-1]["dropped"])


class _Slow(io.StringIO):
    """Blocks in its first write."""

    def __init__(self) -> None:
        super().__init__()
        self.is_blocked, self.goes_on = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        """Write when the test lets it."""
        self.is_blocked.set()
        self.goes_on.wait()
        return super().write(text)
