"""The worker's command line."""

import argparse
import os
from pathlib import Path

import pytest

from inference.worker import options
from inference.worker.options import parse_options, parse_server, parse_size

SERVER = ["--server", "https://swarm.example"]


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("42MB", 42_000_000),
        ("1GiB", 1 << 30),
        ("1.5gib", 3 << 29),
        ("512 KiB", 512 << 10),
        ("5000000", 5_000_000),
        ("7b", 7),
        (" 2 GB ", 2_000_000_000),
    ],
)
def test_it_reads_sizes_as_people_write_them(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1,5GB", "42 bananas", "0", "0.1b", "1e9", "nan"])
def test_it_refuses_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://swarm.example/", "https://swarm.example"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://example.org/swarm", "https://example.org/swarm"),
    ],
)
def test_it_reads_server_addresses(text: str, address: str) -> None:
    assert parse_server(text) == address


@pytest.mark.parametrize(
    "text", ["swarm.example", "ftp://swarm.example", "https://", "http://h:99999999", "https://h/?a=1", "http://[::1"]
)
def test_it_refuses_what_is_no_server_address(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a server address"):
        parse_server(text)


def test_the_defaults_lend_a_part_of_the_machine() -> None:
    chosen = parse_options(SERVER)

    assert chosen.budget_bytes is not None
    assert 0 < chosen.budget_bytes <= 2 << 30
    assert chosen.experts is None
    assert 1 <= chosen.threads <= (os.cpu_count() or 1)
    assert chosen.kernel == "auto"
    assert chosen.state_dir == Path("~/.local/state/expertswarm").expanduser()
    assert chosen.name


def test_a_number_of_experts_replaces_the_budget() -> None:
    chosen = parse_options([*SERVER, "--experts", "7"])

    assert (chosen.experts, chosen.budget_bytes) == (7, None)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [*SERVER, "--budget", "much"],
        [*SERVER, "--budget", "1MB", "--experts", "2"],
        [*SERVER, "--experts", "0"],
        [*SERVER, "--threads", "none"],
        [*SERVER, "--kernel", "abacus"],
    ],
)
def test_a_wrong_command_line_ends_with_usage_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        parse_options(arguments)

    assert raised.value.code == 2
    assert "usage: python -m inference.worker" in capsys.readouterr().err


def test_help_explains_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--help"])

    text = capsys.readouterr().out
    for option in ("--server", "--budget", "--experts", "--kernel", "--name", "--state", "--threads", "--log-level"):
        assert option in text
    assert "42MB" in text


def test_a_caller_that_knows_a_server_may_leave_it_out() -> None:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser, server_required=False)

    assert parser.parse_args([]).server is None


def test_a_system_that_does_not_tell_its_memory_lends_a_gibibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sysconf")

    assert options.default_budget_bytes() == 1 << 30


@pytest.mark.parametrize("value", ["0", "-3", "nan", "inf", "many"])
def test_a_rate_must_be_a_number_above_zero(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_options(["--server", "http://x", "--rows-per-second", "12.5"]).rows_per_second == 12.5
    assert parse_options(["--server", "http://x"]).rows_per_second is None

    with pytest.raises(SystemExit):
        parse_options(["--server", "http://x", "--rows-per-second", value])

    assert "must be a number above 0" in capsys.readouterr().err
