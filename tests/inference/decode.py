"""Decodes a fixed script of steps and returns every logits row; run as a program it is plain llama.cpp, the oracle.

`python -m tests.inference.decode MODEL SEQUENCES STEPS THREADS OUT.npy`
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference.llama import Batch, Context, ContextSettings, Model, start_llama

ROOT = Path(__file__).resolve().parents[2]


def settings_for(sequences: int, threads: int) -> ContextSettings:
    return ContextSettings(
        sequence_tokens=128, sequences=sequences, batch_tokens=128, threads=threads, outputs=sequences
    )


def decode_steps(model: Model, context: Context, sequences: int, steps: int) -> npt.NDArray[np.float32]:
    """(steps, sequences, n_vocab): `sequences` sequences fed one random token each per step."""
    random = np.random.default_rng(7)
    batch = Batch(sequences)
    batch.size = sequences
    batch.wants_logits[:] = 1
    batch.sequences[:] = np.arange(sequences)
    rows = []
    for step in range(steps):
        batch.tokens[:] = random.integers(20, 4000, sequences)
        batch.positions[:] = step
        assert context.decode(batch) == 0
        rows.append(context.logits(sequences).copy())
    return np.stack(rows)


def plain_logits(model: Path, out: Path, *, sequences: int, steps: int, threads: int = 1) -> npt.NDArray[np.float32]:
    """The same steps by plain llama.cpp, in a process of its own."""
    command = [sys.executable, "-m", "tests.inference.decode", str(model), str(sequences), str(steps), str(threads)]
    subprocess.run([*command, str(out)], check=True, cwd=ROOT, timeout=120)
    rows: npt.NDArray[np.float32] = np.load(out)
    return rows


def main(model_path: str, sequences: str, steps: str, threads: str, out: str) -> None:
    start_llama()
    with Model(Path(model_path)) as model, Context(model, settings_for(int(sequences), int(threads))) as context:
        np.save(out, decode_steps(model, context, int(sequences), int(steps)))


if __name__ == "__main__":
    main(*sys.argv[1:])
