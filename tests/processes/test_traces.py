"""One order across three processes is one trace, as a receiver of OTLP gets it: a server, and two workers.

The server takes the requests. One worker charges the card, in two attempts; the other books the parcel of the child
chart. A timer waits between the two. Each process exports by itself, over HTTP, to a receiver in the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

import interlock
from interlock.cli.main import main
from tests.support.eventually import PATIENCE_SECONDS, eventually_blocking

TRACE, CLIENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{CLIENT}-01"
URL = "sqlite:///orders.db"

ORDER = """
interlock: 1
kind: order
states:
  unpaid: {on: {pay: charging}}
  charging:
    invoke: {id: charge, src: payment.charge, retry: {max: 2, backoff: 10ms}}
    on: {done.invoke.charge: waiting, error.invoke.charge: unpaid}
  waiting: {after: {50ms: packing}}
  packing:
    invoke: {id: parcel, src: parcel, type: chart}
    on: {done.invoke.parcel: shipped, error.invoke.parcel: unpaid}
  shipped: {type: final}
"""

PARCEL = """
interlock: 1
kind: parcel
states:
  booking:
    invoke: {id: book, src: carrier.book}
    on: {done.invoke.book: booked, error.invoke.book: refused}
  booked: {type: final}
  refused: {type: final}
"""

SHOP = """
import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import interlock

provider = TracerProvider(resource=Resource.create({"service.name": os.environ["ROLE"]}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=os.environ["COLLECTOR"])))
trace.set_tracer_provider(provider)

order, parcel = interlock.load("order.yaml"), interlock.load("parcel.yaml")

if os.environ["ROLE"] == "payments":
    @order.handler("payment.charge")
    async def charge(attempt):
        if attempt.number == 1:
            raise ConnectionError("the bank is away")
        return "paid"

if os.environ["ROLE"] == "carriers":
    @parcel.handler("carrier.book")
    def book(attempt):
        with trace.get_tracer("shop").start_as_current_span("POST /bookings"):
            return "booked"

charts = [order, parcel]
"""


class Span(Struct, frozen=True):
    """A span as it was received."""

    name: str
    process: str
    trace: str
    id: str
    parent: str
    attempt: int
    error: str


class Receiver(ThreadingHTTPServer):
    """Receives OTLP over HTTP, in protobuf."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.spans: list[Span] = []
        self.address = f"http://127.0.0.1:{self.server_address[1]}/v1/traces"

    def take(self, body: bytes) -> None:
        """Keep the spans of a request."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            process = next(
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            )
            for scope in resource.scope_spans:
                for each in scope.spans:
                    found = {one.key: one.value for one in each.attributes}
                    attempt = found["interlock.attempt"].int_value if "interlock.attempt" in found else 0
                    error = found["error.type"].string_value if "error.type" in found else ""
                    ids = (each.trace_id.hex(), each.span_id.hex(), each.parent_span_id.hex())
                    self.spans.append(Span(each.name, process, *ids, attempt, error))


class _Request(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Take the spans, and say so."""
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, Receiver)
        if self.headers.get("content-encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.server.take(body)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver in a thread."""
    with Receiver() as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@contextmanager
def process(role: str, receiver: Receiver, folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A command as a process of a role, that ends with the test."""
    environment = {**os.environ, "ROLE": role, "COLLECTOR": receiver.address, "PYTHONPATH": str(folder)}
    with (folder / f"{role}.log").open("w") as log:
        started = subprocess.Popen(
            [sys.executable, "-u", "-m", "interlock", *command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield started
        finally:
            started.kill()
            started.communicate()


def test_one_order_across_three_processes_is_one_tree(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("order.yaml", ORDER), ("parcel.yaml", PARCEL), ("shop.py", SHOP)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert 0 == main(["keys", "create", "till", "--right", "read", "--right", "send"])
    key = capsys.readouterr().out.strip()
    with interlock.connect(URL, charts=[interlock.load("order.yaml"), interlock.load("parcel.yaml")]):
        pass  # the store exists
    with ExitStack() as stack:
        for role in ("payments", "carriers"):
            stack.enter_context(process(role, receiver, tmp_path, "run", "shop:charts", "--store", URL))
        serving = ("serve", URL, "--chart", "shop:charts", "--key-file", "keys.toml", "--port", "0")
        server = stack.enter_context(process("shop", receiver, tmp_path, *serving))
        assert server.stdout is not None
        base = server.stdout.readline().strip()
        headers = {"Authorization": f"Bearer {key}", "traceparent": TRACEPARENT}
        with httpx.Client(base_url=base, headers=headers, timeout=PATIENCE_SECONDS) as client:
            assert 200 == client.post("/api/v1/kinds/order/entities", json={"id": "1"}).status_code
            assert 200 == client.post("/api/v1/send/order/1", json={"event": "pay"}).status_code
            eventually_blocking(
                lambda: client.get("/api/v1/entity/order/1").json()["configuration"] == ["shipped"], "the delivery"
            )
            journal = client.get("/api/v1/journal/order/1").json()["entries"]
        eventually_blocking(lambda: _is_complete(receiver.spans), "the last span")

    spans = {each.id: each for each in receiver.spans}
    assert {TRACE} == {each.trace for each in receiver.spans}
    assert set() == {each.parent for each in receiver.spans} - {*spans, CLIENT}  # every parent is there
    assert [("interlock.create", "shop"), ("interlock.send", "shop")] == sorted(
        (each.name, each.process) for each in receiver.spans if each.parent == CLIENT
    )
    assert {"shop", "payments", "carriers"} == {each.process for each in receiver.spans}
    attempts = [each for each in receiver.spans if each.attempt and each.process == "payments"]
    assert [(1, "ConnectionError"), (2, "")] == sorted((each.attempt, each.error) for each in attempts)
    assert 1 == len({each.parent for each in attempts})
    (booking,) = [each for each in receiver.spans if each.name == "POST /bookings"]
    assert [
        "POST /bookings",
        "interlock.effect",
        "interlock.create",  # the child
        "interlock.step",
        "interlock.timer",
        "interlock.step",
        "interlock.effect",
        "interlock.step",
        "interlock.send",
    ] == _above(booking, spans)
    assert [True] * len(journal) == [each["trace"].split("-")[2] in spans for each in journal]


def _is_complete(spans: list[Span]) -> bool:
    """Whether the span of the child's last message has arrived, and all that it is in."""
    ids = {each.id for each in spans}
    ends = [each for each in spans if each.name == "interlock.send" and each.parent != CLIENT]
    return bool(ends) and all(each.parent in ids or each.parent == CLIENT for each in spans)


def _above(span: Span, spans: dict[str, Span]) -> list[str]:
    """The name of a span and of those around it."""
    found = [span.name]
    while span.parent in spans:
        span = spans[span.parent]
        found.append(span.name)
    return found
