"""The elements and attributes of SCXML and their allowed positions: checked before a file is read.

Rule 1: all problems of the structure are reported here together; the readers then use what they find.
Rule 2: an unknown element is an error, because ignoring it would change the meaning; an unknown attribute is a warning.
Rule 3: elements of foreign namespaces are ignored. Our namespace has what SCXML cannot express.
"""

from __future__ import annotations

from interlock.definition.source.xml import Element
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.limits import STATES_MAX, TRANSITIONS_MAX

SCXML = "http://www.w3.org/2005/07/scxml"
INTERLOCK = "urn:interlock:scxml:1"
CHART_TYPES = ("http://www.w3.org/TR/scxml/", "http://www.w3.org/TR/scxml", "scxml")
HANDLER_TYPE = f"{INTERLOCK}#handler"
STATE_TAGS = ("state", "parallel", "final", "history")
DATAMODELS = ("interlock", "null", "python", "ecmascript")

DIAGNOSTICS_MAX = 200
"""Diagnostics about the structure of one file: each searches a similar name, and a file may have a million."""

_CONTENT = "raise if foreach send cancel log assign script interlock:do interlock:assign interlock:emit"
ACTIONS = frozenset(_CONTENT.split())
_STATE = "state parallel history datamodel onentry onexit transition invoke interlock:saga"

_TABLE = {
    "scxml": (
        "initial name version datamodel binding",
        "state parallel final history datamodel script interlock:events",
    ),
    "state": ("id initial", f"{_STATE} initial final"),
    "parallel": ("id", f"{_STATE} final"),
    "final": ("id", "onentry onexit donedata datamodel"),
    "history": ("id type", "transition"),
    "initial": ("", "transition"),
    "transition": ("event cond target type", _CONTENT),
    "onentry": ("", _CONTENT),
    "onexit": ("", _CONTENT),
    "finalize": ("", _CONTENT),
    "donedata": ("", "content param"),
    "datamodel": ("", "data"),
    "data": ("id src expr", "*"),
    "assign": ("location expr", "*"),
    "content": ("expr", "*"),
    "param": ("name expr location", ""),
    "script": ("src", ""),
    "raise": ("event", ""),
    "if": ("cond", f"{_CONTENT} elseif else"),
    "elseif": ("cond", ""),
    "else": ("", ""),
    "foreach": ("array item index", _CONTENT),
    "log": ("label expr", ""),
    "cancel": ("sendid sendidexpr", ""),
    "send": (
        "event eventexpr target targetexpr type typeexpr id idlocation delay delayexpr namelist",
        "content param",
    ),
    "invoke": ("type typeexpr src srcexpr id idlocation namelist autoforward", "content param finalize"),
    "interlock:do": ("name", "param content"),
    "interlock:assign": ("name", "param content"),
    "interlock:emit": ("type typeexpr", "param content"),
    "interlock:events": ("", ""),
    "interlock:saga": ("compensation", "interlock:step interlock:done interlock:compensated interlock:error"),
    "interlock:step": ("id cond timeout", "interlock:call interlock:compensate"),
    "interlock:call": ("src output", "param content"),
    "interlock:compensate": ("src output", "param content"),
    "interlock:done": ("", "transition"),
    "interlock:compensated": ("", "transition"),
    "interlock:error": ("", "transition"),
}
_RULES = {
    name: (frozenset(attributes.split()), frozenset(children.split()))
    for name, (attributes, children) in _TABLE.items()
}

_REQUIRED = {
    "data": "id",
    "raise": "event",
    "if": "cond",
    "elseif": "cond",
    "foreach": "array item",
    "param": "name",
    "interlock:do": "name",
    "interlock:assign": "name",
    "interlock:step": "id",
    "interlock:call": "src",
    "interlock:compensate": "src",
}
_EXCLUSIVE = {
    "data": ("src expr",),
    "send": ("event eventexpr", "target targetexpr", "type typeexpr", "id idlocation", "delay delayexpr"),
    "cancel": ("sendid sendidexpr",),
    "invoke": ("type typeexpr", "src srcexpr", "id idlocation"),
    "param": ("expr location",),
}


