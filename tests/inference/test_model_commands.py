"""`manage.py inspect` and `manage.py slice`, run as their users run them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inference.gguf_header import read_header
from inference.gguf_index import open_index
from inference.slices import SliceFile
from inference.synthetic import split
from tests.model_files import DEMO_MODEL, tiny_moe

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"


def manage(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, MANAGE, *map(str, words)], capture_output=True, text=True, timeout=60)


def refusal_of(done: subprocess.CompletedProcess[str]) -> str:
    """The code of the error: in one clear line, with exit status 2 and nothing on standard output."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    prefix, code, words = done.stderr.split(": ", 2)
    assert (prefix, bool(words.strip())) == ("CommandError", True)
    return code


def test_inspect_prints_a_table_or_json() -> None:
    table = manage("inspect", DEMO_MODEL)
    report = json.loads(manage("inspect", DEMO_MODEL, "--json").stdout)

    assert table.returncode == 0
    assert "28.3 MB (89.2% of the weights)" in table.stdout
    assert report["fingerprint"] in table.stdout
    assert len(report["layers"]) == 8


def test_slice_writes_a_slice_and_says_its_digest(tmp_path: Path) -> None:
    target = tmp_path / "slice.gguf"

    done = manage("slice", DEMO_MODEL, "--layer", "3", "--experts", "5:12", "-o", target)

    assert (done.returncode, done.stderr) == (0, "")
    assert "sha256" in done.stdout
    assert SliceFile.open(target).build == open_index(DEMO_MODEL).fingerprint


def test_slice_writes_a_stage_whole_or_without_experts(tmp_path: Path) -> None:
    whole, bare = tmp_path / "whole.gguf", tmp_path / "bare.gguf"

    done = manage("slice", DEMO_MODEL, "--layers", "4:8", "-o", whole)
    without = manage("slice", DEMO_MODEL, "--layers", "4:8", "--without-experts", "-o", bare)

    assert (done.returncode, done.stderr, without.returncode) == (0, "", 0)
    assert read_header(whole).metadata["qwen35moe.block_count"] == 4
    assert "its experts must come from the swarm" in without.stdout
    assert bare.stat().st_size == whole.stat().st_size
    assert bare.stat().st_blocks < whole.stat().st_blocks // 4


def test_slice_refuses_cuts_that_cannot_work_and_options_that_do_not_belong_together(tmp_path: Path) -> None:
    target = tmp_path / "out.gguf"

    done = manage("slice", DEMO_MODEL, "--layers", "4:7", "-o", target)
    mixed = manage("slice", DEMO_MODEL, "--layers", "0:4", "--layer", "1", "-o", target)
    bare = manage("slice", DEMO_MODEL, "-o", target)

    assert refusal_of(done) == "cut_refused"
    assert "the nearest stage is 4:8" in done.stderr
    assert refusal_of(mixed) == refusal_of(bare) == "usage"
    assert not target.exists()


@pytest.mark.parametrize("command", ["inspect", "slice"])
def test_each_bad_model_gets_one_clear_line(tmp_path: Path, command: str) -> None:
    (tmp_path / "text.gguf").write_text("hello, world")
    (tmp_path / "cut.gguf").write_bytes(DEMO_MODEL.read_bytes()[:100_000])
    parts = split(tiny_moe(tmp_path / "model.gguf"), tmp_path, 2)
    parts[1].unlink()
    more: list[str | Path] = (
        [] if command == "inspect" else ["--layer", "0", "--experts", "0:1", "-o", tmp_path / "out.gguf"]
    )

    assert refusal_of(manage(command, tmp_path / "text.gguf", *more)) == "not_gguf"
    assert refusal_of(manage(command, tmp_path / "cut.gguf", *more)) == "truncated"
    assert refusal_of(manage(command, parts[0], *more)) == "missing_part"
    assert refusal_of(manage(command, tiny_moe(tmp_path / "dense.gguf", dense=3), *more)) == "dense_model"
    assert refusal_of(manage(command, tmp_path / "absent.gguf", *more)) == "file_unreadable"


def test_slice_refuses_ranges_outside_and_words_that_are_none(tmp_path: Path) -> None:
    target = tmp_path / "out.gguf"

    assert refusal_of(manage("slice", DEMO_MODEL, "--layer", "8", "--experts", "0:1", "-o", target)) == "range_outside"
    assert refusal_of(manage("slice", DEMO_MODEL, "--layer", "0", "--experts", "0:33", "-o", target)) == "range_outside"
    done = manage("slice", DEMO_MODEL, "--layer", "0", "--experts", "1-2", "-o", target)

    assert done.returncode == 2
    assert "'1-2' is not A:B" in done.stderr
    assert not target.exists()
