"""manage.py up: what it refuses before anything starts."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from config.management.commands.up import expert_sizes


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.gguf").write_text("hello")

    with pytest.raises(CommandError, match=r"notes\.gguf"):
        call_command("up", model=tmp_path / "notes.gguf")


def test_a_negative_number_of_workers_is_refused() -> None:
    with pytest.raises(CommandError, match="--workers"):
        call_command("up", workers=-1)


def test_the_demo_model_offers_all_its_experts() -> None:
    sizes = expert_sizes(Path("models/qwen35moe-demo-q4_k_m.gguf"))

    assert sizes.experts == 8 * 32
    assert sizes.largest_bytes > 100_000


def test_a_time_that_is_over_at_once_is_refused() -> None:
    with pytest.raises(CommandError, match="--start-seconds"):
        call_command("up", start_seconds=0.0)


def test_a_budget_below_one_expert_is_refused_with_the_least_size() -> None:
    with pytest.raises(CommandError, match=r"--budget is too small .* 110592 bytes"):
        call_command("up", budget=3)


@pytest.mark.parametrize("options", [{"tls": True}, {"lan_name": ["phone.test"]}])
def test_https_and_names_are_for_the_local_network(options: dict[str, object]) -> None:
    with pytest.raises(CommandError, match="go with --lan"):
        call_command("up", **options)