def tag(element: Element) -> str | None:
    """The name of an element; None for a foreign namespace. No namespace means SCXML."""
    if element.namespace in (SCXML, ""):
        return element.name
    return f"interlock:{element.name}" if element.namespace == INTERLOCK else None


def children_named(element: Element, name: str) -> list[Element]:
    """The children of this tag, in order."""
    return [each for each in element.elements if tag(each) == name]


def check_structure(root: Element, diagnostics: Diagnostics) -> bool:
    """Report all unknown, misplaced, missing and conflicting elements and attributes.

    Returns False if reading must stop: the text is not SCXML, or has too many problems.
    """
    if tag(root) != "scxml":
        diagnostics.error("scxml.root", f"expected the root element <scxml>, got <{root.name}>", root.location)
        return False
    if root.namespace == "":
        hint = f'write xmlns="{SCXML}"'
        diagnostics.warning(
            "scxml.namespace", "the file declares no namespace and is read as SCXML", root.location, hint
        )
    stack, states, transitions = [root], 0, 0
    findings_max = len(diagnostics.items) + DIAGNOSTICS_MAX
    while stack:
        element = stack.pop()
        states += tag(element) in STATE_TAGS
        transitions += tag(element) == "transition"
        problem = _too_many_states(states, transitions)
        if problem is not None:
            diagnostics.error("scxml.limit", f"{problem}; reading stops here", element.location)
            return False
        attributes, children = _RULES[tag(element) or ""]
        _check_attributes(element, attributes, diagnostics)
        if "*" in children:
            continue
        inside = []
        for child in element.elements:
            if len(diagnostics.items) > findings_max:
                diagnostics.error(
                    "scxml.limit", f"more than {DIAGNOSTICS_MAX} diagnostics; reading stops here", child.location
                )
                return False
            if _is_allowed(child, element, children, diagnostics):
                inside.append(child)
        stack += reversed(inside)
        if tag(element) not in ("script", "interlock:events") and element.text.strip():
            diagnostics.error("scxml.text", f"<{element.name}> must not contain text", element.location)
    return True


def _too_many_states(states: int, transitions: int) -> str | None:
    if states > STATES_MAX:
        return f"more than {STATES_MAX:,} states"
    return f"more than {TRANSITIONS_MAX:,} transitions" if transitions > TRANSITIONS_MAX else None


def _is_allowed(child: Element, parent: Element, known: frozenset[str], diagnostics: Diagnostics) -> bool:
    name = tag(child)
    if name in known:
        return True
    if name is None:
        message = f"<{child.name}> of namespace {child.namespace} is ignored"
        diagnostics.info("scxml.foreign", message, child.location)
    elif name in _RULES:
        diagnostics.error("scxml.misplaced", f"<{child.name}> is not allowed in <{parent.name}>", child.location)
    else:
        diagnostics.error("scxml.element", f"unknown element <{child.name}>", child.location, suggestion(name, known))
    return False


def _check_attributes(element: Element, known: frozenset[str], diagnostics: Diagnostics) -> None:
    name = tag(element) or ""
    for namespace, attribute in element.attributes:
        if namespace == "" and attribute not in known:
            message = f"unknown attribute {attribute} of <{element.name}>; it is ignored"
            diagnostics.warning("scxml.attribute", message, element.at(attribute), suggestion(attribute, known))
    for attribute in _REQUIRED.get(name, "").split():
        if element.get(attribute) is None:
            diagnostics.error(
                "scxml.required", f"the attribute {attribute} of <{element.name}> is missing", element.location
            )
    for pair in _EXCLUSIVE.get(name, ()):
        given = [each for each in pair.split() if element.get(each) is not None]
        if len(given) > 1:
            diagnostics.error(
                "scxml.exclusive", f"<{element.name}> must have {given[0]} or {given[1]}, not both", element.location
            )
