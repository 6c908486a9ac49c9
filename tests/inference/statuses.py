"""What a backbone says of itself, for tests: the shape that `NodeHost.status` publishes."""

from typing import Any

import numpy as np

from inference.backbone_status import Status
from inference.hot_set import pack_flags
from tests.builders import FINGERPRINT

HOT = np.zeros((8, 32), bool)
HOT[(0, 5), (3, 31)] = True


def backbone(boot: str = "b1", **changes: Any) -> Status:
    """A healthy backbone with one worker that has computed 600 of 1,000 rows."""
    return {
        "boot": boot,
        "at": 1000.0,
        "started": 900.0,
        "build": FINGERPRINT,
        "model": "demo",
        "kernel_class": "ggml",
        "layers": 8,
        "experts_per_layer": 32,
        "sequences_active": 3,
        "sequences_waiting": 1,
        "sequences_limit": 16,
        "tokens_generated": 500,
        "prompt_tokens": 70,
        "reused_tokens": 0,
        "tokens_per_second": 12.5,
        "decodes": 200,
        "failed_decodes": 0,
        "relays_connected": [True],
        "sessions": 1,
        "workers": 1,
        "replicas": 2,
        "rows": {"remote": 600, "local_uncovered": 300, "local_prefill": 60, "fallback_late": 40},
        "moments": {"retried_rows": 8},
        "audits": {"before": 10, "passed": 10},
        "failures": [["node-1", "late", 4]],
        "hot_set": {
            "on": True,
            "experts": 2,
            "bytes": 200,
            "budget_bytes": 300,
            "pinned_bytes": 100,
            "pin_error": "no room",
            "seconds_per_call": 0.01,
            "budget_seconds_per_call": 0.02,
            "changes": 2,
            "ram_bytes": 1000,
            "on_disk_bytes": 0,
            "layers": 8,
            "flags": pack_flags(HOT),
        },
        "owners": {"node-1": {"seconds": 0.02, "deviation_seconds": 0.001, "answers": 80}},
        **changes,
    }
