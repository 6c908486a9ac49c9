"""In which passes llama.cpp computes a batch: it reorders rows, and tensors read during a pass have that order.

Source: `llama_batch_allocr::split_equal` (llama.cpp's src/llama-batch.cpp as of llama-cpp-python 0.3.36), which caches
with a stream per sequence use: all sequences of a pass give equally many tokens, and their numbers follow each other.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt


def passes(sequences: npt.NDArray[np.int32], most_rows: int) -> Iterator[npt.NDArray[np.intp]]:
    """The batch's row numbers of each pass, in the order in which the pass computes them.

    sequences: (rows,) the sequence of every row; most_rows: of one pass (n_ubatch).
    """
    rows = len(sequences)
    if rows <= most_rows and np.array_equal(sequences, np.arange(sequences[0], sequences[0] + rows)):
        yield np.arange(rows)  # one token of every sequence: what is asked for most often
        return
    waiting: dict[int, list[int]] = {}
    for row, sequence in enumerate(sequences.tolist()):
        waiting.setdefault(sequence, []).append(row)
    while waiting:
        chosen = _chosen(waiting, most_rows)
        each = min(max(1, most_rows // len(chosen)), min(len(waiting[sequence]) for sequence in chosen))
        yield np.array([row for sequence in chosen for row in waiting[sequence][:each]], np.intp)
        waiting = {sequence: left[each:] if sequence in chosen else left for sequence, left in waiting.items()}
        waiting = {sequence: left for sequence, left in waiting.items() if left}


def _chosen(waiting: dict[int, list[int]], most_rows: int) -> list[int]:
    """The sequences of the next pass: by their first waiting row, as long as their numbers follow each other."""
    chosen: list[int] = []
    for _, sequence in sorted((row, sequence) for sequence, left in waiting.items() for row in left):
        if sequence not in chosen and (not chosen or sequence == chosen[-1] + 1):
            chosen.append(sequence)
            if len(chosen) > most_rows:
                break
    return chosen
