"""The demo model for tests: its path, and one opened copy for the whole run."""

from functools import cache
from pathlib import Path

from inference.llama import Model

DEMO_MODEL = Path(__file__).resolve().parents[2] / "models" / "qwen35moe-demo-q4_k_m.gguf"
END_OF_TURN = 4095


@cache
def demo_model() -> Model:
    """Opened once, never closed: loading takes longer than most tests."""
    return Model(DEMO_MODEL)


def tokens_of(text: str) -> tuple[int, ...]:
    return tuple(demo_model().vocabulary.tokenize(text, add_special=False, parse_special=True))
