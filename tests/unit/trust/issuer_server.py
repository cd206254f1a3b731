"""An issuer of tokens for tests: a real HTTP or HTTPS server with its keys, on this machine."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Event, Thread
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

NOW_S = 1_790_000_000
ISSUER, AUDIENCE = "https://login.test/", "interlock"


@lru_cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """A private RSA key; the same for the same number."""
    del number
    return rsa.generate_private_key(65537, bits)


@lru_cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    """A private key of P-256."""
    return ec.generate_private_key(ec.SECP256R1())


@lru_cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    """A private Ed25519 key."""
    return ed25519.Ed25519PrivateKey.generate()


def jwk(private: Any, key_id: str | None = "k1", **more: Any) -> dict[str, Any]:
    """The public part of a key, as an issuer publishes it."""
    readers = {rsa.RSAPrivateKey: "RSAAlgorithm", ec.EllipticCurvePrivateKey: "ECAlgorithm"}
    name = next((name for kind, name in readers.items() if isinstance(private, kind)), "OKPAlgorithm")
    found: dict[str, Any] = getattr(jwt.algorithms, name).to_jwk(private.public_key(), as_dict=True)
    return {**found, "use": "sig", **({} if key_id is None else {"kid": key_id}), **more}


def claims(**more: Any) -> dict[str, Any]:
    """Claims of a valid token; None removes one."""
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "iat": NOW_S, "exp": NOW_S + 3600, **more}
    return {name: value for name, value in given.items() if value is not None}


def token(
    given: Mapping[str, Any] | None = None,
    *,
    key: Any = None,
    algorithm: str = "RS256",
    headers: Mapping[str, Any] | None = None,
) -> str:
    """A token, signed by the first RSA key if no other is given."""
    header = {"kid": "k1", "typ": "at+jwt", **(headers or {})}
    header = {name: value for name, value in header.items() if value is not None}
    return jwt.encode(dict(given or claims()), key or rsa_key(), algorithm=algorithm, headers=header)


class Issuer:
    """The server: what it answers, and how often it was asked. While `hang` is set, it answers after `go_on`."""

    def __init__(self) -> None:
        self.body: bytes = b""
        self.status = 200
        self.asked = 0
        self.hang = False
        self.go_on = Event()
        self.url = ""

    def publish(self, *keys: Mapping[str, Any]) -> None:
        """Answer with these keys."""
        self.body = json.dumps({"keys": keys}).encode()


@contextmanager
def issuer_server(context: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    """Serve the keys of an issuer."""
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name is that of the library
            issuer.asked += 1
            if issuer.hang:
                issuer.go_on.wait()
            try:
                self.send_response(issuer.status)
                if issuer.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(issuer.body)))
                self.end_headers()
                self.wfile.write(issuer.body)
            except OSError:  # the client has gone
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Print nothing when a client does not trust the certificate."""

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    issuer.url = f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}/jwks.json"
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield issuer
    finally:
        issuer.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


def server_context(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The TLS contexts of a server of this machine, and of a client that trusts its certificate."""
    key = ec_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer of a test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "issuer.pem"
    plain = serialization.NoEncryption()
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cadata=certificate.public_bytes(serialization.Encoding.PEM).decode())
