"""Attacks on the HTTP port without a key, each bounded in bytes, connections and seconds.

    python -m tests.hostile.http_attacks heads 8470 --seconds 5

Each prints one JSON object: what it sent, and how many of its connections the server has closed.
Every connection goes to loopback.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import time
from collections.abc import Callable

HOST = "127.0.0.1"
PIECE = 65_536
CLOSED_WITHIN_S = 120
"""How long an attack waits for the server to close its connections: a net against hangs, not a measured time."""


def heads(port: int, *, seconds: float, bytes_max: int, connections: int) -> dict[str, int]:
    """Send heads of many fields that do not end, over and over, as fast as the server takes them."""
    field = b"X-Field: " + b"v" * 1_000 + b"\r\n"
    return _flood(port, field * (PIECE // len(field)), seconds=seconds, bytes_max=bytes_max, connections=connections)


def line(port: int, *, seconds: float, bytes_max: int, connections: int) -> dict[str, int]:
    """Send one field whose line does not end, over and over."""
    return _flood(port, b"v" * PIECE, seconds=seconds, bytes_max=bytes_max, connections=connections, start=b"X-Field: ")


def trailers(port: int, *, seconds: float, bytes_max: int, connections: int) -> dict[str, int]:
    """Send a chunked body, and fields behind it that do not end."""
    start = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
    field = b"X-Field: " + b"v" * 1_000 + b"\r\n"
    piece = field * (PIECE // len(field))
    return _flood(port, piece, seconds=seconds, bytes_max=bytes_max, connections=connections, start=start)


def pipeline(port: int, *, seconds: float, bytes_max: int, connections: int) -> dict[str, int]:
    """Send small requests one behind the other without reading an answer."""
    one = f"GET /static/app.css HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode()
    start = f"Host: {HOST}:{port}\r\n\r\n".encode()
    return _flood(
        port, one * (PIECE // len(one)), seconds=seconds, bytes_max=bytes_max, connections=connections, start=start
    )


def half_open(port: int, *, seconds: float, bytes_max: int, connections: int) -> dict[str, int]:
    """Open many connections, start a request on each, and send single bytes of it slowly."""
    del bytes_max
    return _held(port, f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Field: ".encode(), b"v", seconds, connections)


def half_bodies(port: int, *, seconds: float, bytes_max: int, connections: int) -> dict[str, int]:
    """The same with a login whose body comes byte by byte."""
    del bytes_max
    head = f"POST /api/v1/login HTTP/1.1\r\nHost: {HOST}:{port}\r\nOrigin: http://{HOST}:{port}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 4000\r\n\r\n"
    return _held(port, head.encode(), b"v", seconds, connections)


def idle(port: int, *, seconds: float, bytes_max: int, connections: int) -> dict[str, int]:
    """Open many connections, and send nothing."""
    del bytes_max
    return _held(port, b"", b"", seconds, connections)


def churn(port: int, *, seconds: float, bytes_max: int, connections: int) -> dict[str, int]:
    """Open connections as fast as the server accepts them, and keep the newest of them open."""
    del bytes_max
    ends, opened, kept = time.monotonic() + seconds, 0, list[socket.socket]()
    while time.monotonic() < ends:
        made = _connected(port)
        opened += 1
        if made is not None:
            kept.append(made)
        if len(kept) > connections:
            kept.pop(0).close()
    for each in kept:
        each.close()
    return {"opened": opened, "sent": 0, "closed": 0}


ATTACKS: dict[str, Callable[..., dict[str, int]]] = {
    each.__name__: each for each in (heads, line, trailers, pipeline, half_open, half_bodies, idle, churn)
}


def _connected(port: int) -> socket.socket | None:
    made = socket.socket()
    made.settimeout(CLOSED_WITHIN_S)
    try:
        made.connect((HOST, port))
    except OSError:
        made.close()
        return None
    return made


def _flood(
    port: int, piece: bytes, *, seconds: float, bytes_max: int, connections: int, start: bytes = b""
) -> dict[str, int]:
    ends, sent, opened, closed = time.monotonic() + seconds, 0, 0, 0
    while time.monotonic() < ends and sent < bytes_max and opened < connections:
        made = _connected(port)
        opened += 1
        if made is None:
            continue
        with made:
            try:
                made.sendall(b"POST /api/v1/login HTTP/1.1\r\n" + start)
                while time.monotonic() < ends and sent < bytes_max:
                    sent += made.send(piece)
            except OSError:
                closed += 1
    return {"opened": opened, "sent": sent, "closed": closed}


def _held(port: int, start: bytes, more: bytes, seconds: float, connections: int) -> dict[str, int]:
    """Hold connections until the server has closed them all, or the time is over."""
    found = select.poll()
    held = dict[int, socket.socket]()
    opened = sent = 0
    for _ in range(connections):
        made = _connected(port)
        if made is None:
            continue
        opened += 1
        held[made.fileno()] = made
        found.register(made, select.POLLIN | select.POLLHUP)
        sent += _sent(made, start)
    ends, closed = time.monotonic() + seconds, 0
    while held and time.monotonic() < ends:
        for descriptor, _ in found.poll(1_000):
            if _is_over(held[descriptor]):
                found.unregister(descriptor)
                held.pop(descriptor).close()
                closed += 1
        for each in held.values():
            sent += _sent(each, more)
    for each in held.values():
        each.close()
    return {"opened": opened, "sent": sent, "closed": closed}


def _sent(made: socket.socket, text: bytes) -> int:
    try:
        return made.send(text) if text else 0
    except OSError:
        return 0


def _is_over(made: socket.socket) -> bool:
    try:
        return made.recv(PIECE) == b""
    except OSError:
        return True


def main() -> None:
    """Run one attack."""
    parser = argparse.ArgumentParser()
    parser.add_argument("attack", choices=list(ATTACKS))
    parser.add_argument("port", type=int)
    parser.add_argument("--seconds", type=float, default=CLOSED_WITHIN_S)
    parser.add_argument("--bytes", type=int, default=2**40)
    parser.add_argument("--connections", type=int, default=2**20)
    given = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    done = ATTACKS[given.attack](
        given.port, seconds=given.seconds, bytes_max=given.bytes, connections=given.connections
    )
    print(json.dumps(done))


if __name__ == "__main__":
    main()
