"""One step's rows in their wire form: what each owner is sent, what its answer must look like, what both weigh.

Knows the call's arrays and an owner's abilities; nothing of transports, deadlines or audits.
"""

import numpy as np
import numpy.typing as npt

from inference.backend import ExpertCall
from inference.dispatch_policy import DispatchPolicy
from inference.groups import Group, PairsByOwner
from inference.kernel import quantize_rows
from inference.replica_table import Replica
from inference.rows import ROW_TYPES, ByteArray, Float32Array, RowType
from relay.frames import ResultDtype
from relay.work import Dispatch

RESULT_BYTES = 4  # float32 per value


class StepWire:
    """Of one layer call. pairs: all of the step, sorted by owner."""

    def __init__(self, call: ExpertCall, policy: DispatchPolicy, pairs: PairsByOwner) -> None:
        self._call, self._policy, self._pairs = call, policy, pairs
        self._width: int = call.hidden.shape[1]
        self._takes_sums = policy.is_compact and call.weights is not None
        self._encoded: Float32Array | ByteArray = call.hidden
        self._row_type = RowType.F32
        self._gathered: Float32Array | ByteArray | None = None
        self.sum_kind: type[np.float32] | type[np.float16] = (
            np.float16 if policy.result_dtype is ResultDtype.PARTIAL_F16 else np.float32
        )

    def encode(self) -> None:
        """All rows of the step, quantised once for all owners."""
        block_type = self._call.block_type if self._policy.row_type is not RowType.F32 else None
        if block_type is not None:
            self._encoded, self._row_type = quantize_rows(self._call.hidden, block_type), ROW_TYPES[block_type]

    def request(self, group: Group) -> Dispatch:
        """One frame's worth: every row once, pairs (row, expert)."""
        replica = group.replica
        gives_sums = self.gives_sums(replica)
        row_type, encoded = self._rows_for(replica)
        return Dispatch(
            result_dtype=int(self._policy.result_dtype) if gives_sums else int(ResultDtype.F32),
            weights=self.weights(group) if gives_sums else None,
            session=replica.session,
            layer=self._call.layer,
            fence=replica.fence,
            claim_id=replica.claim_id,
            row_dtype=int(row_type),
            rows=self._rows_of(group, encoded),
            pairs=self._pairs_of(group),
        )

    def gives_sums(self, replica: Replica) -> bool:
        """Whether its answer is partial sums, a row per token, not a row per pair."""
        return self._takes_sums and replica.gives_sums

    def weights(self, group: Group) -> Float32Array:
        """The router's, of each pair."""
        assert self._call.weights is not None
        return self._call.weights[group.tokens, group.slots]

    def answer_shape(self, group: Group) -> tuple[tuple[int, int], type[np.float32] | type[np.float16]]:
        """What an answer must look like."""
        if not self.gives_sums(group.replica):
            return (len(group.tokens), self._width), np.float32
        return (len(group.rows[0]), self._width), self.sum_kind

    # --- bytes --------------------------------------------------------------------------------------------------------
    def pair_bytes(self) -> int:
        """Most that one more pair moves, there and back."""
        return (4 + RESULT_BYTES) * self._width

    def most_bytes(self, group: Group) -> int:
        """Of request and answer with float32 rows: what is planned before the rows are encoded."""
        return group.moved_bytes(4 * self._width, RESULT_BYTES * self._width) + self._saved_bytes(group)

    def sent_and_moved_bytes(self, group: Group) -> tuple[int, int]:
        """Of the request, and of request and answer together."""
        rows = self._rows_for(group.replica)[1]
        sent = group.moved_bytes(rows.nbytes // len(rows), 0)
        return sent, sent + len(group.tokens) * RESULT_BYTES * self._width + self._saved_bytes(group)

    def _saved_bytes(self, group: Group) -> int:
        """What partial sums move instead of a row per pair (negative), and the weights; 0 without them."""
        if not self.gives_sums(group.replica):
            return 0
        rows, size = len(group.rows[0]), 2 if self.sum_kind is np.float16 else 4
        return (rows * size - len(group.tokens) * RESULT_BYTES) * self._width + 4 * len(group.tokens)

    # --- arrays -------------------------------------------------------------------------------------------------------
    def _rows_for(self, replica: Replica) -> tuple[RowType, Float32Array | ByteArray]:
        """(tokens, row) as this owner can read them."""
        if self._row_type is RowType.Q8_0 and not replica.takes_q8_0:
            return RowType.F32, self._call.hidden
        return self._row_type, self._encoded

    def _rows_of(self, group: Group, encoded: Float32Array | ByteArray) -> Float32Array | ByteArray:
        """Each row of a group once: a part of all rows that travel, gathered at the first that asks."""
        if group.row_range is None or encoded is not self._encoded:
            return encoded[group.rows[0]]
        if self._gathered is None:
            self._gathered = encoded[self._pairs.remote_rows]
        return self._gathered[slice(*group.row_range)]

    def _pairs_of(self, group: Group) -> npt.NDArray[np.uint16]:
        """(pairs, 2): row, expert."""
        if group.pairs is not None:
            return group.pairs
        pairs = np.empty((len(group.tokens), 2), np.uint16)
        pairs[:, 0] = group.rows[1]
        pairs[:, 1] = self._call.expert_ids[group.tokens, group.slots]
        return pairs
