"""llama.cpp through llama-cpp-python's C functions: a thin typed layer, every handle freed by its context manager.

Knows models, vocabularies, contexts, batches and samplers; nothing of requests, experts or sockets. Only what the
engine calls is wrapped (the C types are declared once, in `llama_cpp`). One context belongs to one thread at a time;
a model may be shared by the contexts of several threads.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import llama_cpp
import numpy as np
import numpy.typing as npt

from inference import ggml
from inference.errors import ContextNotMade, ModelNotLoaded, TokenizeFailed

logger = logging.getLogger("llama.cpp")

# llama.cpp tells every detail of a load as INFO and harmless remarks as WARN.
_LEVELS = {3: logging.INFO, 4: logging.WARNING}
# A regular expression of llama.cpp's: up, down, gate and the merged gate_up of every layer, never the shared experts.
EXPERT_TENSORS = rb"\.ffn_(up|down|gate|gate_up)_exps"
_recent_problems: deque[str] = deque(maxlen=8)


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _: object) -> None:
    line = text.decode(errors="replace").strip()
    if not line or line == ".":
        return
    if level >= 4:
        _recent_problems.append(line)
    logger.log(_LEVELS.get(level, logging.DEBUG), "%s", line)


_start_lock = threading.Lock()
_started = False


def start_llama() -> None:
    """Initialises llama.cpp once per process and routes its log to the logger `llama.cpp`."""
    global _started
    with _start_lock:
        if not _started:
            llama_cpp.llama_log_set(_on_log, None)
            llama_cpp.llama_backend_init()
            _started = True


class _Handle(ABC):
    """A C object: `pointer` until closed. Closing twice is harmless."""

    pointer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        pointer, self.pointer = self.pointer, None
        if pointer is not None:
            self._free(pointer)

    @abstractmethod
    def _free(self, pointer: Any) -> None:
        """Gives the object back to C."""


class _BufferOverride(ctypes.Structure):
    """`llama_model_tensor_buft_override` of llama.h, which llama_cpp does not declare."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def _experts_in_ram() -> ctypes.Array[_BufferOverride]:
    """Tensors of routed experts to the plain CPU buffer; an empty entry ends the list."""
    buffer_type = ggml.load().cpu_buffer_type()
    return (_BufferOverride * 2)(_BufferOverride(EXPERT_TENSORS, buffer_type), _BufferOverride())


class Model(_Handle):
    """A GGUF mapped into memory (first part of a split set: the others are found).

    Raises ModelNotLoaded with llama.cpp's reason. `use_extra_bufts=False` keeps the plain CPU kernels: repacked and AMX
    ones change the order of float operations. `vocabulary_only` reads no tensors. gpu_layers: layers whose dense path
    goes to a GPU, where llama.cpp was built for one; the routed experts stay in RAM.
    """

    def __init__(
        self, path: Path, *, use_extra_bufts: bool = False, vocabulary_only: bool = False, gpu_layers: int = 0
    ) -> None:
        start_llama()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        overrides = _experts_in_ram()
        if gpu_layers:
            parameters.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
        parameters.use_mmap = True
        parameters.use_extra_bufts = use_extra_bufts
        parameters.vocab_only = vocabulary_only
        _recent_problems.clear()
        self.path = path
        self.pointer = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.pointer:
            reason = "; ".join(_recent_problems) or "no reason given"
            raise ModelNotLoaded(f"llama.cpp cannot load {path}: {reason}")
        self.vocabulary = Vocabulary(llama_cpp.llama_model_get_vocab(self.pointer))

    def _free(self, pointer: Any) -> None:
        llama_cpp.llama_model_free(pointer)

    @cached_property
    def metadata(self) -> dict[str, str]:
        """All scalar metadata of the file, as text."""
        count = llama_cpp.llama_model_meta_count(self.pointer)
        keys = (self._text(llama_cpp.llama_model_meta_key_by_index, index) for index in range(count))
        return {key: self._text(llama_cpp.llama_model_meta_val_str_by_index, i) for i, key in enumerate(keys)}

    def _text(self, function: Any, index: int) -> str:
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = int(function(self.pointer, index, buffer, size))
            if length < size:
                return buffer.value.decode(errors="replace")
            size = length + 1

    @property
    def chat_template(self) -> str | None:
        """The Jinja template stored in the file, or None."""
        text: bytes | None = llama_cpp.llama_model_chat_template(self.pointer, None)
        return None if text is None else text.decode(errors="replace")

    @property
    def trained_context_tokens(self) -> int:
        return int(llama_cpp.llama_model_n_ctx_train(self.pointer))


