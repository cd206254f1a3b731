"""Middleware that answers a request whose send failed with a fitting status, after its transaction was rolled back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, JsonResponse

from interlock.errors import (
    ConflictError,
    DeniedError,
    InterlockError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    UsageError,
)

STATUS: tuple[tuple[type[InterlockError], int], ...] = (
    (RejectedError, 422),
    (DeniedError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (UnavailableError, 503),
)

FROM_CLIENTS = ("event.", "key.", "entity.")
"""The codes of mistakes that the content of a request can cause: 400. Other mistakes are those of the program: 500."""


class ErrorResponses:
    """Turns errors of Interlock that leave a view into JSON with `code`, `message` and `hint`."""

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        """Return the response of the view."""
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> JsonResponse | None:  # noqa: ARG002 - the signature of Django
        """Return the response to an error; None leaves it to Django."""
        if not isinstance(exception, InterlockError):
            return None
        status = next((number for cls, number in STATUS if isinstance(exception, cls)), None)
        if isinstance(exception, UsageError) and exception.code.startswith(FROM_CLIENTS):
            status = 400
        if status is None:
            return None
        answer = {"code": exception.code, "message": exception.message, "hint": exception.hint}
        headers = {"Retry-After": "1"} if status in {409, 503} else {}
        return JsonResponse(answer, status=status, headers=headers)
