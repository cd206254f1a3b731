"""The files of the page about deployment: their commands exist, and their time to stop is longer than a drain."""

from __future__ import annotations

import json
import re
import shlex
from configparser import ConfigParser

import pytest
import yaml

from interlock.cli.commands.operation.run import run_command
from interlock.model.duration import parse_duration
from tests.docs.pages import blocks
from tests.tidy.tracked import ROOT

PAGE = ROOT / "docs" / "guide" / "deploy.md"
FILES = {block.file: block.text for block in blocks(PAGE) if block.file}
DOCKERFILE = FILES["Dockerfile"]
MANIFEST = yaml.safe_load(FILES["worker.yaml"])
POD = MANIFEST["spec"]["template"]["spec"]


def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # systemd's names have capitals
    parser.read_string(FILES["interlock-worker@.service"])
    return parser


def of_docker() -> tuple[list[str], int]:
    command = re.search(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    stop = re.search(r"docker stop --timeout (\d+)", PAGE.read_text(encoding="utf-8"))
    assert command is not None
    assert stop is not None
    return json.loads(command[1]), int(stop[1])


def of_systemd() -> tuple[list[str], int]:
    service = unit()["Service"]
    return shlex.split(service["ExecStart"]), int(service["TimeoutStopSec"])


def of_kubernetes() -> tuple[list[str], int]:
    (container,) = POD["containers"]
    return container["args"], POD["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("found", [of_docker(), of_systemd(), of_kubernetes()], ids=["docker", "systemd", "kubernetes"])
def test_a_worker_has_time_to_drain(found: tuple[list[str], int]) -> None:
    """The command line is one that `interlock run` accepts, and whoever stops it waits longer than its drain."""
    (program, command, *words), grace_seconds = found
    context = run_command.make_context("run", words)
    drain_ms = parse_duration(context.params["drain"])

    assert ("interlock", "run") == (program.rpartition("/")[2], command)
    assert drain_ms is not None
    assert drain_ms + 10_000 <= grace_seconds * 1000


def test_probes_ask_the_port_that_the_worker_listens_on() -> None:
    (container,) = POD["containers"]
    address = container["args"][container["args"].index("--probe") + 1]
    (port,) = container["ports"]
    paths = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    annotations = MANIFEST["spec"]["template"]["metadata"]["annotations"]

    assert f"0.0.0.0:{port['containerPort']}" == address
    assert {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"} == paths
    assert {"probe"} == {container[name]["httpGet"]["port"] for name in paths}
    assert str(port["containerPort"]) == annotations["prometheus.io/port"]
    assert f"http://127.0.0.1:{port['containerPort']}/livez" in DOCKERFILE
    assert MANIFEST["spec"]["selector"]["matchLabels"] == MANIFEST["spec"]["template"]["metadata"]["labels"]


def test_the_signal_reaches_the_worker_itself() -> None:
    """A shell as process 1 would not pass it on, and a unit that kills the whole group would end its handlers."""
    service = unit()["Service"]

    assert re.search(r"^(CMD|ENTRYPOINT) [^\[]", DOCKERFILE, re.MULTILINE) is None
    assert ("SIGTERM", "mixed", "exec") == (service["KillSignal"], service["KillMode"], service["Type"])
    assert "STOPSIGNAL SIGTERM" in DOCKERFILE
