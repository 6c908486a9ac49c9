"""docs/events.md and docs/ledger.md say what the code says."""

import re
from dataclasses import fields
from pathlib import Path

from market import codec
from market.events import EVENT_TYPES, stream_of
from market.ledger import SYSTEM_ACCOUNTS, node_accounts
from tests.market.test_codec import sample

DOCS = Path(__file__).parents[2] / "docs"


def table_rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_the_table_of_events_is_the_code() -> None:
    rows = [row for row in table_rows((DOCS / "events.md").read_text()) if row[0].startswith("`")]
    documented = {row[0].strip("`"): row[1:4] for row in rows}

    assert list(documented) == [kind.NAME for kind in EVENT_TYPES]
    for kind in EVENT_TYPES:
        version, stream, names = documented[kind.NAME]
        event = codec.decode(kind.NAME, kind.VERSION, sample(kind.NAME, kind.VERSION))
        pattern = re.sub("BUILD|NODE", "[0-9a-f]+", stream.strip("`"))
        pattern = re.sub("LAYER|BATCH", "[0-9]+", pattern)
        assert int(version) == kind.VERSION
        assert names.split(", ") == [field.name for field in fields(kind)]
        assert re.fullmatch(pattern, stream_of(event)), stream


def test_every_account_is_in_the_ledger_document() -> None:
    text = (DOCS / "ledger.md").read_text()

    for account in (*SYSTEM_ACCOUNTS, *node_accounts("NODE")):
        assert f"| `{account}` |" in text
