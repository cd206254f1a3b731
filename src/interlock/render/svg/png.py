"""An SVG drawing as PNG bytes, by resvg: the extra `png`.

resvg does not support custom properties, so the theme must be `light` or `dark`.
"""

from __future__ import annotations

from interlock.errors import MissingExtraError

SCALE = 2
"""Pixels of the PNG per pixel of the drawing: sharp on high-resolution screens."""
_FACE = "Liberation Sans"


def png(svg: str) -> bytes:
    """Return a drawing as PNG. Raises MissingExtraError if resvg is not installed."""
    try:
        import resvg_py
    except ImportError as error:
        message = "a PNG needs resvg, which is not installed"
        raise MissingExtraError(
            message, code="extra.png", hint="pip install 'interlock[png]', or draw an SVG"
        ) from error
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=SCALE, sans_serif_family=_FACE))
