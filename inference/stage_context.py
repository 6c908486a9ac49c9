"""The context of a stage: tokens or hidden states in, hidden states or logits out.

A stage that is not the first is fed the hidden states that the one before it computed; one that is not the last gives
the tensor `l_out` of its last layer, read while llama.cpp computes (its `cb_eval`). What would follow it, the output
norm and the head, is not computed: after a callback that says "stop", the scheduler leaves out the rest of the split.
Rows keep their bits, so a chain of stages gives the logits of the whole model fed the same batches.

Knows one stage of one model; nothing of rings, sockets or claims.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from dataclasses import dataclass
from typing import Any, Self

import llama_cpp
import numpy as np
import numpy.typing as npt

from inference import ggml
from inference.backend import ExpertsMissing, SwarmBackend
from inference.errors import NotAStage
from inference.llama import Batch, Context, ContextSettings, Model
from inference.stages import GRAPHS
from inference.ubatches import passes

logger = logging.getLogger(__name__)

# Position numbers per token that these kinds of rotary embedding take: three alike and a zero for text.
SECTIONS = {llama_cpp.LLAMA_ROPE_TYPE_MROPE: 4, llama_cpp.LLAMA_ROPE_TYPE_IMROPE: 4}
STAGE_FORMAT = "1"
NO_HIDDEN = -101
NAME_OFFSET = ggml.Tensor.name.offset
Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True)
class StageInfo:
    """What a stage file says of itself. build: its stage build; model: fingerprint of the whole model; layers
    [first_layer, last_layer) of `trunk_layers`; has_experts: their tensors are in the file."""

    build: str
    model: str
    architecture: str
    first_layer: int
    last_layer: int
    trunk_layers: int
    n_embd: int
    has_experts: bool

    @property
    def is_first(self) -> bool:
        return self.first_layer == 0

    @property
    def is_last(self) -> bool:
        return self.last_layer == self.trunk_layers

    @classmethod
    def of(cls, model: Model) -> Self:
        """Raises NotAStage for any other model."""
        metadata = model.metadata
        architecture = metadata["general.architecture"]
        if metadata.get("expertswarm.stage_format") != STAGE_FORMAT or architecture not in GRAPHS:
            raise NotAStage(f"{model.path}: not a stage; make one with `manage.py slice MODEL --layers A:B`")
        return cls(
            build=metadata["expertswarm.build"],
            model=metadata["expertswarm.model"],
            architecture=architecture,
            first_layer=int(metadata["expertswarm.first_layer"]),
            last_layer=int(metadata["expertswarm.last_layer"]),
            trunk_layers=int(metadata["expertswarm.trunk_layers"]),
            n_embd=int(metadata[f"{architecture}.embedding_length"]),
            has_experts=metadata["expertswarm.experts"] != "0",
        )


class HiddenBatch(Batch):
    """A batch of hidden states: as `Batch`, with `hidden` (capacity, n_embd) float32 in the place of tokens."""

    def __init__(self, capacity: int, n_embd: int, sections: int) -> None:
        super().__init__(capacity)
        self.hidden = np.zeros((capacity, n_embd), np.float32)
        self._sections = sections
        self._positions = np.zeros(sections * capacity, np.int32)
        self.struct.token = None
        self.struct.embd = ctypes.cast(self.hidden.ctypes.data, ctypes.POINTER(ctypes.c_float))
        self.struct.pos = ctypes.cast(self._positions.ctypes.data, ctypes.POINTER(ctypes.c_int32))

    def lay_out(self) -> None:
        """Writes the position numbers of every row as llama.cpp reads them: one section after another."""
        size = self.size
        for section in range(1 if self._sections == 1 else self._sections - 1):
            self._positions[section * size : (section + 1) * size] = self.positions[:size]
        self._positions[(self._sections - 1) * size : self._sections * size] *= self._sections == 1


class StageContext(Context):
    """As `Context`, for one stage: `batch()` makes what `decode` takes, `hidden` is the output of all but the last.

    Of a stage without experts only where a backend for them is installed that knows it (`SwarmBackend.has_weights` is
    False): without one, llama.cpp would take the holes for weights. Raises NotAStage, ExpertsMissing, ContextNotMade.
    """

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        self.stage = StageInfo.of(model)
        if not self.stage.has_experts and not SwarmBackend.fills_holes():
            raise ExpertsMissing(
                f"{model.path}: a stage without experts, and no swarm to compute them is connected; cut it with experts"
            )
        self._sections = SECTIONS.get(llama_cpp.llama_model_rope_type(model.pointer), 1)
        self._keeps_rows = GRAPHS[self.stage.architecture].keeps_rows
        self._hidden = np.zeros((settings.batch_tokens, self.stage.n_embd), np.float32)
        self._passes: list[Float32s] = []
        self._output_name = f"l_out-{self.stage.last_layer - self.stage.first_layer - 1}".encode()
        self._name_begins = int.from_bytes(self._output_name[:8].ljust(8, b"\0"), sys.byteorder)
        self._ggml = ggml.load()
        self._flags = np.full(settings.batch_tokens, not self._keeps_rows, np.int8)
        self._on_eval = llama_cpp.ggml_backend_sched_eval_callback(self._evaluate)
        super().__init__(model, settings)

    def _parameters(self, settings: ContextSettings) -> Any:
        parameters = super()._parameters(settings)
        if not self.stage.is_last:
            parameters.cb_eval = self._on_eval
            parameters.n_outputs_max = settings.sequences if self._keeps_rows else settings.batch_tokens
        return parameters

    def batch(self, capacity: int | None = None) -> Batch:
        """An empty batch of the kind that this stage reads: tokens for the first, else a HiddenBatch."""
        rows = self.settings.batch_tokens if capacity is None else capacity
        return Batch(rows) if self.stage.is_first else HiddenBatch(rows, self.stage.n_embd, self._sections)

    def decode(self, batch: Batch) -> int:
        """As `Context.decode`; NO_HIDDEN when llama.cpp did not compute what it should. The logits flags of the batch
        count in the last stage only: all others give every row."""
        if isinstance(batch, HiddenBatch):
            batch.lay_out()
        if self.stage.is_last:
            return super().decode(batch)
        self._passes.clear()
        flags, batch.struct.logits = batch.struct.logits, _int8s(self._flags)
        try:
            code = super().decode(batch)
        finally:
            batch.struct.logits = flags
        return self._collect(batch) if code == 0 else code

    def hidden(self, rows: int) -> Float32s:
        """The first `rows` rows of the last decode, (rows, n_embd) float32 in the batch's order; valid until the
        next."""
        return self._hidden[:rows]

    def _collect(self, batch: Batch) -> int:
        """Brings the rows of the passes into the order of the batch."""
        places = list(passes(batch.sequences[: batch.size], self.settings.batch_tokens))
        if [len(place) for place in places] != [len(rows) for rows in self._passes]:
            logger.error("llama.cpp computed passes of other sizes than its source says")
            return NO_HIDDEN
        for place, rows in zip(places, self._passes, strict=True):
            self._hidden[place] = rows
        return 0

    def _evaluate(self, tensor: int, is_question: bool, _: int | None) -> bool:
        """llama.cpp asks of every tensor whether we want to see it, then shows those that we do.

        False at the second call: the rest of this split is not wanted. The first look takes eight bytes of the name as
        a number, which halves the cost of this callback (20 instead of 45 us per layer): it is asked 80 times a layer.
        """
        if ctypes.c_uint64.from_address(tensor + NAME_OFFSET).value != self._name_begins:
            return False
        if ctypes.string_at(tensor + NAME_OFFSET) != self._output_name:
            return False
        if is_question:
            return True
        rows = np.empty((ggml.Tensor.from_address(tensor).ne[1], self.stage.n_embd), np.float32)
        self._ggml.tensor_get(tensor, rows.ctypes.data, 0, rows.nbytes)
        self._passes.append(rows)
        return False


def _int8s(values: npt.NDArray[np.int8]) -> Any:
    return ctypes.cast(values.ctypes.data, ctypes.POINTER(ctypes.c_int8))
