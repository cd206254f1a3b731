"""Errors: codes, hints, pickling; diagnostics: the line, the annotation, the order."""

from __future__ import annotations

import pickle

import pytest

from interlock import errors
from interlock.errors import (
    ArchivedError,
    DefinitionError,
    Diagnostic,
    ImpureFunctionError,
    InterlockError,
    RejectedError,
    SourceLocation,
    UsageError,
)


def test_an_error_says_its_message_and_its_hint() -> None:
    assert str(RejectedError("no", hint="wait")) == "no (wait)"
    assert str(RejectedError("no")) == "no"
    assert RejectedError("no").code == "rejected"
    assert RejectedError("no", code="x.y").code == "x.y"


@pytest.mark.parametrize(
    "error",
    [
        RejectedError("no", code="a.b", hint="wait"),
        UsageError("bad"),
        ArchivedError("order/1", 7, "file:///archive"),
        ImpureFunctionError("the guard `late` is not pure", function="late", hint="use only the arguments"),
        DefinitionError([Diagnostic(code="a.b", message="m")]),
    ],
)
def test_errors_survive_pickling(error: InterlockError) -> None:
    again = pickle.loads(pickle.dumps(error))  # our own bytes

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_every_class_has_its_own_code() -> None:
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, InterlockError)]

    assert len({each.code for each in classes}) == len(classes)


def test_a_definition_error_lists_all_diagnostics_by_position() -> None:
    second = Diagnostic(code="b", message="later", location=SourceLocation("f", 9, 1))
    first = Diagnostic(code="a", message="sooner", location=SourceLocation("f", 2, 1), severity="warning")
    error = DefinitionError([second, first])

    assert error.diagnostics == (first, second)
    assert str(error) == "1 error in the definition\n  f:9:1 error b: later"
    assert "2 errors" in str(DefinitionError([second, second]))


def test_a_diagnostic_is_one_line_with_place_path_and_hint() -> None:
    """`file:line:column severity code path: message; hint`."""
    location = SourceLocation("order.yaml", 14, 7, 14, 15, "states.paid")
    found = Diagnostic(code="target.unknown", message='no state "x"', location=location, hint='did you mean "y"?')

    assert str(found) == 'order.yaml:14:7 error target.unknown states.paid: no state "x"; did you mean "y"?'
    assert str(Diagnostic(code="a", message="m")) == "<definition>:1:1 error a: m"


def test_an_annotation_escapes_what_the_command_syntax_uses() -> None:
    """Percent signs and line breaks would end a workflow command."""
    found = Diagnostic(
        code="a", message="50%\r\nx", location=SourceLocation("f", 1, 2, 3, 4), severity="info", hint="h"
    )

    assert found.annotation() == "::notice file=f,line=1,col=2,endLine=3,endColumn=4,title=a::50%25%0D%0Ax; h"
    assert Diagnostic(code="a", message="m").annotation().endswith("::m")


def test_a_place_moves_inside_one_line() -> None:
    location = SourceLocation("f", 3, 10, 3, 20, "guard")

    assert location.shift(2, 5) == SourceLocation("f", 3, 12, 3, 15, "guard")
    assert location.shift(2, 2).end_column == 13
    assert location.with_path("x").path == "x"
    assert str(location) == "f:3:10"
