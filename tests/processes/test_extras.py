"""Without an extra: the error names the package and the command that installs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from interlock.render.drawing import make_drawing
from interlock.render.svg.png import png
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.missing import error_without, run_without
from tests.unit.cli.test_stores import CHARTED
from tests.unit.render.charts import flat


def test_a_missing_extra_names_the_package_and_creates_nothing(folder: Path) -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "starlette":
            raise ModuleNotFoundError(name, name="starlette")
sys.meta_path.insert(0, Absent())
from interlock.cli.main import main
sys.exit(main(["demo", "--no-browser"]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )

    assert (9, "") == (ended.returncode, ended.stdout)
    assert "pip install 'interlock[web]', or use --no-console" in ended.stderr
    assert not (folder / "interlock-demo").exists()


def test_a_missing_extra_names_the_package(folder: Path) -> None:
    words = ["serve", "memory:", "--chart", "lamp.yaml", "--port", "0"]
    code = f"from interlock.cli.main import main\nsys.exit(main({words!r}))"
    ended = run_without("starlette", code=code, cwd=folder)

    assert (9, True) == (ended.returncode, "interlock[web]" in ended.stderr)


@pytest.mark.parametrize(
    "words",
    [("ls", "postgresql://127.0.0.1:1/shop"), ("create", "postgresql://127.0.0.1:1/shop", "lamp/1", *CHARTED)],
    ids=["a command that reads", "a command that writes"],
)
def test_a_driver_that_is_not_installed_is_named(words: tuple[str, ...], folder: Path) -> None:
    code = f"from interlock.cli.main import main\nsys.exit(main({list(words)!r}))"
    ended = run_without("asyncpg", code=code, cwd=folder)

    assert (9, True) == (ended.returncode, "pip install 'interlock[postgres]'" in ended.stderr)


@pytest.mark.parametrize(
    ("extra", "url", "package"),
    [
        ("nats", "nats://a?stream=s", "nats"),
        ("redis", "redis://a?stream=s", "redis"),
        ("kafka", "kafka://a/s", "confluent_kafka"),
        ("rabbitmq", "amqp://a/?queue=s", "aio_pika"),
    ],
)
def test_a_missing_client_is_named_with_the_line_that_installs_it(extra: str, url: str, package: str) -> None:
    code = f"from interlock.buses.{extra} import open_bus\nopen_bus({url!r})"

    expected = ["MissingExtraError", f"extra.{extra}", f"pip install 'interlock[{extra}]'"]
    assert expected == error_without(package, code=code)


def test_a_tracer_provider_needs_the_api_and_says_how_to_get_it() -> None:
    code = "from interlock.observe.open_telemetry import tracer_of\ntracer_of(object())"

    expected = ["MissingExtraError", "extra.otel", "pip install 'interlock[otel]'"]
    assert expected == error_without("opentelemetry", code=code)


def test_a_png_needs_resvg_and_says_how_to_get_it() -> None:
    assert png(make_drawing(flat(), [], theme="light").svg).startswith(b"\x89PNG")

    name, code, hint = error_without("resvg_py", code=f"from {png.__module__} import png\npng('<svg/>')")
    assert ("MissingExtraError", "extra.png", True) == (name, code, "interlock[png]" in (hint or ""))


def test_a_png_needs_its_font_and_says_how_to_get_it() -> None:
    code = f"from {png.__module__} import png\npng('<svg/>')"
    name, found, hint = error_without("font_source_sans_pro", code=code)

    assert ("MissingExtraError", "extra.png", True) == (name, found, "interlock[png]" in (hint or ""))
