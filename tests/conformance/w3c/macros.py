"""The W3C's neutral test files have `conf:` macros where a datamodel must speak; here they become plain SCXML.

One table of attributes, one of elements; each entry gives the attribute (or element) that replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape

PROCESSOR = "http://www.w3.org/TR/scxml/#SCXMLEventProcessor"


def _var(number: str) -> str:
    return f"Var{number}"


def _vars(numbers: str) -> tuple[str, str]:
    first, second = numbers.split()
    return _var(first), _var(second)


def _compared(text: str) -> str:
    match = re.fullmatch(r"(\d+)\s*(<=|>=|=|<|>)\s*(.*)", text)
    assert match is not None, text
    return f"{_var(match[1])} {'==' if match[2] == '=' else match[2]} {match[3]}"


def _quoted(text: str) -> str:
    left, right = text.split("=", 1)
    return f"{_var(left)} == {right!r}"


_FIELDS = ("name", "type", "sendid", "origin", "origintype", "invokeid", "data")

ATTRIBUTES: dict[str, tuple[str, Callable[[str], str]]] = {
    "VarEqVar": ("cond", lambda text: " == ".join(_vars(text))),
    "VarEqVarStruct": ("cond", lambda text: " == ".join(_vars(text))),
    "arrayTextVar": ("array", _var),
    "arrayVar": ("array", _var),
    "basicHTTPAccessURITarget": ("targetexpr", lambda _: "_ioprocessors['basichttp']['location']"),
    "compareIDVal": ("cond", lambda text: f"{_var(text[0])} {text[1:-1]} {_var(text[-1])}"),
    "datamodel": ("datamodel", lambda _: "python"),
    "delay": ("delayexpr", lambda text: f"'{text}s'"),
    "delayFromVar": ("delayexpr", _var),
    "emptyEventData": ("cond", lambda _: "_event.data is None"),
    "eventDataFieldValue": ("expr", lambda text: f"_event.data.{text}"),
    "eventDataNamelistValue": ("expr", lambda text: f"_event.data.{_var(text)}"),
    "eventDataParamValue": ("expr", lambda text: f"_event.data.{text}"),
    "eventExpr": ("eventexpr", _var),
    "eventField": ("expr", lambda text: f"_event.{text}"),
    "eventFieldHasNoValue": ("cond", lambda text: f"not _event.{text}"),
    "eventFieldsAreBound": ("cond", lambda _: " and ".join(f"has(_event, '{each}')" for each in _FIELDS)),
    "eventIdParamHasValue": ("cond", lambda text: "'Var{}={}' in _event.raw".format(*text.split())),
    "eventName": ("expr", lambda _: "_event.name"),
    "eventNameVal": ("cond", lambda text: f"_event.name == {text!r}"),
    "eventNamedParamHasValue": ("cond", lambda text: "'{}={}' in _event.raw".format(*text.split())),
    "eventRaw": ("expr", lambda _: "_event.raw"),
    "eventSendid": ("expr", lambda _: "_event.sendid"),
    "eventType": ("expr", lambda _: "_event.type"),
    "eventdataSomeVal": ("cond", lambda _: "_event.data == 'foo'"),
    "eventdataVal": ("cond", lambda text: f"_event.data == {text}"),
    "eventvarVal": ("cond", lambda text: "_event.data.Var{} == {}".format(*text.split("="))),
    "expr": ("expr", lambda text: text or "''"),
    "false": ("cond", lambda _: "false"),
    "id": ("id", _var),
    "idQuoteVal": ("cond", _quoted),
    "idSystemVarVal": ("cond", _compared),
    "idVal": ("cond", _compared),
    "idlocation": ("idlocation", _var),
    "illegalArray": ("expr", lambda _: "7"),
    "illegalExpr": ("expr", lambda _: "not an expression"),
    "illegalItem": ("item", lambda _: "'continue'"),
    "illegalTarget": ("target", lambda _: "baz"),
    "inState": ("cond", lambda text: f"In('{text}')"),
    "index": ("index", _var),
    "invalidLocation": ("location", lambda _: "foo.bar.baz"),
    "invalidNamelist": ("namelist", lambda _: "foo.bar.baz"),
    "invalidSendType": ("type", lambda _: "27"),
    "invalidSendTypeExpr": ("expr", lambda _: "27"),
    "invalidSessionID": ("expr", lambda _: "'#_scxml_nobody'"),
    "isBound": ("cond", lambda text: f"{_var(text)} is not None"),
    "item": ("item", _var),
    "location": ("location", _var),
    "messageBodyEquals": ("cond", lambda text: f"_event.raw == {text!r}"),
    "methodIsPost": ("cond", lambda _: "'POST' in _event.raw"),
    "name": ("name", _var),
    "nameVarVal": ("cond", lambda text: f"_name == {text!r}"),
    "namelist": ("namelist", _var),
    "namelistIdVal": ("cond", _compared),
    "noValue": ("cond", lambda text: f"{_var(text)} is None"),
    "nonBoolean": ("cond", lambda _: "not an expression"),
    "originTypeEq": ("cond", lambda text: f"_event.origintype == {text!r}"),
    "quoteExpr": ("expr", repr),
    "scriptBadSrc": ("src", lambda _: "file:absent.js"),
    "scxmlEventIOLocation": ("expr", lambda _: f"_ioprocessors['{PROCESSOR}'].location"),
    "sendIDExpr": ("sendidexpr", _var),
    "srcExpr": ("srcexpr", _var),
    "systemVarExpr": ("expr", str),
    "systemVarIsBound": ("cond", str),
    "systemVarLocation": ("location", str),
    "targetExpr": ("targetexpr", _var),
    "targetVar": ("targetexpr", _var),
    "targetfail": ("target", lambda _: "fail"),
    "targetpass": ("target", lambda _: "pass"),
    "true": ("cond", lambda _: "true"),
    "typeExpr": ("typeexpr", _var),
    "unboundVar": ("cond", lambda text: f"get(context, '{_var(text)}') is None"),
    "unreachableTarget": ("target", lambda _: "#_scxml_nobody"),
    "varChildExpr": ("expr", _var),
    "varExpr": ("expr", _var),
    "varNonexistentStruct": ("expr", lambda text: f"{_var(text)}.bar"),
    "varPrefix": ("cond", lambda text: "starts_with({1}, {0})".format(*_vars(text))),
}

ELEMENTS: dict[str, str] = {
    "array123": "[1, 2, 3]",
    "concatVars": '<assign location="Var{id1}" expr="Var{id1} + Var{id2}"/>',
    "contentFoo": "<content expr=\"'foo'\"/>",
    "extendArray": '<assign location="Var{id}" expr="Var{id} + [4]"/>',
    "fail": '<final id="fail"/>',
    "incrementID": '<assign location="Var{id}" expr="Var{id} + 1"/>',
    "pass": '<final id="pass"/>',
    "script": "<script>Var1 = 1</script>",
    "sendToSender": '<send event="{name}" targetexpr="_event.origin" typeexpr="_event.origintype"/>',
    "someInlineVal": "foo",
    "sumVars": '<assign location="Var{id1}" expr="Var{id1} + Var{id2}"/>',
}

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ATTRIBUTE = re.compile(r'(?<![\w:])conf:(\w+)\s*=\s*"([^"]*)"')
_ELEMENT = re.compile(r"<conf:(\w+)([^>]*?)/>")
_ARGUMENT = re.compile(r'(\w+)\s*=\s*"([^"]*)"')


def expanded(text: str) -> str:
    """The test as SCXML. Raises KeyError for a macro that the tables do not have."""
    text = _COMMENT.sub("", text)
    text = _ATTRIBUTE.sub(lambda found: _attribute(found[1], unescape(found[2])), text)
    return _ELEMENT.sub(lambda found: ELEMENTS[found[1]].format(**dict(_ARGUMENT.findall(found[2]))), text)


def _attribute(name: str, value: str) -> str:
    attribute, write = ATTRIBUTES[name]
    return f'{attribute}="{escape(write(value))}"'
