"""Read a list page by page: the one loop over cursors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sized
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace


class Page(Protocol):
    """A page of rows, and the cursor of the next one; None after the last page."""

    @property
    def rows(self) -> Sized:
        """The rows."""

    @property
    def after(self) -> str | None:
        """The cursor of the next page."""


Q = TypeVar("Q", bound=Struct)
P = TypeVar("P", bound=Page)


async def pages(read: Callable[[Q], Awaitable[P]], query: Q, *, rows_max: int | None = None) -> AsyncGenerator[P, None]:
    """Yield the pages of a list, at least one, until the last page or until `rows_max` rows were read.

    `query` has a field `after`; it is replaced by the cursor of each page.
    """
    rows = 0
    while True:  # ends with the last page, or at `rows_max`
        page = await read(query)
        yield page
        rows += len(page.rows)
        if page.after is None or (rows_max is not None and rows >= rows_max):
            return
        query = replace(query, after=page.after)


async def first_page(read: Callable[[Q], Awaitable[P]], query: Q) -> P:
    """Return the first page that has rows, or the last page: a store may return an empty page that has a next one."""
    async for page in pages(read, query):
        if len(page.rows):
            return page
    return page
