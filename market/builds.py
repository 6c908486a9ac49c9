"""What the market knows of a model build: which layers have experts on offer, and how big they are. Pure."""

from dataclasses import dataclass
from typing import get_args

from market.kinds import BuildKind

LAYER_LIMIT = 1024
EXPERT_LIMIT = 4096


def flops_per_row(n_embd: int, n_ff: int) -> int:
    """Floating-point operations of one (row, expert) pair: three matrix products, two operations per weight."""
    return 3 * 2 * n_embd * n_ff


@dataclass(frozen=True)
class BuildDescription:
    """One GGUF as the market sees it, or the dense path of one.

    fingerprint: 32 hexadecimal characters, the same for worker, slice and backbone.
    layers: numbers of the layers on offer, ascending; `expert_bytes` (bytes of one expert, all its tensors) and
    `expert_types` (ggml type names of its tensors) run parallel to it.

    kind "stages": the one layer is number 0, its "experts" are the units of the dense path, of which a token passes all
    of them; `expert_bytes` is what the largest unit takes, and n_ff makes `flops_per_row` a token's work in one unit.
    """

    fingerprint: str
    name: str
    architecture: str
    n_embd: int
    n_ff: int
    experts_per_layer: int
    experts_used: int
    layers: tuple[int, ...]
    expert_bytes: tuple[int, ...]
    expert_types: tuple[tuple[str, ...], ...]
    kind: BuildKind = "experts"

    @property
    def flops_per_row(self) -> int:
        """See the function of the same name."""
        return flops_per_row(self.n_embd, self.n_ff)

    def row_of(self, layer: int) -> int | None:
        """The index of `layer` in arrays of shape (layers, experts); None when the layer is not on offer."""
        return self.layers.index(layer) if layer in self.layers else None

    def problem(self) -> str:
        """Why this cannot be published, or an empty text."""
        if len(self.fingerprint) != 32 or set(self.fingerprint) - set("0123456789abcdef"):
            return "the fingerprint must be 32 lower-case hexadecimal characters"
        if not 0 < len(self.layers) <= LAYER_LIMIT or list(self.layers) != sorted(set(self.layers)):
            return f"the layers on offer must be ascending, without repeats, 1 to {LAYER_LIMIT} of them"
        if self.layers[0] < 0 or self.layers[-1] > 0xFFFF:
            return "a layer number must fit into 16 bits"
        if not len(self.layers) == len(self.expert_bytes) == len(self.expert_types):
            return "expert_bytes and expert_types need one entry per layer"
        if not 0 < self.experts_per_layer <= EXPERT_LIMIT or not 0 < self.experts_used <= self.experts_per_layer:
            return f"a layer has 1 to {EXPERT_LIMIT} experts, and uses between one and all of them"
        if min(self.n_embd, self.n_ff, *self.expert_bytes) < 1:
            return "n_embd, n_ff and the size of an expert must be positive"
        if self.kind not in get_args(BuildKind):
            return f"a build offers one of {', '.join(get_args(BuildKind))}, not {self.kind!r}"
        if self.kind == "stages" and (self.layers != (0,) or self.experts_used != self.experts_per_layer):
            return "stages are units of one layer, number 0, and a token uses all of them"
        return ""
