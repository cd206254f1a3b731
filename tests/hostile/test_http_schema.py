"""Requests that are generated from the OpenAPI document, valid and invalid, against a real server.

Schemathesis generates them: no response is a server error, and each one is what the document says. Streams have no end
and are left out; `tests/unit/web/api/test_streams.py` tests them.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from interlock.trust.users import RIGHTS
from interlock.web.app import ENDPOINTS
from tests.hostile.http_exhaustion import KEY, Server, serving

CHART = """
interlock: 1
kind: lamp
revision: 1.0.0
context: {n: {type: integer, default: 0}}
events: {flip: {roles: [clerk], payload: {by: {type: integer, default: 1}}}, note: {roles: [clerk]}}
initial: off
states:
  off: {on: {flip: {target: on, actions: [{assign: {n: "= context.n + event.data.by"}}]}}, after: {1h: on}}
  on: {on: {flip: off, note: {}}}
"""
KNOWN_NAMES = '[parameters]\n"path.entity" = "lamp/a"\n"path.kind" = "lamp"\n'
LEFT_OUT = "/streams/"
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance"),
    *("response_schema_conformance", "negative_data_rejection", "unsupported_method", "ignored_auth"),
)
"""Not `positive_data_acceptance`: a request that fits the document may still name what does not exist."""
EXAMPLES = int(os.environ.get("INTERLOCK_SCHEMA_EXAMPLES", "10"))


def sign_in(server: Server) -> list[str]:
    """Start a session, and return the headers of a page."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    origin = f"http://127.0.0.1:{server.port}"
    headers = {"Origin": origin, "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/login", json.dumps({"secret": KEY}), headers)
    response = connection.getresponse()
    token = json.load(response)["csrf"]
    cookie = (response.getheader("set-cookie") or "").partition(";")[0]
    connection.close()
    return [f"Cookie: {cookie}", f"X-Interlock-CSRF: {token}", f"Origin: {origin}"]


@pytest.mark.slow
@pytest.mark.parametrize("login", ["key", "session"])
def test_every_response_is_what_the_openapi_document_says(login: str, tmp_path: Path) -> None:
    if login == "session":  # known names reach what is behind the first check; the other run has any text there
        (tmp_path / "schemathesis.toml").write_text(KNOWN_NAMES, encoding="utf-8")
    with serving(tmp_path, rights=RIGHTS, chart=CHART) as server:
        headers = [f"Authorization: Bearer {KEY}"] if login == "key" else sign_in(server)
        command = [f"{sysconfig.get_path('scripts')}/schemathesis", "run", "--no-color", "--no-shrink"]
        command += [f"http://127.0.0.1:{server.port}/api/v1/openapi.json", "--max-examples", str(EXAMPLES)]
        command += ["--checks", ",".join(CHECKS), "--exclude-path-regex", LEFT_OUT, "--seed", "7", "--warnings", "off"]
        command += ["--generation-deterministic", "--request-timeout", "120"]
        command += [word for each in headers for word in ("-H", each)]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        log = server.log.read_text(encoding="utf-8")

    assert 0 == ended.returncode, ended.stdout[-20_000:] + ended.stderr[-2_000:]
    tested = re.search(r"Tested: (\d+)", ended.stdout)
    assert tested is not None, ended.stdout
    assert sum(LEFT_OUT not in each.path for each in ENDPOINTS) == int(tested[1])
    assert "Traceback" not in log
