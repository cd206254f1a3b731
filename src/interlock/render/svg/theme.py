"""The colours and style sheets of drawings.

Rule 1: `vars` embeds custom properties, with dark colours for readers that prefer them. `light` and `dark` have fixed
        colours, for renderers without custom properties. `bare` has no style sheet, for pages with their own.
Rule 2: colour is never the only sign: active states have a thicker border, removed ones are dashed and have a minus.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

from interlock.errors import UsageError
from interlock.model.diagnostics import suggestion

Theme = Literal["vars", "light", "dark", "bare"]
THEMES: tuple[Theme, ...] = get_args(Theme)

LIGHT = {
    "bg": "#ffffff",
    "box": "#ffffff",
    "group": "#f6f8fb",
    "deep": "#edf1f7",
    "border": "#8d9bb0",
    "divider": "#b3bfce",
    "text": "#0f1b2d",
    "quiet": "#55647a",
    "wire": "#5f6f86",
    "guard": "#a34908",
    "actions": "#6d35c9",
    "on": "#1d5fd6",
    "on-box": "#dde9fd",
    "took": "#1d5fd6",
    "path": "#4a78c2",
    "added": "#157a3b",
    "added-box": "#e3f6e9",
    "removed": "#b3261e",
    "removed-box": "#fdeae8",
    "changed": "#96610a",
    "changed-box": "#fcf2d9",
    "bad": "#b3261e",
    "heat": "#e8590c",
}
DARK = {
    "bg": "#0d1117",
    "box": "#1a212c",
    "group": "#121821",
    "deep": "#171f2a",
    "border": "#566479",
    "divider": "#3d4a5c",
    "text": "#e6edf5",
    "quiet": "#9aa8bb",
    "wire": "#8b9ab0",
    "guard": "#f2b04e",
    "actions": "#c0a6fb",
    "on": "#6ba5ff",
    "on-box": "#173259",
    "took": "#6ba5ff",
    "path": "#86b0ee",
    "added": "#56d07f",
    "added-box": "#10301d",
    "removed": "#ff8a80",
    "removed-box": "#3b1816",
    "changed": "#e6b450",
    "changed-box": "#35290f",
    "bad": "#ff8a80",
    "heat": "#ff8c42",
}
FACES = "Inter,'Helvetica Neue',Helvetica,Arial,'Liberation Sans',sans-serif"

_SHEET = """
.interlock{font-family:FACES;font-size:11px}
.interlock text{fill:$text;white-space:pre}
.interlock .bg{fill:$bg}
.interlock .box{fill:$box;stroke:$border;stroke-width:1.2}
.interlock .group>.box{fill:$group}
.interlock .deep.group>.box{fill:$deep}
.interlock .root.group>.box{fill:none}
.interlock .region.group>.box{fill:none;stroke:none}
.interlock .divider{stroke:$divider;stroke-width:1.2;stroke-dasharray:5 4;fill:none}
.interlock .rule{stroke:$divider;stroke-width:1}
.interlock .name{font-size:13px;font-weight:600}
.interlock .caption{font-size:11px;font-weight:400}
.interlock .note{fill:$quiet}
.interlock .dot,.interlock .bar{fill:$text;stroke:none}
.interlock .ring{fill:$bg;stroke:$text;stroke-width:1.4}
.interlock .line{fill:none;stroke:$wire;stroke-width:1.3}
.interlock .dashed>.line{stroke-dasharray:5 4}
.interlock .head{fill:$wire;stroke:none}
.interlock .label text{paint-order:stroke;stroke:$bg;stroke-width:3px;stroke-linejoin:round;stroke-opacity:.85}
.interlock .guard{fill:$guard}
.interlock .actions{fill:$actions}
.interlock .more{fill:$quiet}
.interlock .on>.box,.interlock .on>.ring{stroke:$on;stroke-width:2.4}
.interlock .on>.box{fill:$on-box}
.interlock .group.on>.box{fill:$group}
.interlock .deep.group.on>.box{fill:$deep}
.interlock .region.group.on>.box{fill:none;stroke:none}
.interlock .took>.line{stroke:$took;stroke-width:2.6}
.interlock .took>.head{fill:$took}
.interlock .path>.line{stroke:$path;stroke-width:2}
.interlock .path>.head{fill:$path}
.interlock .stuck>.box,.interlock .bad>.box{stroke:$bad;stroke-width:2.4}
.interlock .bad>.line{stroke:$bad}
.interlock .bad>.head{fill:$bad}
.interlock .covered>.line{stroke:$added}
.interlock .covered>.head{fill:$added}
.interlock .dim{opacity:.35}
MARKS"""
_MARKED = """.interlock .WORD>.box,.interlock .WORD>.ring{stroke:$WORD;stroke-width:2}
.interlock .WORD>.box{fill:$WORD-box}
.interlock .WORD>.line{stroke:$WORD;stroke-width:1.8}
.interlock .WORD>.head{fill:$WORD}
.interlock text.WORD,.interlock .WORD>.name{fill:$WORD}
"""


def _sheet() -> str:
    marks = "".join(_MARKED.replace("WORD", word) for word in ("added", "removed", "changed"))
    dashes = ".interlock .removed>.box,.interlock .removed>.line{stroke-dasharray:6 3}\n"
    heat = "".join(
        f".interlock .heat-{level}>.box{{fill:$heat;fill-opacity:{0.06 + 0.07 * level:.2f}}}\n" for level in range(10)
    )
    return _SHEET.replace("FACES", FACES).replace("MARKS", marks + dashes + heat).lstrip()


def theme_named(name: str) -> Theme:
    """Return the theme of this name. Raises UsageError if it is unknown."""
    for theme in THEMES:
        if theme == name:
            return theme
    hint = suggestion(name, THEMES) or f"the themes are {', '.join(THEMES)}"
    raise UsageError(f'unknown theme "{name}"', code="theme.unknown", hint=hint)


def style(theme: Theme) -> str:
    """Return the style sheet of a theme; empty for `bare`."""
    match theme:
        case "bare":
            return ""
        case "light":
            return _flattened(LIGHT)
        case "dark":
            return _flattened(DARK)
        case "vars":
            light = "".join(f"--il-{name}:{colour};" for name, colour in LIGHT.items())
            dark = "".join(f"--il-{name}:{colour};" for name, colour in DARK.items())
            head = f".interlock{{{light}}}\n@media (prefers-color-scheme:dark){{.interlock{{{dark}}}}}\n"
            return head + re.sub(r"\$([a-z-]+)", r"var(--il-\1)", _sheet())


def _flattened(colours: dict[str, str]) -> str:
    return re.sub(r"\$([a-z-]+)", lambda found: colours[found[1]], _sheet())
