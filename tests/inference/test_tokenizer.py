"""inference/tokenizer.py: the vocabulary of the demo model without its tensors."""

import os
import shutil
from pathlib import Path

import pytest

from inference import tokenizer
from inference.errors import ModelNotLoaded
from tests.model_files import DEMO_MODEL


def test_it_knows_the_demo_models_name_marks_and_template() -> None:
    found = tokenizer.current(DEMO_MODEL)

    assert found.name == "qwen35moe-demo"
    assert (found.special.end, found.size) == ("<|im_end|>", 4096)
    assert found.chat_template is not None
    assert tokenizer.current(DEMO_MODEL) is found


def test_pieces_of_the_tokens_are_the_text_and_marks_are_tokens() -> None:
    found = tokenizer.current(DEMO_MODEL)

    tokens = found.tokens("In the beginning é 🙂<|im_end|>")

    assert b"".join(map(found.piece, tokens)).decode() == "In the beginning é 🙂"
    assert tokens[-1] in found.end_tokens


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    shutil.copy(DEMO_MODEL, path)
    first = tokenizer.current(path)
    os.utime(path, (1, 1))

    assert tokenizer.current(path) is not first


def test_a_file_that_is_missing_or_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")

    for name in ("absent.gguf", "text.gguf"):
        with pytest.raises(ModelNotLoaded):
            tokenizer.current(tmp_path / name)
