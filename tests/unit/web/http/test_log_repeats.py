"""The filter for repeated log records."""

import logging

import pytest

from interlock.model.limits import LOG_REPEAT_MS
from interlock.web.http.log_repeats import RECORDS_MAX, RepeatFilter, limited_logs


def record(text: str, created: float, **facts: object) -> logging.LogRecord:
    """Return a warning with this time."""
    return logging.makeLogRecord({"msg": text, "levelno": logging.WARNING, "created": created, **facts})


def test_repeated_records_are_counted_in_the_next_one() -> None:
    repeats = RepeatFilter()
    later = LOG_REPEAT_MS / 1000
    many = [record("full", number / 1000) for number in range(1_000)]
    again = record("full", later)

    assert [True] + [False] * 999 == [repeats.filter(each) for each in many]
    assert (True, 999) == (repeats.filter(again), getattr(again, "repeated", None))


def test_different_records_are_not_suppressed() -> None:
    repeats = RepeatFilter()
    failure = (ValueError, ValueError("x"), None)
    kinds = [
        record("full", 0),
        record("lost", 0),
        record("full", 0, exc_info=failure),
        record("full", 0, endpoint="/kinds"),
        record("full", 0, endpoint="/work"),
    ]

    assert [True] * 5 == [repeats.filter(each) for each in kinds]


def test_clock_going_backwards_suppresses_nothing() -> None:
    repeats = RepeatFilter()

    assert [True, True] == [repeats.filter(record("full", created)) for created in (1_000.0, 1.0)]


def test_number_of_remembered_records_is_limited() -> None:
    repeats = RepeatFilter()
    for number in range(3 * RECORDS_MAX):
        repeats.filter(record(f"number {number}", 0))

    assert len(repeats._seen) <= RECORDS_MAX


def test_filter_is_removed_after_the_block(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("interlock.web.test")
    with caplog.at_level(logging.WARNING):
        with limited_logs([log.name]):
            for _ in range(3):
                log.warning("full")
        log.warning("full")

    assert 2 == len(caplog.records)
