"""How far two rows of logits part, as distributions over the next token."""

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]


def divergence(theirs: Logits, ours: Logits) -> npt.NDArray[np.float64]:
    """KL(theirs || ours) of every position in nats: (positions, n_vocab) float32 each -> (positions,)."""
    p, q = _log_softmax(theirs), _log_softmax(ours)
    kl: npt.NDArray[np.float64] = (np.exp(p) * (p - q)).sum(axis=1)
    return kl


def same_choices(theirs: Logits, ours: Logits) -> int:
    """Positions at which both find the same token the likeliest."""
    return int((theirs.argmax(axis=1) == ours.argmax(axis=1)).sum())


def _log_softmax(logits: Logits) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result
