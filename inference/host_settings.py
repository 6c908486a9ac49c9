"""The values that a backbone is made of: its settings, and the market's functions that it calls."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference.audit import Finding, NodeClass
from inference.credit_spool import CreditWindow
from inference.dispatch import DispatchPolicy
from inference.gguf_index import ModelIndex
from inference.stage_file import StageSource
from inference.verification import Verification


@dataclass(frozen=True)
class HostSettings:
    """Values of config/settings.py that a backbone needs; see docs/settings.md.

    relay_urls: empty: those that registered in Redis, and `relay_fallback` while there are none. hot_set_seconds: None:
    the wait for workers as it is measured. stages: addresses; empty: no rings.
    """

    model_path: Path
    var_dir: Path
    redis_url: str
    relay_urls: tuple[str, ...]
    backbone_token: str
    relay_fallback: str = ""
    lanes: int = 2
    sequences: int = 16
    context_tokens: int = 1024
    threads: int = 0
    gpu_layers: int = 0
    trace_dir: Path | None = None
    window_seconds: float = 60.0
    spool_seconds: float = 10.0
    demand_seconds: float = 300.0
    policy: DispatchPolicy = field(default_factory=DispatchPolicy)
    trace_bytes: int = 4 << 30
    prefill_tokens: int = 256
    kept_sequences: int = 0
    hot_set_bytes: int = 0
    hot_set_seconds: float | None = None
    stages: tuple[str, ...] = ()
    stage_secret: bytes = b""
    ring_lanes: int = 1
    ring_sequences: int = 4
    ring_threads: int = 1
    ring_patience_seconds: float = 60.0
    ring_step_seconds: float = 60.0
    offers_stages: bool = False


@dataclass(frozen=True)
class MarketPort:
    """The market's ears: what a backbone reports, as plain functions (`inference.reports.market_port`)."""

    publish_build: Callable[[ModelIndex], None]
    record_verdict: Callable[[Verification], None]
    credit_window: Callable[[CreditWindow], None]
    observe_demand: Callable[[ModelIndex, npt.NDArray[np.uint64], float, float], None]
    note_strain: Callable[[ModelIndex, str, npt.NDArray[np.float64]], None]
    record_finding: Callable[[Finding], None]
    record_passes: Callable[[str, NodeClass, int, int], None]
    trust_of: Callable[[NodeClass], int]
    publish_stages: Callable[[StageSource], None]
    observe_stage_demand: Callable[[str, npt.NDArray[np.uint64], float, float], None]
