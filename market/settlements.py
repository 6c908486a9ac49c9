"""What a payment provider says of a batch afterwards: a CSV file, imported line by line.

Each line is a command of its own, so an import that was cut off is imported again: what is known changes nothing.
"""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass

from market import commands
from market.errors import BadRequest, MarketError

COLUMNS = ("item_id", "status", "reference", "reason")
SIZE_LIMIT_BYTES = 8 << 20


@dataclass(frozen=True)
class SettlementReport:
    """How many lines changed something, how many were known, and what is wrong with the others, by line number."""

    applied: int
    repeated: int
    problems: tuple[str, ...]


def import_settlement(text: str, *, by: str) -> SettlementReport:
    """text: CSV with the columns item_id, status (settled, failed, returned), and optionally reference and reason.

    A line that contradicts the books is reported and changes nothing. Raises BadRequest when this is no such file.
    """
    applied = repeated = 0
    problems: list[str] = []
    for number, line in _lines(text):
        try:
            if _apply(line, by):
                applied += 1
            else:
                repeated += 1
        except MarketError as problem:
            problems.append(f"line {number}: {problem.code}: {problem}")
    return SettlementReport(applied, repeated, tuple(problems))


def _lines(text: str) -> list[tuple[int, dict[str, str]]]:
    if len(text) > SIZE_LIMIT_BYTES:
        raise BadRequest(f"a settlement file has at most {SIZE_LIMIT_BYTES} bytes")
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    names = reader.fieldnames or []
    if not {"item_id", "status"} <= set(names) <= set(COLUMNS):
        raise BadRequest(f"a settlement file has the columns {', '.join(COLUMNS)}; the last two may be left out")
    try:
        return [(reader.line_num, {name: (line.get(name) or "").strip() for name in COLUMNS}) for line in reader]
    except csv.Error as problem:
        raise BadRequest(f"line {reader.line_num} is no CSV: {problem}") from problem


def _apply(line: dict[str, str], by: str) -> bool:
    item_id, reason = line["item_id"], line["reason"]
    actions: dict[str, Callable[[], bool]] = {
        "settled": lambda: commands.settle_item(item_id, reference=line["reference"], by=by),
        "failed": lambda: commands.fail_item(item_id, reason=reason or "no reason given", by=by),
        "returned": lambda: commands.return_item(item_id, reason=reason or "no reason given", by=by),
    }
    action = actions.get(line["status"].lower())
    if action is None:
        raise BadRequest(f"status is {line['status']!r}, not settled, failed or returned")
    return action()
