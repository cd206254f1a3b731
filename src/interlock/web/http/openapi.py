"""The OpenAPI 3.1 document, generated from the endpoint table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from interlock.web.http.endpoint import BASE, CSRF_HEADER, Endpoint

_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")
_REFERENCE = "#/components/schemas/{name}"

_PATH_SCHEMAS: dict[str, dict[str, Any]] = {
    "entity": {"type": "string", "description": "kind/id"},
    "act": {"type": "string", "enum": ["pause", "resume", "cancel"]},
}
"""The schemas of parameters of paths that are not just any text, by name."""

PROBLEM = {
    "type": "object",
    "description": "RFC 9457, with the stable code of the error and, if known, a hint.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "hint": {"type": "string"},
        "receipt": {"$ref": "#/components/schemas/ReceiptView"},
    },
    "required": ["type", "title", "status", "detail", "code"],
}


def document(endpoints: Iterable[Endpoint], *, version: str) -> dict[str, Any]:
    """Return the document for these endpoints."""
    table = tuple(endpoints)
    shapes = [shape for each in table for shape in (each.answer, each.body) if shape is not None]
    references, components = msgspec.json.schema_components(shapes, ref_template=_REFERENCE)
    schemas = dict(zip(map(id, shapes), references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in table:
        path = _PARAMETER.sub(r"{\1}", BASE + each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Interlock",
            "version": version,
            "description": "Read and operate the entities of a store. "
            "The name of an entity is `kind/id`; it is the unescaped end of a path.",
        },
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": PROBLEM},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "interlock",
                    "description": "For browsers. `__Host-interlock` with https, else with the port in its name.",
                },
                "token": {
                    "type": "apiKey",
                    "in": "header",
                    "name": CSRF_HEADER,
                    "description": "`csrf` of the response to the sign-in. The cookie is not valid without it.",
                },
            },
        },
        "security": [{"key": []}, {"cookie": [], "token": []}],
    }


def _operation(endpoint: Endpoint, schemas: dict[int, Any]) -> dict[str, Any]:
    answer = {"schema": schemas[id(endpoint.answer)]} if endpoint.answer is not None else {}
    problem = {
        "description": "The error, and how to fix it",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method.lower()}_{re.sub(r'[^a-z]+', '_', endpoint.path.lower()).strip('_')}",
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": {"200": {"description": "The result", "content": {endpoint.media: answer}}, "default": problem},
    }
    if endpoint.body is not None:
        schema = schemas[id(endpoint.body)]
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if endpoint.right is None:
        operation["security"] = []
    else:
        operation["description"] = f"Requires the right `{endpoint.right}`."
    return operation


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = _PARAMETER.findall(endpoint.path)
    return [
        {"name": each, "in": "path", "required": True, "schema": _PATH_SCHEMAS.get(each, {"type": "string"})}
        for each in names
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.query is None:
        return []
    schema = next(iter(msgspec.json.schema(endpoint.query)["$defs"].values()))
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": shape}
        for name, shape in schema["properties"].items()
    ]
