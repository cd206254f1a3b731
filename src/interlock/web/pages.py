"""The pages: files of the package, read once, and one shell for every address that a page has.

Rule 1: a file is known by its content: its tag is a hash, so a browser asks, and is told that nothing changed.
Rule 2: scripts and styles are sent as they are written, without the spaces that lines begin with and without lines
that are comments: nothing is built.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDENTATION = re.compile(rb"^[ ]+", re.MULTILINE)
COMMENT = re.compile(rb"^(?://.*|/\*.*\*/)\n", re.MULTILINE)
SHELL = "index.html"
PLACES = (
    "/",
    "/k/{kind}",
    "/k/{kind}/entities",
    "/k/{kind}/diff",
    "/k/{kind}/lab",
    "/e/{entity:path}",
    "/effects",
    "/sagas",
    "/bulk",
    "/audit",
    "/lab",
)
"""Addresses of pages; which page it is, the script reads from the address."""


class File(NamedTuple):
    """A file as it is sent."""

    media: str
    tag: str
    plain: bytes
    small: bytes


@cache
def _files() -> dict[str, File]:
    return static_files()


def static_files() -> dict[str, File]:
    """Every file of the pages by name."""
    found = {}
    for each in files("interlock.web").joinpath("static").iterdir():
        suffix = each.name[each.name.rfind(".") :]
        if suffix in TYPES:
            body = COMMENT.sub(b"", INDENTATION.sub(b"", each.read_bytes()))
            tag = f'"{blake2b(body, digest_size=8).hexdigest()}"'
            found[each.name] = File(TYPES[suffix], tag, body, gzip.compress(body, mtime=0))
    return found


def unknown_page(request: Request) -> Response:
    """The shell where no page is: its script says so, and shows the way back."""
    return _sent(request, _files()[SHELL], status=404)


def routes() -> list[BaseRoute]:
    """The routes of all pages and files."""
    found = _files()

    async def page(request: Request) -> Response:
        return _sent(request, found[SHELL])

    async def file(request: Request) -> Response:
        named = found.get(request.path_params["name"])
        return Response(status_code=404) if named is None else _sent(request, named)

    pages: list[BaseRoute] = [Route(each, page, methods=["GET"]) for each in PLACES]
    return [*pages, Route("/static/{name}", file, methods=["GET"])]


def _sent(request: Request, file: File, *, status: int = 200) -> Response:
    headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if status != 200:  # what is not there today may be there tomorrow
        headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    elif request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.small, status, {**headers, "Content-Encoding": "gzip"}, file.media)
    return Response(file.plain, status, headers, file.media)
