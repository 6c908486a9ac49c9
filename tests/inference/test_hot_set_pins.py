"""inference/hot_set_pins.py: the experts' pages are locked, seen from the kernel's own account."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from inference.gguf_index import open_index
from inference.hot_set_pins import Pins, memory_bytes
from tests.inference.models import DEMO_MODEL

ROOT = Path(__file__).resolve().parents[2]


def locked_bytes() -> int:
    """What this process has locked, according to the kernel."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmLck"))
    return int(line.split()[1]) * 1024


def hot(*experts: tuple[int, int]) -> np.ndarray:
    flags = np.zeros((8, 32), bool)
    for layer, expert in experts:
        flags[layer, expert] = True
    return flags


def test_pages_of_hot_experts_are_locked_and_released() -> None:
    pins = Pins(open_index(DEMO_MODEL))
    expert = open_index(DEMO_MODEL).layers[2].expert_bytes
    before = locked_bytes()

    pins.keep(hot((2, 3), (2, 4), (5, 0)))
    three = locked_bytes() - before
    pins.keep(hot((2, 4)))
    one = locked_bytes() - before
    pins.close()

    assert pins.error == ""
    assert 3 * expert <= three < 4 * expert
    assert expert <= one < 2 * expert  # the page that it shared with its neighbour is still locked
    assert locked_bytes() == before


def test_where_locking_is_not_allowed_it_says_so_and_goes_on() -> None:
    program = (
        "import numpy as np\n"
        "import os, resource\n"
        "from pathlib import Path\n"
        "from inference.gguf_index import open_index\n"
        "from inference.hot_set_pins import Pins\n"
        "pins = Pins(open_index(Path('models/qwen35moe-demo-q4_k_m.gguf')))\n"
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))\n"
        "os.getuid() or os.setresuid(65534, 65534, 65534)  # root may always lock\n"
        "pins.keep(np.ones((8, 32), bool))\n"
        "print(pins.bytes, pins.error)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.startswith("0 ")
    assert "ulimit -l" in done.stdout


def test_memory_is_the_machines_or_less() -> None:
    assert 0 < memory_bytes() <= 1 << 50
