"""M0: the backbone runs the model alone. All experts local, llama.cpp's graph unchanged, our backend in the middle."""

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from inference.backend import ExpertCall, SwarmBackend
from inference.demos import Figures, Say
from inference.demos.replayed import compare
from inference.engine import Engine
from inference.generation import GenerationRequest, TokenEvent
from inference.gguf_index import open_index
from inference.sampling import SamplingParameters

SEQUENCES, TOKENS, LANES = 16, 64, 2
PROMPT = "In the beginning"


class Counter:
    """The handler of the backend: computes every row here and counts them."""

    def __init__(self) -> None:
        self.rows = 0
        self._lock = threading.Lock()

    def __call__(self, call: ExpertCall) -> None:
        call.compute_all()
        with self._lock:
            self.rows += call.expert_ids.size


def run(model: Path, say: Say) -> Figures:
    """Generates `SEQUENCES` texts at once, then replays what was recorded through plain llama.cpp.

    Raises InferenceError.
    """
    index = open_index(model)
    say(f"{index.name}: {index.trunk_layers} layers, {index.experts_per_layer} experts each, all of them on this host")
    counter = Counter()
    backend = SwarmBackend.install(counter)
    with tempfile.TemporaryDirectory(prefix="demo-m0-") as folder:
        engine = Engine(model, lanes=LANES, sequences=SEQUENCES, lane_context=backend.lane, trace_dir=Path(folder))
        engine.start()
        try:
            say(f"{SEQUENCES} sequences of {TOKENS} tokens on {LANES} lanes ...")
            seconds, texts = _generate(engine)
        finally:
            engine.stop()
        say(f"the first of them: {PROMPT}{texts[0]!r}")
        say("replaying every batch through plain llama.cpp in another process ...")
        positions, difference = compare(sorted(Path(folder).glob("lane-*.jsonl")))
    return Figures(SEQUENCES * TOKENS, seconds, 0, counter.rows, positions, difference)


def _generate(engine: Engine) -> tuple[float, list[str]]:
    texts = [""] * SEQUENCES
    left = threading.Semaphore(0)

    def listener(number: int) -> Callable[[TokenEvent], None]:
        def on_event(event: TokenEvent) -> None:
            texts[number] += event.text
            if event.finish is not None:
                left.release()

        return on_event

    prompt = tuple(engine.tokenize(PROMPT))
    began = time.monotonic()
    for number in range(SEQUENCES):
        sampling = SamplingParameters(temperature=0.8, seed=number, max_tokens=TOKENS, ignore_eos=True)
        engine.submit(GenerationRequest(str(number), prompt, sampling), listener(number))
    for _ in range(SEQUENCES):
        left.acquire()
    return time.monotonic() - began, texts
