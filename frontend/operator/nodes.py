"""Devices: a list that can be searched and sorted, a page for each with its history, and a QR code that adds one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from frontend.figures import is_connected
from frontend.operator.access import operator_act, operator_page
from frontend.operator.heat_map import statuses
from frontend.operator.node_acts import ACTS
from frontend.operator.stages import backbones_using
from frontend.pairing import pairing
from inference.stats import owners_part
from market import commands, histories, node_list, presence, queries
from market.commands.nodes import NAME_LIMIT
from market.errors import MarketError
from market.node_list import NodeLine

LINES_PER_PAGE = 50
# A phone that a QR code adds has told nobody yet what it computes with.
ANY_KERNEL = "any"

Key = Callable[["Line"], Any]


@dataclass(frozen=True)
class Line:
    """A device and the time until its answers, in milliseconds; None: no backbone has had one."""

    node: NodeLine
    latency: float | None

    @property
    def role(self) -> Promise:
        return ROLE_WORDS[self.node.role]


@dataclass(frozen=True)
class Column:
    key: str
    label: Promise
    value: Key


COLUMNS = (
    Column("name", gettext_lazy("Name"), lambda line: line.node.name.casefold()),
    Column("role", gettext_lazy("Role"), lambda line: line.node.role),
    Column("state", gettext_lazy("State"), lambda line: line.node.state),
    Column("slices", gettext_lazy("Slices"), lambda line: line.node.slices),
    Column("experts", gettext_lazy("Experts"), lambda line: line.node.experts),
    Column("memory", gettext_lazy("Memory"), lambda line: line.node.size_bytes),
    Column("trust", gettext_lazy("Trust"), lambda line: line.node.trust),
    Column("latency", gettext_lazy("Answer"), lambda line: -1.0 if line.latency is None else line.latency),
    Column("earned", gettext_lazy("Earned"), lambda line: line.node.earned_microcredits),
    Column("registered", gettext_lazy("Registered"), lambda line: line.node.registered_at),
)
WORDS_FIRST = ("name", "role", "state")
DEFAULT_SORT = "-experts"
ROLE_WORDS = {"worker": gettext_lazy("worker"), "stage": gettext_lazy("stage")}
STATE_WORDS = {
    "working": gettext_lazy("working"),
    "waiting": gettext_lazy("waits for its check"),
    "away": gettext_lazy("holds nothing"),
    "leaving": gettext_lazy("leaving"),
    "paused": gettext_lazy("paused"),
    "banned": gettext_lazy("banned"),
    "erased": gettext_lazy("erased"),
}


@dataclass(frozen=True)
class Heading:
    """A column's head. sort: what a click asks for; order: ascending, descending or nothing, as ARIA says it."""

    column: Column
    sort: str
    order: str


@operator_page
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "").strip()
    state, role = request.GET.get("state", ""), request.GET.get("role", "")
    sort = request.GET.get("sort", DEFAULT_SORT)
    lines = _sorted([line for line in _lines() if _matches(line.node, query, state, role)], sort)
    context = {
        "shown": Paginator(lines, LINES_PER_PAGE).get_page(request.GET.get("page")),
        "found": len(lines),
        "headings": _headings(sort),
        "query": query,
        "state": state,
        "role": role,
        "sort": sort,
        "states": STATE_WORDS.items(),
        "state_words": STATE_WORDS,
        "roles": ROLE_WORDS.items(),
    }
    return render(request, "frontend/operator/nodes.html", context)


def _lines() -> list[Line]:
    answers = _answers()
    return [Line(node, answers.get(node.node_id)) for node in node_list.node_lines()]


def _answers() -> dict[str, float]:
    """Milliseconds by node, from the backbone that measured the quickest."""
    return {owner["node"]: 1000.0 * owner["seconds"] for owner in owners_part(statuses())}


def _matches(node: NodeLine, query: str, state: str, role: str) -> bool:
    text = f"{node.name} {node.node_id} {node.kernel_class} {node.reason}".casefold()
    chosen = state in ("", node.state) and role in ("", node.role)
    return chosen and all(word in text for word in query.casefold().split())


def _sorted(lines: list[Line], sort: str) -> list[Line]:
    column = next((one for one in COLUMNS if one.key == sort.lstrip("-")), None)
    return lines if column is None else sorted(lines, key=column.value, reverse=sort.startswith("-"))


def _headings(sort: str) -> list[Heading]:
    key, down = sort.lstrip("-"), sort.startswith("-")
    found = []
    for column in COLUMNS:
        chosen = column.key == key
        # A first click on a number shows the greatest first, on a word the first letter.
        other = column.key if (chosen and down) or (not chosen and column.key in WORDS_FIRST) else f"-{column.key}"
        order = ("descending" if down else "ascending") if chosen else ""
        found.append(Heading(column, other, order))
    return found


@operator_page
@require_safe
def node(request: HttpRequest, node_id: str) -> HttpResponse:
    return render(request, "frontend/operator/node.html", _node_context(node_id))


def _node_context(node_id: str) -> dict[str, Any]:
    """Raises Http404."""
    found, view = node_list.node_line(node_id), queries.node(node_id)
    if found is None or view is None:
        raise Http404
    line = Line(found, _answers().get(node_id))
    seen = presence.last_seen([node_id]).get(node_id)
    said = statuses()
    failures = [(code, count) for status in said for node, code, count in status.get("failures", []) if node == node_id]
    return {
        "line": line,
        "view": view,
        "role": line.role,
        "rows": queries.rows_of(node_id),
        "backbones": backbones_using(node_id, said),
        "state": STATE_WORDS[line.node.state],
        "last_seen": seen,
        "connected": is_connected(seen),
        "claims": queries.node_claims(node_id),
        "balances": queries.balances(node_id),
        "failures": failures,
        "history": histories.node_history(node_id),
        "messages_sent": histories.messages(node_id),
        "acts": [act for act in ACTS.values() if act.offered(view)],
    }


@operator_act
@require_http_methods(["GET", "HEAD", "POST"])
def phone(request: HttpRequest) -> HttpResponse:
    """Registers a device and shows its QR code, once."""
    context: dict[str, Any] = {"name_limit": NAME_LIMIT}
    if request.method == "POST":
        try:
            node_id, token = commands.register_node(request.POST.get("name", ""), ANY_KERNEL)
        except MarketError as refusal:
            context |= {"problem": str(refusal)}
        else:
            context |= {"pairing": pairing(token), "node_id": node_id}
    return render(request, "frontend/operator/phone.html", context, status=400 if "problem" in context else 200)
