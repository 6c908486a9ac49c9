"""What a look finds: fine, a warning, or an error with what to do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """check: a stable name; what: how it is, without passwords; todo: what to do, empty when it is fine."""

    check: str
    level: Level
    what: str
    todo: str = ""

    def to_json(self) -> dict[str, str]:
        return {"check": self.check, "level": str(self.level), "what": self.what, "todo": self.todo}


def fine(check: str, what: str) -> Finding:
    return Finding(check, Level.OK, what)


def warning(check: str, what: str, todo: str) -> Finding:
    return Finding(check, Level.WARNING, what, todo)


def error(check: str, what: str, todo: str) -> Finding:
    return Finding(check, Level.ERROR, what, todo)


Look = Callable[[], Iterator[Finding]]
