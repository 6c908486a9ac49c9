"""The served model's vocabulary, for processes without an engine: text to tokens, tokens to text, the chat template.

Loads the vocabulary of MODEL_PATH alone (the demo model: 0.1 s, 30 MB); any thread may use it.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import llama_cpp

from inference.llama import Model


@dataclass(frozen=True)
class SpecialTexts:
    """How the model writes its own begin and end of text; empty where it has none."""

    begin: str
    end: str


class Tokenizer:
    """One model's vocabulary. Raises ModelNotLoaded."""

    def __init__(self, path: Path) -> None:
        self._model = Model(path, vocabulary_only=True)
        self._vocabulary = self._model.vocabulary
        self.name = self._model.metadata.get("general.name") or path.stem
        self.created = int(path.stat().st_mtime)
        self.chat_template = self._model.chat_template
        self.end_tokens = self._vocabulary.end_tokens
        self.size = self._vocabulary.size
        vocabulary = self._vocabulary.pointer
        self.special = SpecialTexts(
            begin=self._text(llama_cpp.llama_vocab_bos(vocabulary)),
            end=self._text(llama_cpp.llama_vocab_eos(vocabulary)),
        )
        self._adds_begin = bool(llama_cpp.llama_vocab_get_add_bos(vocabulary))

    def _text(self, token: int) -> str:
        if token < 0:
            return ""
        text: bytes = llama_cpp.llama_vocab_get_text(self._vocabulary.pointer, token)
        return text.decode(errors="replace")

    def tokens(self, text: str) -> list[int]:
        """Tokens of a prompt; `<|...|>` in it are the model's own marks. Raises TokenizeFailed.

        A begin mark that the text already has (templates write it) is not added a second time.
        """
        if self._adds_begin and self.special.begin:
            text = text.removeprefix(self.special.begin)
        return self._vocabulary.tokenize(text, add_special=True, parse_special=True)

    def piece(self, token: int) -> bytes:
        """The bytes of one token; marks have none."""
        return self._vocabulary.piece(token)


def current(path: Path) -> Tokenizer:
    """The tokenizer of a model file, loaded once per process and again when the file was replaced.

    Raises ModelNotLoaded (also when there is no such file).
    """
    return _load(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=2)
def _load(path: Path, _modified_ns: int) -> Tokenizer:
    return Tokenizer(path)
