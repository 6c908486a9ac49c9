"""Where plain llama.cpp's time goes, layer by layer: `python -m inference.benchmarks.full_size.parts OPTIONS`.

llama.cpp shows tensors while it computes (`cb_eval`); the time between two of them belongs to the part that ends with
the second. Every expert is computed here, by llama.cpp itself. Obeys lines of JSON:

    {"batch": N, "steps": K}  -> {"steps": K, "seconds": {"dense": ..., "router": ..., "experts": ..., ...}}

dense: attention or DeltaNet with its norms; router: scores, top k, weights; experts: the routed ones; combine: their
weighted sum and the shared expert; head: last norm and vocabulary. Names of tensors are those of llama.cpp's qwen35moe.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import llama_cpp

from inference import ggml
from inference.benchmarks.relay.processes import Client, obedient
from inference.benchmarks.side import PlainSide
from inference.llama import Context, ContextSettings, Model

LAST_TENSORS = {
    b"attn_post_norm": "dense",
    b"ffn_moe_weights_norm": "router",
    b"ffn_moe_down": "experts",
    b"l_out": "combine",
    b"result_output": "head",
}
PARTS = tuple(LAST_TENSORS.values())
TENSOR = re.compile(rb"(attn_post_norm|ffn_moe_weights_norm|ffn_moe_down|l_out)-\d+|(result_output)")
NAME_OFFSET = ggml.Tensor.name.offset
SEQUENCE_TOKENS = 256


@dataclass(frozen=True)
class Options:
    model: str
    sequences: int
    threads: int
    gpu_layers: int = 0


@dataclass(frozen=True)
class Parts:
    """Milliseconds of one step: of one layer, by part without the head; and of the head."""

    layer_ms: dict[str, float]
    head_ms: float


class TimedContext(Context):
    """As `Context`; `seconds` by part since it was cleared."""

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._last = 0.0
        self._parts: dict[bytes, str | None] = {}
        self._on_eval = llama_cpp.ggml_backend_sched_eval_callback(self._evaluate)
        super().__init__(model, settings)

    def _parameters(self, settings: ContextSettings) -> Any:
        parameters = super()._parameters(settings)
        parameters.cb_eval = self._on_eval
        return parameters

    def decode(self, batch: Any) -> int:
        self._last = time.perf_counter()
        return super().decode(batch)

    def _evaluate(self, tensor: int, is_question: bool, _: int | None) -> bool:
        name = ctypes.string_at(tensor + NAME_OFFSET)
        if name not in self._parts:
            match = TENSOR.fullmatch(name)
            self._parts[name] = None if match is None else LAST_TENSORS[match[1] or match[2]]
        part = self._parts[name]
        if not is_question and part is not None:
            now = time.perf_counter()
            self.seconds[part] += now - self._last
            self._last = now
        return part is not None or not is_question


def measure(
    model: Path, batches: Sequence[int], *, layers: int, threads: int, gpu_layers: int, steps: int = 2
) -> dict[int, Parts]:
    """By batch, in a process of its own: llama.cpp there must know nothing of our backend. Raises SideFailed."""
    with child(Options(str(model), max(batches), threads, gpu_layers)) as found:
        return {batch: as_parts(found.ask(batch=batch, steps=steps), layers) for batch in batches}


@contextmanager
def child(options: Options) -> Iterator[Client]:
    with obedient("inference.benchmarks.full_size.parts", json.dumps(asdict(options))) as found:
        yield found


def as_parts(answer: dict[str, Any], layers: int) -> Parts:
    per_step = {name: 1000 * answer["seconds"].get(name, 0.0) / answer["steps"] for name in PARTS}
    head = per_step.pop("head")
    return Parts({name: milliseconds / layers for name, milliseconds in per_step.items()}, head)


def main() -> None:
    options = Options(**json.loads(sys.argv[1]))
    settings = ContextSettings(
        SEQUENCE_TOKENS, options.sequences, max(64, options.sequences), options.threads, options.sequences
    )
    with ExitStack() as handles:
        model = handles.enter_context(Model(Path(options.model), gpu_layers=options.gpu_layers))
        context = TimedContext(model, settings)
        handles.enter_context(context)
        side = PlainSide(context, model)
        print(json.dumps({"loaded": True}), flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            side.prepare(order["batch"])
            side.step()
            context.seconds.clear()
            for _ in range(order["steps"]):
                side.step()
            print(json.dumps({"steps": order["steps"], "seconds": dict(context.seconds)}), flush=True)


if __name__ == "__main__":
    main()
