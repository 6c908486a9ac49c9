"""Reads our own pages in tests: texts, tables and ids, by the standard library's parser."""

from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br", "img", "hr", "rect"}


class Page(HTMLParser):
    """`source` parsed. Raises AssertionError for tags that do not nest: our pages are well formed."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[tuple[tuple[str, ...], str]] = []  # (ids of the elements around it, text)
        self._attributes: dict[str, dict[str, str | None]] = {}
        self._tables: dict[str, list[list[str]]] = {}
        self._counts: dict[str, int] = {}
        self._inline: list[str] = []
        self._values: dict[str, str] = {}
        self.feed(source)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "input" and attributes.get("name"):
            self._values[attributes["name"] or ""] = attributes.get("value") or ""
        name = attributes.get("id")
        if name:
            assert name not in self._attributes, f"two elements have the id {name}"
            self._attributes[name] = attributes
        is_data = attributes.get("type") == "application/json"  # no browser runs it
        if tag in ("script", "style") and "src" not in attributes and not is_data:
            self._inline.append(tag)
        self._inline += [key for key in attributes if key.startswith("on") or key == "style"]
        if tag == "rect" and any(element == "svg" and "map" in (a.get("class") or "") for element, a in self._open):
            self._counts["svg.map rect"] = self._counts.get("svg.map rect", 0) + 1
        if tag == "tr" and self._inside("tbody"):
            self._rows().append([])
        if tag in ("td", "th") and self._inside("tbody"):
            self._rows()[-1].append("")
        if tag not in VOID or tag == "rect":
            self._open.append((tag, attributes))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self._open and self._open[-1][0] == tag:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"closes {tag}, which is not open"
        assert self._open[-1][0] == tag, f"closes {tag} inside {self._open[-1]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        ids = tuple(attributes["id"] or "" for _, attributes in self._open if attributes.get("id"))
        self._texts.append((ids, data))
        if self._inside("tbody") and (self._inside("td") or self._inside("th")):
            row = self._rows()[-1]
            row[-1] = " ".join((row[-1] + data).split())

    def _inside(self, tag: str) -> bool:
        return any(element == tag for element, _ in self._open)

    def _rows(self) -> list[list[str]]:
        name = next(a["id"] or "" for _, a in reversed(self._open) if a.get("id"))
        return self._tables.setdefault(name, [])

    @property
    def text(self) -> str:
        return " ".join("".join(text for _, text in self._texts).split())

    def text_of(self, name: str) -> str:
        return "".join(text for ids, text in self._texts if name in ids).strip()

    def table(self, name: str) -> list[list[str]]:
        """Rows of the table body inside the element `name`."""
        return self._tables.get(name, [])

    def has_id(self, name: str) -> bool:
        return name in self._attributes

    def is_hidden(self, name: str) -> bool:
        return "hidden" in self._attributes[name]

    def attribute(self, name: str, key: str) -> str | None:
        return self._attributes[name].get(key)

    def value(self, name: str) -> str:
        """What stands in the last input field of this name."""
        return self._values[name]

    def count(self, what: str) -> int:
        return self._counts.get(what, 0)

    def inline_scripts_and_styles(self) -> list[str]:
        """What a content security policy without 'unsafe-inline' would refuse."""
        return self._inline
