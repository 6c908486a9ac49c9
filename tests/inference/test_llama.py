from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from inference.errors import ContextNotMade, ModelNotLoaded
from inference.llama import Batch, Context, ContextSettings, Model
from tests.inference.models import DEMO_MODEL, END_OF_TURN, demo_model, tokens_of

SETTINGS = ContextSettings(sequence_tokens=256, sequences=4, batch_tokens=64, threads=1, outputs=4)


def feed(context: Context, sequence: int, tokens: list[int], position: int) -> npt.NDArray[np.float32]:
    """Decodes tokens of one sequence and returns the last logits (n_vocab,)."""
    batch = Batch(64)
    batch.size = len(tokens)
    batch.tokens[: len(tokens)] = tokens
    batch.positions[: len(tokens)] = np.arange(position, position + len(tokens))
    batch.sequences[: len(tokens)] = sequence
    batch.wants_logits[len(tokens) - 1] = 1
    assert context.decode(batch) == 0
    row: npt.NDArray[np.float32] = context.logits(1)[0].copy()
    return row


def test_it_says_why_a_file_cannot_be_loaded(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"not a model at all")

    with pytest.raises(ModelNotLoaded, match=r"bad\.gguf"):
        Model(bad)


def test_it_says_why_no_context_can_be_made() -> None:
    too_many = ContextSettings(sequence_tokens=16, sequences=257, batch_tokens=512, threads=1, outputs=257)

    with pytest.raises(ContextNotMade, match="n_seq_max must be <= 256"):
        Context(demo_model(), too_many)


def test_it_reads_the_metadata_and_the_chat_template() -> None:
    assert demo_model().metadata["general.architecture"] == "qwen35moe"
    assert "<|im_start|>" in (demo_model().chat_template or "")
    assert demo_model().trained_context_tokens == 1024


def test_a_vocabulary_alone_tokenises_and_frees() -> None:
    with Model(DEMO_MODEL, vocabulary_only=True) as model:
        tokens = model.vocabulary.tokenize("In the beginning", add_special=False, parse_special=False)

    assert tuple(tokens) == tokens_of("In the beginning")
    model.close()


@pytest.mark.parametrize("text", ["", "In the beginning", "naïve 😀 東京\r\n  x", "a" * 3000])
def test_tokens_become_the_text_again(text: str) -> None:
    vocabulary = demo_model().vocabulary

    tokens = vocabulary.tokenize(text, add_special=False, parse_special=False)

    assert vocabulary.detokenize(tokens) == text


def test_special_tokens_are_parsed_only_when_asked() -> None:
    vocabulary = demo_model().vocabulary

    assert vocabulary.tokenize("<|im_end|>", add_special=False, parse_special=True) == [END_OF_TURN]
    assert len(vocabulary.tokenize("<|im_end|>", add_special=False, parse_special=False)) > 1
    assert vocabulary.piece(END_OF_TURN) == b""


def test_a_moved_sequence_goes_on_with_the_same_bits() -> None:
    prompt = list(tokens_of("The old man looked at the sea and"))
    with Context(demo_model(), SETTINGS) as stay, Context(demo_model(), SETTINGS) as moved:
        for context in (stay, moved):
            feed(context, 0, prompt, 0)
        moved.move(0, 3)

        expected = feed(stay, 0, [100], len(prompt))
        actual = feed(moved, 3, [100], len(prompt))

    assert np.array_equal(expected, actual)


def test_a_removed_sequence_leaves_nothing_behind() -> None:
    prompt = list(tokens_of("Call me Ishmael."))
    with Context(demo_model(), SETTINGS) as fresh:
        expected = feed(fresh, 1, prompt, 0)
    with Context(demo_model(), SETTINGS) as used:
        feed(used, 1, list(tokens_of("Something else was here before")), 0)
        used.remove(1)

        actual = feed(used, 1, prompt, 0)

    assert np.array_equal(expected, actual)


def test_it_returns_the_code_of_a_failed_decode() -> None:
    batch = Batch(1)
    batch.size = 1
    batch.sequences[0] = 99

    with Context(demo_model(), SETTINGS) as context:
        assert context.decode(batch) != 0


def test_a_build_without_a_gpu_keeps_every_bit_when_layers_are_meant_for_one() -> None:
    tokens = list(tokens_of("In the beginning"))
    with Context(demo_model(), SETTINGS) as context:
        plain = feed(context, 0, tokens, 0)

    with Model(DEMO_MODEL, gpu_layers=99) as model, Context(model, SETTINGS) as context:
        moved = feed(context, 0, tokens, 0)

    assert np.array_equal(moved, plain)
