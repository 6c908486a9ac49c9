"""market/settlements.py and market/payout_providers.py: files in, files out."""

import csv
import io
import stat
from pathlib import Path

import pytest
from pytest_django import Settings

from market import commands
from market.errors import BadRequest, ProviderFailed
from market.payout_providers import (
    CsvProvider,
    Payment,
    credits_text,
    payments_csv,
    provider_named,
    safe_cell,
)
from market.settlements import import_settlement
from tests.builders import MORNING, demo_build, later, payable_device
from tests.market.commands.test_payouts import Bank, sent

PAYMENTS = [Payment("payout-000001-0001", "bob", "IBAN 1", 12), Payment("payout-000001-0002", "eve", "=1+1", 3_000_000)]


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0.000000"), (12, "0.000012"), (3_000_001, "3.000001"), (-5_250_000, "-5.250000")]
)
def test_amounts_are_written_without_a_float(amount: int, text: str) -> None:
    assert credits_text(amount) == text


def test_no_cell_is_a_formula() -> None:
    assert [safe_cell(text) for text in ("=1+1", "+49", "-x", "@a", "IBAN", "")] == [
        "'=1+1", "'+49", "'-x", "'@a", "IBAN", "",
    ]  # fmt: skip


class TestCsvProvider:
    def test_a_batch_is_one_file_for_its_owner_alone(self, tmp_path: Path) -> None:
        reference = CsvProvider(tmp_path / "payouts").submit("payout-000001", PAYMENTS)

        path = tmp_path / "payouts" / reference
        rows = list(csv.reader(io.StringIO(path.read_text())))
        assert rows == [
            ["item_id", "amount_credits", "payee", "node_id"],
            ["payout-000001-0001", "0.000012", "IBAN 1", "bob"],
            ["payout-000001-0002", "3.000000", "'=1+1", "eve"],
        ]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [file.name for file in path.parent.iterdir()] == ["payout-000001.csv"]

    def test_a_file_that_is_there_is_never_written_again(self, tmp_path: Path) -> None:
        provider = CsvProvider(tmp_path)
        provider.submit("payout-000001", PAYMENTS)
        before = (tmp_path / "payout-000001.csv").read_text()

        again = provider.submit("payout-000001", [Payment("payout-000001-0001", "bob", "moved", 12), PAYMENTS[1]])

        assert again == "payout-000001.csv"
        assert (tmp_path / "payout-000001.csv").read_text() == before

    def test_a_file_of_another_batch_is_an_error(self, tmp_path: Path) -> None:
        CsvProvider(tmp_path).submit("payout-000001", PAYMENTS)

        with pytest.raises(ProviderFailed, match="other payments"):
            CsvProvider(tmp_path).submit("payout-000001", PAYMENTS[:1])

    def test_a_folder_that_cannot_be_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")

        with pytest.raises(ProviderFailed):
            CsvProvider(tmp_path / "file").submit("payout-000001", PAYMENTS)

    def test_only_known_providers_have_a_name(self, tmp_path: Path) -> None:
        assert provider_named("csv", tmp_path).name == "csv"
        with pytest.raises(ProviderFailed):
            provider_named("gold", tmp_path)


@pytest.mark.django_db
class TestImport:
    @pytest.fixture
    def items(self, settings: Settings) -> list[str]:
        settings.HOLD_SECONDS = 0.0
        commands.publish_build(demo_build(), now=MORNING)
        for number in range(3):
            payable_device(f"device {number}", layer=number)
        commands.release_earnings(later(600))
        return [item.item_id for item in sent(Bank())]

    def test_a_file_may_be_imported_twice(self, items: list[str]) -> None:
        text = f"item_id,status,reference,reason\n{items[0]},settled,b1,\n{items[1]},Failed,,unknown account\n"

        first, again = import_settlement(text, by="alice"), import_settlement("\ufeff" + text, by="alice")

        assert (first.applied, first.repeated, first.problems) == (2, 0, ())
        assert (again.applied, again.repeated, again.problems) == (0, 2, ())

    def test_a_line_that_contradicts_is_reported_and_the_others_count(self, items: list[str]) -> None:
        import_settlement(f"item_id,status\n{items[0]},failed\n", by="alice")
        text = (
            f"item_id,status,reference\n{items[0]},settled\nnobody,settled\n{items[1]},lost\n{items[2]},settled\n"
            f"{items[1]},settled,\0\n"
        )

        report = import_settlement(text, by="alice")

        assert report.applied == 1
        assert [line.split(":")[:2] for line in report.problems] == [
            ["line 2", " wrong_state"],
            ["line 3", " unknown_payout"],
            ["line 4", " bad_request"],
            ["line 6", " bad_request"],
        ]

    @pytest.mark.parametrize("text", ["", "item_id\nx\n", "item_id,status,extra\n", "{}"])
    def test_another_file_is_refused(self, items: list[str], text: str) -> None:
        with pytest.raises(BadRequest):
            import_settlement(text, by="alice")


def test_the_export_is_what_the_provider_would_write(tmp_path: Path) -> None:
    CsvProvider(tmp_path).submit("payout-000001", PAYMENTS)

    assert (tmp_path / "payout-000001.csv").read_bytes().decode() == payments_csv(PAYMENTS)
