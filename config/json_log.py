"""Log lines as JSON objects, one a line, for whoever collects them (LOG_FORMAT=json).

    {"at": "2026-11-01T10:00:00.123Z", "level": "INFO", "logger": "relay.connection", "message": "...", "process": 17,
     "thread": "...", "request_id": "...", "generation_id": "...", "node_id": "...", "claim_id": 5, ...}

Ids come from `config.log_context`, from `extra=` of the call, and from the message where it names one in the words that
the code uses ("node 0123456789abcdef", "claim 5"). Secrets are blotted out last, whoever logged them.
"""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from config import log_context

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_NAMED = (
    ("node_id", re.compile(r"\bnode ([0-9a-f]{16})\b")),
    ("node_id", re.compile(r"\bworker \d+ ([0-9a-f]{16})\b")),
    ("session", re.compile(r"\b(?:session|worker) (\d+)\b")),
    ("claim_id", re.compile(r"\bclaim (\d+)\b")),
    ("generation_id", re.compile(r"\bgeneration ([0-9a-f]{8}-[0-9a-f-]{27})\b")),
)
_SECRETS = (
    (re.compile(r"(\w+://[^\s:/@\"]*:)[^\s@/\"]+@"), r"\1***@"),  # passwords of addresses
    (re.compile(r"(?i)(bearer\s+)[^\s\"',]+"), r"\1***"),
    (re.compile(r"sk-es-[\w-]+"), "sk-es-***"),  # API keys
    # What a dictionary or a query string names as one.
    (re.compile(r"(?i)((?:token|password|secret|api_key|authorization)[\"']?\s*[:=]\s*[\"']?)(?!\*)[^\s\"',&}]{6,}"),
     r"\1***"),
)  # fmt: skip


def without_secrets(text: str) -> str:
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class JsonFormatter(logging.Formatter):
    """One object per record; nothing in it breaks the line."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        values: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
            "process": record.process,
            "thread": record.threadName,
            **_named(message),
            **log_context.current(),
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        }
        if record.exc_info and record.exc_info[1] is not None:
            values["error"] = type(record.exc_info[1]).__name__
            values["stack"] = self.formatException(record.exc_info)
        return json.dumps({name: _clean(value) for name, value in values.items()}, default=_as_text)


def _clean(value: Any) -> Any:
    return without_secrets(value) if isinstance(value, str) else value


def _as_text(value: object) -> str:
    return without_secrets(str(value))


def _named(message: str) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for name, pattern in _NAMED:
        match = pattern.search(message)
        if match is not None:
            found.setdefault(name, int(match[1]) if match[1].isdecimal() and len(match[1]) < 16 else match[1])
    return found
