"""llama.cpp with its RPC backend: `python -m inference.benchmarks.rpc.peer OPTIONS`, OPTIONS being JSON (`Options`).

A bare llama_decode loop with llama.cpp's greedy sampler, as in `inference.benchmarks.side`, whose experts (arm
`experts`) or layers (arm `layers`) lie in the memory of `ggml-rpc-server` processes. The client's half of the backend
is a library (`libggml-rpc.so`) loaded beside the ones that llama-cpp-python brought. Obeys lines of JSON on stdin:

    {"prepare": N}     reads N prompts            -> {"ready": N}
    {"round": STEPS}   STEPS tokens of everybody  -> {"tokens": ..., "seconds": ...}
"""

from __future__ import annotations

import ctypes as C
import json
import logging
import re
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import llama_cpp
import numpy as np

from inference.benchmarks.side import PROMPT_TOKENS, PlainSide, obey, prompt
from inference.errors import ModelNotLoaded
from inference.gguf_index import open_index
from inference.llama import Batch, Context, ContextSettings, Model, Vocabulary, start_llama

ALL_LAYERS = 999
Arm = Literal["experts", "layers"]


@dataclass(frozen=True)
class Options:
    """endpoints: HOST:PORT of every server, in the order in which they take layers."""

    model: str
    library: str
    endpoints: tuple[str, ...]
    arm: Arm
    sequences: int
    threads: int = 1
    sequence_tokens: int = 256

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def context(self) -> ContextSettings:
        return ContextSettings(
            sequence_tokens=self.sequence_tokens,
            sequences=self.sequences,
            batch_tokens=PROMPT_TOKENS * self.sequences,
            threads=self.threads,
            outputs=self.sequences,
        )


class Override(C.Structure):
    """`llama_model_tensor_buft_override` of llama.h."""

    _fields_ = (("pattern", C.c_char_p), ("buffer_type", C.c_void_p))


class RpcDevices:
    """The servers as devices of ggml. Source: ggml/include/ggml-rpc.h and ggml-backend.h of ggml 0.25.3."""

    def __init__(self, library: Path, endpoints: tuple[str, ...]) -> None:
        """Raises OSError when the library does not load, ModelNotLoaded when a server does not answer."""
        rpc = C.CDLL(str(library), mode=C.RTLD_GLOBAL)
        folder = Path(llama_cpp.llama_cpp._lib._name).parent
        base, registry = C.CDLL(str(folder / "libggml-base.so.0")), C.CDLL(str(folder / "libggml.so.0"))
        add = _declare(rpc, "ggml_backend_rpc_add_server", C.c_void_p, C.c_char_p)
        register = _declare(registry, "ggml_backend_register", None, C.c_void_p)
        device_of = _declare(base, "ggml_backend_reg_dev_get", C.c_void_p, C.c_void_p, C.c_size_t)
        buffer_type = _declare(base, "ggml_backend_dev_buffer_type", C.c_void_p, C.c_void_p)
        self.pointers: list[int] = []
        self.buffer_types: list[int] = []
        for endpoint in endpoints:
            found = add(endpoint.encode())
            if not found:
                raise ModelNotLoaded(f"no RPC server answers at {endpoint}")
            register(found)
            self.pointers.append(device_of(found, 0))
            self.buffer_types.append(buffer_type(self.pointers[-1]))


def _declare(library: C.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, list(arguments)
    return function


def shares(layers: tuple[int, ...], servers: int) -> list[tuple[int, ...]]:
    """Which layers each server holds: runs of about equal length."""
    cuts = [len(layers) * number // servers for number in range(servers + 1)]
    return [layers[first:last] for first, last in pairwise(cuts)]


class RpcModel(Model):
    """A model of which a part lies on the servers. Raises ModelNotLoaded."""

    def __init__(self, path: Path, devices: RpcDevices, arm: Arm, layers: tuple[int, ...]) -> None:
        start_llama()
        parameters = llama_cpp.llama_model_default_params()
        parameters.use_extra_bufts = False
        self._devices = (C.c_void_p * (len(devices.pointers) + 1))(*devices.pointers, None)
        parameters.devices = C.cast(self._devices, C.c_void_p)
        if arm == "layers":
            parameters.n_gpu_layers = ALL_LAYERS
        else:
            parameters.n_gpu_layers = 0
            self._overrides = _overrides(shares(layers, len(devices.pointers)), devices.buffer_types)
            parameters.tensor_buft_overrides = C.cast(self._overrides, C.c_void_p)
        self.path = path
        self.pointer = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.pointer:
            raise ModelNotLoaded(f"llama.cpp cannot load {path} over RPC")
        self.vocabulary = Vocabulary(llama_cpp.llama_model_get_vocab(self.pointer))


class RpcSide(PlainSide):
    """The plain side, its prompts read in one batch: one after another each would take round trips of its own."""

    def prepare(self, batch: int) -> None:
        self._context.clear()
        reader = Batch(PROMPT_TOKENS * batch)
        reader.size = PROMPT_TOKENS * batch
        vocabulary = self._model.vocabulary.size
        reader.tokens[:] = np.concatenate([prompt(number, vocabulary) for number in range(batch)])
        reader.positions[:] = np.tile(np.arange(PROMPT_TOKENS), batch)
        reader.sequences[:] = np.repeat(np.arange(batch), PROMPT_TOKENS)
        reader.wants_logits[PROMPT_TOKENS - 1 :: PROMPT_TOKENS] = 1
        assert self._context.decode(reader) == 0
        self._batch.size = batch
        for number in range(batch):
            self._batch.tokens[number] = self._chain.sample(self._context, PROMPT_TOKENS * (number + 1) - 1)
        self._batch.positions[:batch] = PROMPT_TOKENS


def _overrides(held: list[tuple[int, ...]], buffer_types: list[int]) -> C.Array[Override]:
    """Tensors of the routed experts by layer; an empty entry ends the list."""
    entries = []
    for layers, buffer_type in zip(held, buffer_types, strict=True):
        numbers = "|".join(re.escape(str(layer)) for layer in layers)
        pattern = rf"blk\.({numbers})\.ffn_(gate|up|down|gate_up)_exps"
        entries.append(Override(pattern.encode(), buffer_type))
    return (Override * (len(entries) + 1))(*entries, Override())


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    body = json.loads(sys.argv[1])
    options = Options(**{**body, "endpoints": tuple(body["endpoints"])})
    start_llama()
    path = Path(options.model)
    devices = RpcDevices(Path(options.library), options.endpoints)
    with ExitStack() as handles:
        model = handles.enter_context(RpcModel(path, devices, options.arm, open_index(path).offered_layers))
        side = RpcSide(handles.enter_context(Context(model, options.context)), model)
        print(json.dumps({"loaded": options.arm}), flush=True)
        for line in sys.stdin:
            print(json.dumps(obey(side, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
