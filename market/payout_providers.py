"""Who makes payments: the interface of a provider, and the one that writes a file for a person to carry out.

A provider is asked again after every crash, with the same keys. It must pay an item once however often it is asked.
"""

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from market.errors import ProviderFailed

COLUMNS = ("item_id", "amount_credits", "payee", "node_id")
MICROCREDITS = 1_000_000


@dataclass(frozen=True)
class Payment:
    """One payment to be made. payee: what the owner said; item_id: the provider's idempotency key."""

    item_id: str
    node_id: str
    payee: str
    amount_microcredits: int


class PayoutProvider(Protocol):
    """name: stored with the batch, so that a retry goes to the same provider."""

    name: str

    def submit(self, batch_key: str, payments: Sequence[Payment]) -> str:
        """Takes the batch, once for a key; its reference, the same for every repeat. Raises ProviderFailed."""
        ...


class CsvProvider:
    """Writes one CSV file per batch; a person pays what it lists and imports a settlement file afterwards.

    A file that is there stays as it is, whatever has changed since: it may have been carried to the bank already.
    """

    name = "csv"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def submit(self, batch_key: str, payments: Sequence[Payment]) -> str:
        path = self._folder / f"{batch_key}.csv"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not path.exists():
                _write_once(path, payments_csv(payments))
            written = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
        except OSError as problem:
            raise ProviderFailed(f"{path} cannot be written: {problem}") from problem
        wanted = {(payment.item_id, credits_text(payment.amount_microcredits)) for payment in payments}
        if {(row.get("item_id"), row.get("amount_credits")) for row in written} != wanted:
            raise ProviderFailed(f"{path} lists other payments than {batch_key}: move it away, then send again")
        return path.name


def _write_once(path: Path, text: str) -> None:
    """Whole or not at all, and on the disk before anybody relies on it."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def payments_csv(payments: Sequence[Payment]) -> str:
    """The payments as CSV with a line of names; amounts in credits, exact."""
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow(COLUMNS)
    for payment in payments:
        amount = credits_text(payment.amount_microcredits)
        writer.writerow((payment.item_id, amount, safe_cell(payment.payee), payment.node_id))
    return output.getvalue()


def credits_text(amount_microcredits: int) -> str:
    """12 microcredits -> 0.000012, without ever passing a float."""
    whole, fraction = divmod(abs(amount_microcredits), MICROCREDITS)
    return f"{'-' if amount_microcredits < 0 else ''}{whole}.{fraction:06d}"


def safe_cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text


def provider_named(name: str, folder: Path) -> PayoutProvider:
    """Raises ProviderFailed for a name that nobody has."""
    if name != CsvProvider.name:
        raise ProviderFailed(f"there is no payment provider {name!r}; there is {CsvProvider.name!r}")
    return CsvProvider(folder)