class Vocabulary:
    """Tokens and text of one model; valid as long as its model is open."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self.size = int(llama_cpp.llama_vocab_n_tokens(pointer))
        self._pieces: dict[int, bytes] = {}

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a generation (end of text, end of turn ...)."""
        return frozenset(t for t in range(self.size) if llama_cpp.llama_vocab_is_eog(self.pointer, t))

    @cached_property
    def suppressed(self) -> tuple[int, ...]:
        """Tokens that the model's file asks never to choose."""
        count = ctypes.c_int32(0)
        tokens = llama_cpp.llama_vocab_get_suppress_tokens(self.pointer, ctypes.byref(count))
        return tuple(int(tokens[i]) for i in range(count.value))

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Raises TokenizeFailed. add_special: add the model's begin/end tokens; parse_special: `<|...|>` are tokens."""
        data = text.encode(errors="replace")
        size = len(data) + 8
        while True:
            tokens = (ctypes.c_int32 * size)()
            count = int(
                llama_cpp.llama_tokenize(self.pointer, data, len(data), tokens, size, add_special, parse_special)
            )
            if count >= 0:
                return list(tokens[:count])
            if -count <= size:
                raise TokenizeFailed(f"llama.cpp cannot tokenise a text of {len(data)} bytes")
            size = -count

    def piece(self, token: int) -> bytes:
        """The bytes of one token; control tokens have none. Cached: the same tokens come again and again."""
        found = self._pieces.get(token)
        if found is None:
            found = self._pieces[token] = self._piece(token)
        return found

    def _piece(self, token: int) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = int(llama_cpp.llama_token_to_piece(self.pointer, token, buffer, size, 0, False))
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens, control tokens left out; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.piece(token) for token in tokens).decode(errors="replace")


@dataclass(frozen=True)
class ContextSettings:
    """What decides the arithmetic of a context, apart from the model: kept in traces, so that a replay is equal.

    sequence_tokens: longest sequence; sequences: how many at once; batch_tokens: most tokens in one decode; outputs:
    most logits rows of one decode (memory is kept for them).
    """

    sequence_tokens: int
    sequences: int
    batch_tokens: int
    threads: int
    outputs: int

    def to_json(self) -> dict[str, int]:
        return asdict(self)


