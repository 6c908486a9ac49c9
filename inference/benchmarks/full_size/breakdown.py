"""Where a step's time went, layer by layer, and what moved; from what the rig's backbone answers to its rounds."""

from collections import Counter
from typing import Any

from inference.benchmarks.full_size.parts import Parts
from inference.benchmarks.rig.site import Site

MEASURED = {
    "dispatch": ("dispatch_seconds",),
    "wait": ("idle_seconds",),
    "local_experts": ("local_seconds", "fallback_seconds"),
    "combine": ("combine_seconds",),
}
LAYER_PARTS = ("dense", "router", *MEASURED)


def spent(answers: list[dict[str, Any]], layers: int, lanes: int, alone: Parts) -> dict[str, Any]:
    """Where rows were computed, bytes per token and layer, and milliseconds per layer of one lane's step by part.

    wait: for workers, with nothing to compute. router is what it is in plain llama.cpp (`alone`), measured in the same
    call; dense is what is left of a step without its head: attention or DeltaNet, shared expert, llama.cpp's own sums.
    """
    tokens = sum(answer["tokens"] for answer in answers)
    calls = max(1.0, sum(answer["layers"]["calls"] for answer in answers))
    moments = sum((Counter(answer["moments"]) for answer in answers), Counter[str]())
    times = {
        part: 1000 * sum(answer["layers"][name] for answer in answers for name in names) / calls
        for part, names in MEASURED.items()
    }
    whole = 1000 * sum(answer["seconds"] for answer in answers) * lanes / calls
    head = 1000 * sum(answer["head_seconds"] for answer in answers) / calls
    rest = whole - head - sum(times.values())
    times["router"] = min(alone.layer_ms["router"], rest)
    times["dense"] = rest - times["router"]
    return {
        "places": dict(sum((Counter(answer["places"]) for answer in answers), Counter[str]())),
        "bytes_per_token_and_layer": {
            name: round(moments[f"{name}_bytes"] / max(1, tokens) / layers) for name in ("sent", "received")
        },
        "ms_per_layer": {"all": round(whole, 3), **{part: round(times[part], 3) for part in LAYER_PARTS}},
        "head_ms_per_step": round(head * layers, 3),
    }


def told(parts: dict[str, Any], of_limit: float) -> str:
    """The same in a line."""
    times, size = parts["ms_per_layer"], parts["bytes_per_token_and_layer"]
    by_part = " + ".join(f"{part.replace('_', ' ')} {times[part]:.1f}" for part in LAYER_PARTS)
    return (
        f"{of_limit:.2f} of its limit; ms per layer {times['all']:.1f}: {by_part}; bytes per token and layer "
        f"{size['sent']} out, {size['received']} back"
    )


def memory(here: Site) -> dict[str, dict[str, int]]:
    """By kind of process: how many, what all of them hold for themselves alone, and what is resident with the model's
    mapped pages: of all together, and of the largest."""
    found = {}
    for kind, processes in here.processes.items():
        if processes:
            own = [process.memory_full_info() for process in processes]
            found[kind] = {
                "processes": len(own),
                "unique_sum": sum(one.uss for one in own),
                "resident_sum": sum(one.rss for one in own),
                "resident_most": max(one.rss for one in own),
            }
    return found
