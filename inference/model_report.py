"""What `manage.py inspect` says of a model: as a plain object for JSON, and as a table for people."""

from collections.abc import Iterator, Sequence
from typing import Any

from inference.errors import NoStages
from inference.gguf_index import LayerExperts, ModelIndex
from inference.stage_file import open_stages


def as_object(index: ModelIndex) -> dict[str, Any]:
    """Every figure of the index; sizes in bytes, `routed_share` between 0 and 1."""
    return {
        "path": str(index.path),
        "files": [str(file) for file in index.files],
        "name": index.name,
        "architecture": index.architecture,
        "fingerprint": index.fingerprint,
        "trunk_layers": index.trunk_layers,
        "nextn_layers": index.nextn_layers,
        "n_embd": index.n_embd,
        "n_ff": index.n_ff,
        "experts_per_layer": index.experts_per_layer,
        "experts_used": index.experts_used,
        "total_bytes": index.total_bytes,
        "routed_bytes": index.routed_bytes,
        "routed_share": index.routed_bytes / index.total_bytes,
        "offered_layers": list(index.offered_layers),
        "layers": [_layer_object(index, layer) for layer in index.layers.values()],
    }


def stages_object(index: ModelIndex) -> dict[str, Any]:
    """Where the model can be cut, and what the units between the cuts take; or why it cannot. Reads its headers."""
    try:
        source = open_stages(index)
    except NoStages as error:
        return {"refused": str(error)}
    units = []
    for unit, size in enumerate(source.unit_bytes):
        first, last = source.cuts.layers_of(unit, unit + 1)
        held = (index.layers[layer] for layer in range(first, last) if layer in index.layers)
        routed = sum(layer.experts * layer.expert_bytes for layer in held)
        units.append({"layers": [first, last], "bytes": size, "bytes_without_experts": size - routed})
    return {"build": source.cuts.build, "units": units}


def _layer_object(index: ModelIndex, layer: LayerExperts) -> dict[str, Any]:
    return {
        "layer": layer.layer,
        "experts": layer.experts,
        "merged": layer.merged,
        "has_bias": layer.has_bias,
        "offered": layer.layer in index.offered_layers,
        "expert_bytes": layer.expert_bytes,
        "bytes": layer.experts * layer.expert_bytes,
        "tensors": [
            {"role": tensor.role, "type": tensor.type_name, "bytes": tensor.experts * tensor.expert_bytes}
            for tensor in layer.tensors
        ],
    }


def as_table(index: ModelIndex) -> Iterator[str]:
    """The lines of the table: the model, then its MoE layers, equal neighbours in one line."""
    share = index.routed_bytes / index.total_bytes
    files = "1 file" if len(index.files) == 1 else f"{len(index.files)} files"
    yield f"model         {printable(index.name)} ({printable(index.architecture)})"
    yield f"from          {printable(str(index.path))} ({files}, {megabytes(index.total_bytes)} of weights)"
    yield f"fingerprint   {index.fingerprint}"
    yield f"layers        {_layer_counts(index)}"
    yield f"experts       {index.experts_per_layer} per layer, {index.experts_used} used per token"
    yield f"widths        n_embd {index.n_embd}, expert n_ff {index.n_ff}"
    yield f"in experts    {megabytes(index.routed_bytes)} ({share:.1%} of the weights)"
    yield f"stages        {_stages_line(index)}"
    yield ""
    yield f"{'layers':<10}{'types (gate, up, down)':<36}{'one expert':>14}{'one layer':>16}  workers"
    for run in _runs(index):
        yield _row(index, run)


def _stages_line(index: ModelIndex) -> str:
    stages = stages_object(index)
    if "refused" in stages:
        return f"none: {printable(stages['refused'])}"
    units = stages["units"]
    lengths = sorted({unit["layers"][1] - unit["layers"][0] for unit in units})
    largest = max(units, key=lambda unit: int(unit["bytes"]))
    return (
        f"1 to {len(units)}, cut every {' or '.join(map(str, lengths))} layers; the largest unit takes "
        f"{megabytes(largest['bytes'])}, without experts {megabytes(largest['bytes_without_experts'])}"
    )


def _layer_counts(index: ModelIndex) -> str:
    text = f"{index.trunk_layers}, of which {len(index.layers)} with routed experts"
    return text + (f"; {index.nextn_layers} more for prediction (nextn), never offered" if index.nextn_layers else "")


def _runs(index: ModelIndex) -> list[list[LayerExperts]]:
    runs: list[list[LayerExperts]] = []
    for layer in index.layers.values():
        if runs and _kind(index, runs[-1][-1]) == _kind(index, layer) and runs[-1][-1].layer + 1 == layer.layer:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return runs


def _kind(index: ModelIndex, layer: LayerExperts) -> tuple[object, ...]:
    return layer.type_names, layer.merged, layer.expert_bytes, layer.has_bias, layer.layer in index.offered_layers


def _row(index: ModelIndex, run: Sequence[LayerExperts]) -> str:
    layer = run[0]
    numbers = str(layer.layer) if len(run) == 1 else f"{layer.layer}-{run[-1].layer}"
    types = " ".join(layer.type_names) + (" (gate and up merged)" if layer.merged else "")
    offered = "can compute it" if layer.layer in index.offered_layers else "backbone only"
    size = layer.experts * layer.expert_bytes
    return f"{numbers:<10}{types:<36}{layer.expert_bytes:>14,}{size:>16,}  {offered}"


def megabytes(size: int) -> str:
    """Decimal units, as the market counts: 42 MB are 42,000,000 bytes."""
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def printable(text: str) -> str:
    """Text of a stranger's file without control characters, which could play tricks with a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