class Context(_Handle):
    """One llama_context: the memory of `sequences` sequences and the means to decode batches.

    Each sequence has its own key/value stream (kv_unified off): with one shared buffer every token scans the cells of
    all sequences (64 sequences of 300 tokens, demo model: 67 ms a step instead of 20). The price: a decode is one pass
    only if its sequence numbers follow each other without a gap, see `move`.
    Raises ContextNotMade.
    """

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        parameters = self._parameters(settings)
        _recent_problems.clear()
        self.pointer = llama_cpp.llama_init_from_model(model.pointer, parameters)
        if not self.pointer:
            reason = "; ".join(_recent_problems) or "no reason given"
            raise ContextNotMade(
                f"llama.cpp makes no context for {settings.sequences} sequences of {settings.sequence_tokens} tokens: "
                f"{reason}; fewer or shorter sequences need less memory"
            )
        self.settings = settings
        self.vocabulary_size = model.vocabulary.size
        self._memory = llama_cpp.llama_get_memory(self.pointer)

    def _parameters(self, settings: ContextSettings) -> Any:
        """llama_context_params."""
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = settings.sequence_tokens * settings.sequences
        parameters.n_batch = parameters.n_ubatch = settings.batch_tokens
        parameters.n_seq_max = settings.sequences
        parameters.n_outputs_max = settings.outputs
        parameters.n_threads = parameters.n_threads_batch = settings.threads
        parameters.kv_unified = False
        parameters.op_offload = False
        parameters.no_perf = True
        return parameters

    def _free(self, pointer: Any) -> None:
        llama_cpp.llama_free(pointer)

    def decode(self, batch: Batch) -> int:
        """llama_decode: 0, or its code (1 no room, 2 aborted, negative: failed). The GIL is free meanwhile."""
        return int(llama_cpp.llama_decode(self.pointer, batch.struct))

    def logits(self, rows: int) -> npt.NDArray[np.float32]:
        """The first `rows` output rows of the last decode, (rows, n_vocab) float32: a view, valid until the next."""
        pointer: Any = llama_cpp.llama_get_logits(self.pointer)
        return np.ctypeslib.as_array(pointer, shape=(rows, self.vocabulary_size))

    def logits_of(self, row: int) -> npt.NDArray[np.float32]:
        """The logits of entry `row` of the last batch, (n_vocab,) float32: a view, valid until the next decode."""
        pointer: Any = llama_cpp.llama_get_logits_ith(self.pointer, row)
        return np.ctypeslib.as_array(pointer, shape=(self.vocabulary_size,))

    def choose(self, chain: SamplerChain, row: int) -> int:
        """A token from the logits of entry `row` of the last batch, accepted by the chain."""
        return chain.sample(self, row)

    def remove(self, sequence: int) -> None:
        """Forgets one sequence whole (recurrent state cannot be rewound, so never a part of it)."""
        llama_cpp.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def move(self, source: int, target: int) -> None:
        """Gives sequence `source` the free number `target`, so that the numbers in use stay without gaps.

        Exact: the state is copied, not recomputed. It costs the copy of one key/value stream.
        """
        self.copy(source, target)
        self.remove(source)

    def copy(self, source: int, target: int) -> None:
        """Gives the free number `target` the whole state of `source`, before the next decode. Exact."""
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def clear(self) -> None:
        """Forgets every sequence."""
        llama_cpp.llama_memory_clear(self._memory, True)


