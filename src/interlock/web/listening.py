"""A listening socket, and why there is none."""

from __future__ import annotations

import errno
import socket

from interlock.errors import UnavailableError
from interlock.model.limits import HTTP_BACKLOG_MAX

_BIND_HINTS = {
    errno.EADDRINUSE: "another program uses it; choose another with {option}, or 0 for any",
    errno.EACCES: "it is reserved for the system; choose one above 1023 with {option}, or 0 for any",
}


def bind_socket(host: str, port: int, *, option: str = "--port", address: str = "--host") -> socket.socket:
    """Return a listening socket. Raises UnavailableError if the port is in use; `option` is what chooses another,
    `address` what chooses another address.

    The protocol is given explicitly: without it, asyncio does not disable Nagle's algorithm for accepted connections,
    and the body of a response waits until the client acknowledges the head, which most clients delay by 40 ms.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(HTTP_BACKLOG_MAX)  # now, so that clients can connect as soon as the address is printed
    except OSError as error:
        listening.close()
        hint = _BIND_HINTS.get(error.errno or 0, "choose an address of this machine with {address}").format(
            option=option, address=address
        )
        is_used = error.errno == errno.EADDRINUSE
        message = f"port {port} is in use" if is_used else f"cannot listen on {host} port {port}: {error.strerror}"
        raise UnavailableError(message, code="serve.port", hint=hint) from None
    return listening
