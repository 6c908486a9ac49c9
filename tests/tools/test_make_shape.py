"""tools/make_shape.py as a command."""

import subprocess
import sys
from pathlib import Path

import pytest

from inference.gguf_index import open_index
from tests.model_files import DEMO_MODEL

ROOT = DEMO_MODEL.parent.parent


def make_shape(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tools.make_shape", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_whole_shape_is_a_hole_with_a_real_header(tmp_path: Path) -> None:
    path = tmp_path / "hole.gguf"

    made = make_shape(str(path), "--sparse")

    assert made.returncode == 0, made.stderr
    assert "48 layers of 256 experts" in made.stdout
    index = open_index(path)
    assert 75e9 < path.stat().st_size < 77e9
    assert path.stat().st_blocks * 512 < 100e6
    assert len(index.offered_layers) == 48
    assert {index.layers[layer].expert_bytes for layer in index.offered_layers} == {5_308_416, 6_119_424}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--layers", "0"], "--layers is 1 to 48"),
        (["--layers", "49"], "--layers is 1 to 48"),
        (["--processes", "0"], "--processes is 1 to 256"),
    ],
)
def test_what_cannot_be_made_is_refused_in_a_line(tmp_path: Path, arguments: list[str], problem: str) -> None:
    path = tmp_path / "model.gguf"

    made = make_shape(str(path), *arguments)

    assert made.returncode == 2
    assert problem in made.stderr
    assert not path.exists()
