"""An SVG drawing as PNG bytes, by resvg: the extra `png`.

Rule 1: resvg does not support custom properties, so the theme must be `light` or `dark`.
Rule 2: texts are drawn with a font of the extra, so a PNG shows its labels on a machine without any font, and looks the
same everywhere. Characters that this font lacks are taken from the fonts of the machine, if there are any.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from interlock.errors import MissingExtraError
from interlock.render.svg.theme import FACES

SCALE = 2
"""Pixels of the PNG per pixel of the drawing: sharp on high-resolution screens."""
FACE = "Source Sans Pro"
"""The font of the extra. It is narrower than the one whose widths the layout uses, so every text fits."""
_PACKAGE = "font_source_sans_pro"
_FILES = ("SourceSansPro-Regular.ttf", "SourceSansPro-Semibold.ttf", "SourceSansPro-It.ttf")


def png(svg: str, *, system_fonts: bool = True) -> bytes:
    """Return a drawing as PNG. Raises MissingExtraError if resvg or the font is not installed.

    Without `system_fonts` it uses no font of the machine.
    """
    try:
        import resvg_py
    except ImportError as error:
        raise _missing("resvg") from error
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=svg.replace(FACES, f"'{FACE}'"),
            zoom=SCALE,
            font_files=font_files(),
            font_family=FACE,
            sans_serif_family=FACE,
            skip_system_fonts=not system_fonts,
        )
    )


def font_files() -> list[str]:
    """Return the paths of the font. Raises MissingExtraError when it is not installed."""
    try:
        package = import_module(_PACKAGE)
    except ImportError as error:
        raise _missing("the font Source Sans Pro") from error
    paths = [Path(str(package.__file__)).parent / "files" / each for each in _FILES]
    if not all(each.is_file() for each in paths):
        raise _missing("the font Source Sans Pro")
    return [str(each) for each in paths]


def _missing(what: str) -> MissingExtraError:
    message = f"a PNG needs {what}, which is not installed"
    return MissingExtraError(message, code="extra.png", hint="pip install 'interlock[png]', or draw an SVG")
