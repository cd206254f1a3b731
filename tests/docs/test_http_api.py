"""The reference of the HTTP API lists exactly the endpoints of the server, with the right that each needs."""

import re

import pytest

from tests.tidy.tracked import ROOT

web = pytest.importorskip("interlock.web.app")

PAGE = ROOT / "docs" / "reference" / "http-api.md"
_ROW = re.compile(r"^\| `([A-Z]+ /[^`]*)` \| (?:`([a-z:]+)`|none) \|", re.MULTILINE)


def test_every_endpoint_is_documented_with_its_right() -> None:
    real = {f"{each.method} /api/v1{each.path.replace(':path', '')}": each.right for each in web.ENDPOINTS}
    shown = {name: right or None for name, right in _ROW.findall(PAGE.read_text(encoding="utf-8"))}

    assert real == shown


def test_every_query_and_body_field_is_documented() -> None:
    text = PAGE.read_text(encoding="utf-8")
    missing = [
        f"{each.path}: {field}"
        for each in web.ENDPOINTS
        for part in (each.query, each.body)
        for field in getattr(part, "__struct_encode_fields__", ())
        if f"`{field}`" not in text
    ]

    assert [] == missing
