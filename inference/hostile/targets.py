"""Every address of the server, from Django's own list, with what the OpenAPI document says of some: nothing by hand, so
that an address that is added tomorrow is attacked tomorrow.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_ROUTE_PART = re.compile(r"<(?:\w+:)?(\w+)>")
_GROUP = re.compile(r"\(\?P<(\w+)>[^()]*\)")


@dataclass(frozen=True)
class Target:
    """template: a path with `{name}` for each part that a client chooses. bodies: method -> a valid JSON body."""

    template: str
    methods: tuple[str, ...] = METHODS
    bodies: tuple[tuple[str, Any], ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.template))

    def path(self, values: Mapping[str, str]) -> str:
        """The path with these values; parts that are not named become 1."""
        return re.sub(r"{(\w+)}", lambda found: values.get(found[1], "1"), self.template)


def templates(resolver: URLResolver | None = None, prefix: str = "/") -> Iterator[str]:
    """The path of every pattern, in Django's order."""
    for entry in (resolver or get_resolver()).url_patterns:
        path = prefix + _as_template(str(entry.pattern))
        if isinstance(entry, URLResolver):
            yield from templates(entry, path)
        elif isinstance(entry, URLPattern):
            yield path


def _as_template(pattern: str) -> str:
    text = _ROUTE_PART.sub(r"{\1}", _GROUP.sub(r"{\1}", pattern))
    return re.sub(r"\\(.)", r"\1", text.removeprefix("^").removesuffix("$").removesuffix("\\Z"))


def targets(openapi: Mapping[str, Any]) -> list[Target]:
    """All of them; those that the document has with its bodies. Every method is tried at each."""
    described = {
        re.sub(r"{(\w+)}", "{}", path): {
            method.upper(): _body(entry, openapi) for method, entry in operations.items() if method.upper() in METHODS
        }
        for path, operations in openapi["paths"].items()
    }
    found = []
    for template in dict.fromkeys(templates()):
        operations = described.get(re.sub(r"{(\w+)}", "{}", template), {})
        bodies = tuple((method, body) for method, body in operations.items() if body is not None)
        found.append(Target(template, METHODS, bodies))
    return found


def missing(openapi: Mapping[str, Any], found: list[Target]) -> list[str]:
    """Paths of the document that Django's list does not have: then the list was read wrongly."""
    known = {re.sub(r"{(\w+)}", "{}", target.template) for target in found}
    return [path for path in openapi["paths"] if re.sub(r"{(\w+)}", "{}", path) not in known]


def _body(operation: Mapping[str, Any], openapi: Mapping[str, Any]) -> Any:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    return None if content is None else sample(content["schema"], openapi)


def sample(schema: Mapping[str, Any], openapi: Mapping[str, Any]) -> Any:
    """A value that the schema allows: as many fields as it knows, small numbers, short texts."""
    if "$ref" in schema:
        named = openapi["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return sample(named, openapi)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return sample(schema[key][0], openapi)
    match schema.get("type"):
        case "object":
            return {name: sample(part, openapi) for name, part in schema.get("properties", {}).items()}
        case "array":
            return [sample(schema["items"], openapi)]
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case "string":
            return "0" * int(found[1]) if (found := re.search(r"{(\d+)}", schema.get("pattern", ""))) else "x"
        case _:
            return None
