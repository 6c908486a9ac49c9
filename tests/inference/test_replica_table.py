"""The replica table: candidates per expert."""

import numpy as np

from inference.replica_table import Replica, ReplicaTable


def replica(session: int, layer: int, first: int, last: int) -> Replica:
    return Replica(session, f"node{session}", session, 1, layer, first, last, "ggml")


def test_an_empty_table_has_no_layers() -> None:
    assert ReplicaTable(experts_per_layer=8).layer(0) is None


def test_it_lists_every_holder_of_an_expert() -> None:
    table = ReplicaTable([replica(1, 2, 0, 4), replica(2, 2, 3, 6), replica(3, 5, 0, 8)], experts_per_layer=8)

    layer = table.layer(2)

    assert layer is not None
    assert layer.counts.tolist() == [1, 1, 1, 2, 1, 1, 0, 0]
    assert layer.candidates.tolist() == [[0, -1], [0, -1], [0, -1], [0, 1], [1, -1], [1, -1], [-1, -1], [-1, -1]]
    assert table.layer(3) is None
    assert np.array_equal(table.layer(5).counts, np.ones(8))  # type: ignore[union-attr]