class Batch:
    """The arrays of one llama_batch, allocated once and written through numpy: (capacity,) each.

    tokens, positions, sequences: int32; wants_logits: int8. `struct` points into them.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.tokens = np.zeros(capacity, np.int32)
        self.positions = np.zeros(capacity, np.int32)
        self.sequences = np.zeros(capacity, np.int32)
        self.wants_logits = np.zeros(capacity, np.int8)
        self._counts = np.ones(capacity, np.int32)  # every token belongs to exactly one sequence
        first = self.sequences.ctypes.data
        self._sequence_pointers = np.arange(first, first + 4 * capacity, 4, dtype=np.uintp)
        int32s = ctypes.POINTER(ctypes.c_int32)
        self.struct: Any = llama_cpp.llama_batch(
            n_tokens=0,
            token=ctypes.cast(self.tokens.ctypes.data, int32s),
            pos=ctypes.cast(self.positions.ctypes.data, int32s),
            n_seq_id=ctypes.cast(self._counts.ctypes.data, int32s),
            seq_id=ctypes.cast(self._sequence_pointers.ctypes.data, ctypes.POINTER(int32s)),
            logits=ctypes.cast(self.wants_logits.ctypes.data, ctypes.POINTER(ctypes.c_int8)),
        )

    @property
    def size(self) -> int:
        return int(self.struct.n_tokens)

    @size.setter
    def size(self, tokens: int) -> None:
        assert tokens <= self.capacity
        self.struct.n_tokens = tokens


class SamplerChain(_Handle):
    """An initially empty llama.cpp sampler chain; `sampling.fill_chain` fills it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary_size = vocabulary.size
        parameters = llama_cpp.llama_sampler_chain_default_params()
        parameters.no_perf = True
        self.pointer = llama_cpp.llama_sampler_chain_init(parameters)

    def _free(self, pointer: Any) -> None:
        llama_cpp.llama_sampler_free(pointer)

    def _add(self, sampler: Any) -> None:
        llama_cpp.llama_sampler_chain_add(self.pointer, sampler)  # the chain owns it from here on

    def add_ban(self, tokens: Sequence[int]) -> None:
        """These tokens are never chosen."""
        never = [llama_cpp.llama_logit_bias(token=token, bias=float("-inf")) for token in tokens]
        biases = (llama_cpp.llama_logit_bias * len(tokens))(*never)
        self._add(llama_cpp.llama_sampler_init_logit_bias(self._vocabulary_size, len(tokens), biases))

    def add_penalties(self, last_n: int, repeat: float, seen: Sequence[int]) -> None:
        """A repeat penalty over the last `last_n` tokens, `seen` being those so far."""
        sampler = llama_cpp.llama_sampler_init_penalties(self._vocabulary_size, last_n, repeat, 0.0, 0.0)
        for token in seen:
            llama_cpp.llama_sampler_accept(sampler, token)
        self._add(sampler)

    def add_greedy(self) -> None:
        self._add(llama_cpp.llama_sampler_init_greedy())

    def add_top_k(self, k: int) -> None:
        self._add(llama_cpp.llama_sampler_init_top_k(k))

    def add_top_p(self, p: float) -> None:
        self._add(llama_cpp.llama_sampler_init_top_p(p, 1))

    def add_min_p(self, p: float) -> None:
        self._add(llama_cpp.llama_sampler_init_min_p(p, 1))

    def add_temperature(self, temperature: float) -> None:
        self._add(llama_cpp.llama_sampler_init_temp(temperature))

    def add_draw(self, seed: int, skip: int) -> None:
        """A draw from the distribution, its random numbers advanced by `skip` draws."""
        sampler = llama_cpp.llama_sampler_init_dist(seed)
        candidate = (llama_cpp.llama_token_data * 1)()
        for _ in range(skip):  # a draw among one candidate still takes its random number
            candidates = llama_cpp.llama_token_data_array(data=candidate, size=1, selected=-1, sorted=False)
            llama_cpp.llama_sampler_apply(sampler, ctypes.byref(candidates))
        self._add(sampler)

    def sample(self, context: Context, row: int) -> int:
        """Chooses and accepts a token from the logits of batch entry `row` of the last decode."""
        return int(llama_cpp.llama_sampler_sample(self.pointer, context.pointer, row))

    def sample_logits(self, logits: npt.NDArray[np.float32]) -> int:
        """The same from a row of logits that no context of this process computed: (n_vocab,) float32."""
        candidates = self._candidates
        candidates["id"] = np.arange(self._vocabulary_size)  # the samplers before may have sorted them
        candidates["logit"], candidates["p"] = logits, 0.0
        data: Any = ctypes.cast(candidates.ctypes.data, ctypes.POINTER(llama_cpp.llama_token_data))
        array = llama_cpp.llama_token_data_array(data=data, size=len(candidates), selected=-1, sorted=False)
        llama_cpp.llama_sampler_apply(self.pointer, ctypes.byref(array))
        token = int(array.data[array.selected].id)
        llama_cpp.llama_sampler_accept(self.pointer, token)
        return token

    @cached_property
    def _candidates(self) -> npt.NDArray[np.void]:
        """One `llama_token_data` per token, written anew for every choice."""
        return np.zeros(self._vocabulary_size, np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)]))
