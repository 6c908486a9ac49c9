"""What `manage.py verify` drives: models, placements of experts, batches, and what each case must show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from inference.gguf_index import ModelIndex
from inference.synthetic import (
    DEMO_MODEL,
    SMALL,
    demo_variant,
    full122b,
    small_gpt_oss,
    small_qwen3moe,
    small_qwen35moe,
    split,
)
from inference.verify.local_swarm import Range

Placement = Literal["local", "half", "all"]
MIN_POSITIONS = 256
QUICK_POSITIONS = 64


@dataclass(frozen=True)
class Case:
    """One recorded run.

    model: key of MODELS. placement: which experts worker processes hold (the first half of every layer, or all), cut
    into `workers` ranges, each held `replicas` times. sequences: of all lanes together, = the largest batch of a lane
    times lanes. requests of about `tokens` tokens each. kill: SIGKILL a worker after a third of the tokens.
    cancel: some requests are cancelled on the way. kernel: the workers' (`ggml`; `numpy` and
    `browser`, a tab, are not exact).
    remote: bounds on the share of expert rows that workers computed. hot: the backbone keeps a hot set of up to a
    quarter of the experts, planned anew several times a second. kept: states of ended sequences that each lane keeps;
    the prompts then begin alike, so that later ones go on from them. stages: processes that hold the layers, 0: none;
    `kill` then kills the middle one, which is replaced. hollow: their files have no experts.
    """

    name: str
    model: str = "demo"
    placement: Placement = "all"
    row_type: Literal["f32", "q8"] = "q8"
    workers: int = 3
    replicas: int = 1
    lanes: int = 1
    threads: int = 1
    sequences: int = 8
    requests: int = 8
    tokens: int = 40
    kill: bool = False
    cancel: bool = False
    kernel: Literal["ggml", "numpy", "browser"] = "ggml"
    remote: tuple[float, float] = (0.9, 1.0)
    hot: bool = False
    kept: int = 0
    stages: int = 0
    hollow: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Case:
        return cls(**{**body, "remote": tuple(body["remote"])})


LOCAL = (0.0, 0.0)


def batch_case(batch: int) -> Case:
    """Exactly `batch` sequences at once; long enough that most decodes have all of them."""
    tokens = max(batch + 6, -(-MIN_POSITIONS // batch) + 4)
    return Case(f"batch {batch}", sequences=batch, requests=batch, tokens=tokens)


def hot_case(lanes: int, batch: int) -> Case:
    """Batches of up to `batch` in each lane while the hot set changes, and prompts that go on from kept states."""
    sequences = lanes * batch
    requests = sequences + max(
        3 * lanes, sequences // 8
    )  # a beginning is known at its second prompt, used at its third
    return Case(
        f"{lanes} lanes, batch {batch}, hot set, kept prefixes"
        if lanes > 1
        else f"batch {batch}, hot set, kept prefixes",
        lanes=lanes,
        threads=lanes,
        sequences=sequences,
        requests=requests,
        tokens=max(24, -(-MIN_POSITIONS // requests) + 4),
        remote=(0.3, 0.99),
        hot=True,
        kept=2,
    )


def type_case(name: str, model: str) -> Case:
    return Case(name, model=model, workers=2, sequences=4, requests=6, tokens=48)


def stage_case(name: str, model: str, stages: int, **changes: Any) -> Case:
    """A ring of stage processes with experts of their own, unless `changes` says otherwise."""
    case = Case(name, model=model, placement="local", stages=stages, sequences=6, requests=10, remote=LOCAL)
    return replace(case, **changes)


STAGES: tuple[Case, ...] = (
    stage_case("two stages", "demo", 2, cancel=True, requests=16),
    stage_case("three stages", "12 layers", 3),
    stage_case("three stages, two lanes", "12 layers", 3, lanes=2, sequences=8, requests=12),
    stage_case("three stages, attention only", "qwen3moe", 3),
    stage_case("two stages, remote experts", "demo", 2, placement="half", workers=2, remote=(0.3, 0.75)),
    stage_case("three hollow stages", "12 layers", 3, placement="all", workers=1, hollow=True, remote=(1.0, 1.0)),
    stage_case("three stages, the middle one killed and replaced", "12 layers", 3, lanes=2, sequences=8, kill=True),
)
FULL: tuple[Case, ...] = (
    Case("all local", placement="local", remote=LOCAL),
    Case("all local, two threads", placement="local", threads=2, remote=LOCAL),
    Case("half remote", placement="half", remote=(0.3, 0.75)),
    Case("all remote, f32 rows", row_type="f32"),
    Case("all remote, q8 rows", row_type="q8"),
    Case("two replicas", workers=2, replicas=2),
    Case("a worker killed mid-run", kill=True, remote=(0.3, 0.95)),
    Case("joins and leaves", sequences=6, requests=24, tokens=24, cancel=True),
    *(batch_case(batch) for batch in (1, 8, 9, 64)),
    Case("two lanes", lanes=2, threads=2, sequences=16, requests=20),
    *(hot_case(lanes, batch) for lanes in (1, 4) for batch in (1, 8, 9, 64)),
    type_case("merged gate_up", "merged"),
    type_case("split files", "split"),
    type_case("Q5_K experts", "Q5_K"),
    type_case("Q6_K experts", "Q6_K"),
    type_case("Q8_0 experts", "Q8_0"),
    type_case("MXFP4 experts", "MXFP4"),
    type_case("Q4_K random experts", "Q4_K"),
    type_case("down in Q6_K in some layers", "mixed"),
    type_case("qwen3moe", "qwen3moe"),
    Case("gpt-oss with expert biases", model="gpt-oss", placement="local", requests=6, tokens=48, remote=LOCAL),
    *STAGES,
)
QUICK: tuple[Case, ...] = (
    Case("all remote, q8 rows, joins and leaves", sequences=3, requests=5, tokens=24, workers=2),
    Case("a worker killed mid-run", sequences=3, requests=4, tokens=30, workers=2, kill=True, remote=(0.2, 0.95)),
    Case("merged gate_up", model="merged", workers=1, sequences=3, requests=3, tokens=30),
    replace(hot_case(2, 2), workers=1),
    replace(STAGES[-1], lanes=1, sequences=3, requests=4, tokens=24),
)


def _small(expert_type: str, folder: Path) -> Path:
    return small_qwen35moe(folder / f"small-{expert_type}.gguf", expert_type=expert_type)


def _split_demo(folder: Path) -> Path:
    (folder / "demo-split").mkdir(exist_ok=True)
    return split(DEMO_MODEL, folder / "demo-split", 3)[0]


MODELS: dict[str, Callable[[Path], Path]] = {
    "demo": lambda folder: DEMO_MODEL,
    "merged": lambda folder: demo_variant(folder / "demo-merged.gguf", merged=True),
    "split": _split_demo,
    "12 layers": lambda folder: full122b(folder / "small-12-layers.gguf", layers=12, shape=SMALL),
    "mixed": lambda folder: demo_variant(folder / "demo-mixed.gguf", down_in_layers=dict.fromkeys((0, 3, 6), "Q6_K")),
    **{name: partial(_small, name) for name in ("Q4_K", "Q5_K", "Q6_K", "Q8_0", "MXFP4")},
    "qwen3moe": lambda folder: small_qwen3moe(folder / "small-qwen3moe.gguf"),
    "gpt-oss": lambda folder: small_gpt_oss(folder / "small-gpt-oss.gguf"),
}


def holdings(case: Case, index: ModelIndex) -> list[list[Range]]:
    """What each worker process holds: ranges of every layer whose experts a worker can compute."""
    if case.placement == "local":
        return []
    experts = index.experts_per_layer // (2 if case.placement == "half" else 1)
    cuts = [experts * number // case.workers for number in range(case.workers + 1)]
    once = [[Range(layer, first, last) for layer in index.offered_layers] for first, last in pairwise(cuts)]
    return once * case.replicas
