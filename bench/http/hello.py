"""The limit: a bare Starlette application that answers a POST with a small JSON, and does only that.

    python -m bench.http.hello

Rule: uvicorn serves it with the settings and the socket of `interlock serve`, in the same loop and by the same reader
of HTTP.
"""

from __future__ import annotations

import asyncio

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from interlock.web.listening import bind_socket
from interlock.web.server import uvicorn_config


async def hello(request: Request) -> JSONResponse:
    """Take what is sent, and greet."""
    await request.body()
    return JSONResponse({"hello": "world"})


def main() -> None:
    """Serve until the process is stopped; print the address in the first line."""
    app = Starlette(routes=[Route("/{anything:path}", hello, methods=["POST"])])
    listening = bind_socket("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    asyncio.run(uvicorn.Server(uvicorn_config(app)).serve(sockets=[listening]))


if __name__ == "__main__":
    main()
