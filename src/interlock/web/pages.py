"""The pages: static files of the package, read once, and one HTML shell for every page address.

Rule 1: the ETag of a file is a hash of its content, so browsers revalidate it cheaply.
Rule 2: scripts and styles are sent as they are written, without indentation and comment lines; there is no build step.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.exceptions import HTTPException
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
ADDRESSES = (
    "/",
    "/k/{kind}",
    "/k/{kind}/entities",
    "/k/{kind}/diff",
    "/k/{kind}/simulate",
    "/e/{entity:path}",
    "/effects",
    "/sagas",
    "/bulk",
    "/audit",
    "/reports",
    "/reports/{report}",
    "/simulator",
)
"""Addresses of pages; the script reads from the address which page to show."""


class File(NamedTuple):
    """A file as it is sent, plain and compressed."""

    media: str
    tag: str
    plain: bytes
    compressed: bytes


@cache
def _files() -> dict[str, File]:
    return static_files()


def static_files() -> dict[str, File]:
    """Return every file of the pages by its path below `static/`."""
    return _read_folder(files("interlock.web").joinpath("static"), "")


def _read_folder(folder: Traversable, prefix: str) -> dict[str, File]:
    found: dict[str, File] = {}
    for each in folder.iterdir():
        suffix = each.name[each.name.rfind(".") :]
        if each.is_dir():
            found |= _read_folder(each, f"{prefix}{each.name}/")
        elif suffix in TYPES:
            body = COMMENT.sub(b"", INDENTATION.sub(b"", each.read_bytes()))
            tag = f'"{blake2b(body, digest_size=8).hexdigest()}"'
            found[prefix + each.name] = File(TYPES[suffix], tag, body, gzip.compress(body, mtime=0))
    return found


def not_found_page(request: Request) -> Response:
    """Return the shell with status 404; its script shows the error and a link back."""
    return _response(request, _files()[SHELL], status=404)


def routes() -> list[BaseRoute]:
    """Return the routes of all pages and files."""
    found = _files()

    async def page(request: Request) -> Response:
        return _response(request, found[SHELL])

    async def file(request: Request) -> Response:
        named = found.get(request.path_params["name"])
        if named is None:
            raise HTTPException(404)
        return _response(request, named)

    pages: list[BaseRoute] = [Route(each, page, methods=["GET"]) for each in ADDRESSES]
    return [*pages, Route("/static/{name:path}", file, methods=["GET"])]


def _response(request: Request, file: File, *, status: int = 200) -> Response:
    headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if status != 200:  # the page may exist tomorrow
        headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    elif request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.compressed, status, {**headers, "Content-Encoding": "gzip"}, file.media)
    return Response(file.plain, status, headers, file.media)
