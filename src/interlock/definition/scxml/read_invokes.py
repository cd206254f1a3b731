"""Invokes and sagas of SCXML: what they start, with what, and what becomes of the answer.

Rule 1: a chart written in place, or that the resolver can give, is read now; a computed one stays an expression.
Rule 2: a saga is ours, but its calls and transitions are read like everybody's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from interlock.definition.scxml.expressions import read_path
from interlock.definition.scxml.read_content import ALLOW_SRC_HINT, ContentReader
from interlock.definition.scxml.structure import CHART_TYPES, HANDLER_TYPE, own, tag
from interlock.definition.source.xml import Element, parse_xml
from interlock.definition.vocabulary.parts import INVOKE
from interlock.model.document.actions import Assign, Block, Expression, GuardExpression, If, Value
from interlock.model.document.document import Document, Invoke, Saga, SagaCall, SagaStep, Transition


class InvokeReader:
    """Reads the invokes and sagas of one file; `nested` reads a root element found inside it: element, source, name."""

    def __init__(
        self,
        content: ContentReader,
        *,
        source: str,
        transition: Callable[[Element], Transition],
        nested: Callable[[Element, str, str], Document | None],
    ) -> None:
        self.content, self.source = content, source
        self.transition, self.nested = transition, nested
        self.extension, self.findings = content.extension, content.findings

    def invoke(self, element: Element, key: str, done: tuple[Transition, ...], error: tuple[Transition, ...]) -> Invoke:
        content, extension = self.content, self.extension
        kind = self._invoke_type(element)
        name = element.get("id") if extension.text(element, "auto") is None else None
        takes_chart = kind != "handler" and bool(own(element, "content"))
        src = self._content_chart(element, name or key) if takes_chart else self._src(element, name or key, kind)
        params = element if not takes_chart else _without_content(element)
        given = extension.text(element, "input") is not None
        return Invoke(
            src=src,
            id=name,
            id_location=content.id_location(element),
            type=kind,
            input=extension.value(element, "input") if given else content.payload(params),
            autoforward=self.extension.choice(element, "autoforward", ("true", "false"), "false", "") == "true",
            finalize=self._finalize(element),
            done=done,
            error=error,
            place=element.place,
            **extension.extras(element, INVOKE),
        )

    def _invoke_type(self, element: Element) -> Value:
        kind = self.content.either(element, "type", "typeexpr")
        if kind is None or kind in CHART_TYPES:
            return "chart"
        return "handler" if kind == HANDLER_TYPE else kind

    def _src(self, element: Element, name: str, kind: Value) -> str | Expression | Document | None:
        """What `src` or `srcexpr` names: a handler, a chart of ours, or a file, which is read now if it can be."""
        src = self.content.either(element, "src", "srcexpr")
        if not isinstance(src, str) or kind != "chart":
            return cast(str | Expression | None, src)
        if src.startswith("interlock:"):
            return src.removeprefix("interlock:")
        if self.content.resolver is None:
            message = f'"{src}" is not read: it is used as the name of a chart that is registered'
            self.findings.warning("scxml.src", message, element.at("src"), ALLOW_SRC_HINT)
            return src
        text = self.content.resolved(element, "src")
        return None if text is None else self._nested_text(text, src, name)

    def _nested_text(self, text: str, source: str, name: str) -> Document | None:
        root = parse_xml(text, source=source, findings=self.findings)
        return None if root is None else self.nested(root, source, name)

    def _content_chart(self, element: Element, name: str) -> Expression | Document | str | None:
        inside = own(element, "content")[0]
        if element.get("src") is not None or element.get("srcexpr") is not None:
            self.findings.error("scxml.exclusive", "<invoke> has a src or a <content>, not both", element.place)
        charts = own(inside, "scxml")
        if charts:
            return self.nested(charts[0], self.source, name)
        value = self.content.inline(inside)
        if isinstance(value, Expression):
            return value
        self.findings.error("scxml.invoke", "the <content> of this invoke holds no <scxml>", inside.place)
        return None

    def _finalize(self, element: Element) -> Block | None:
        """The block of `finalize`; an empty one takes every location given to the invoke from the answer."""
        found = own(element, "finalize")
        if not found:
            return None
        block = self.content.block(found[0])
        names = [(name, name) for name in (element.get("namelist") or "").split()]
        located = [each for each in own(element, "param") if each.get("location") is not None]
        names += [(each.get("name") or "", each.get("location") or "") for each in located]
        return block or tuple(self._taken(name, location, found[0]) for name, location in names)

    def _taken(self, name: str, location: str, element: Element) -> If:
        answered = Expression(f"event.data != null and has(event.data, {name!r})", element.place)
        value = Expression(f"get(event.data, {name!r})", element.place)
        path = read_path(location, self.content.datamodel)
        guard = GuardExpression(expression=answered, place=element.place)
        return If(branches=((guard, (Assign(values=((path, value),), place=element.place),)),), place=element.place)

    def saga(self, element: Element) -> Saga:
        def inside(name: str) -> tuple[Transition, ...]:
            found = (each for group in own(element, f"interlock:{name}") for each in own(group, "transition"))
            return tuple(self.transition(each) for each in found)

        return Saga(
            steps=tuple(self._saga_step(each) for each in own(element, "interlock:step")),
            compensation=self.extension.choice(element, "compensation", ("reverse", "parallel", "none"), "reverse", ""),
            done=inside("done"),
            compensated=inside("compensated"),
            error=inside("error"),
            place=element.place,
        )

    def _saga_step(self, element: Element) -> SagaStep:
        def call(name: str) -> SagaCall | None:
            found = own(element, name)
            return self._saga_call(found[0]) if found else None

        do = call("interlock:call")
        if do is None:
            self.findings.error("scxml.required", "a step of a saga needs <interlock:call>", element.place)
        return SagaStep(
            id=element.get("id") or "",
            do=do or SagaCall(src=""),
            guard=self.content.guard(element),
            compensate=call("interlock:compensate"),
            retry=self.extension.model(element, "retry", SagaStep),
            timeout=element.get("timeout"),
            place=element.place,
        )

    def _saga_call(self, element: Element) -> SagaCall:
        return SagaCall(
            src=element.get("src") or "",
            input=self.content.payload(element),
            output=element.get("output"),
            key=self.extension.value(element, "idempotency"),
            place=element.place,
        )


def _without_content(element: Element) -> Element:
    return replace(element, children=[each for each in element.elements if tag(each) != "content"])
