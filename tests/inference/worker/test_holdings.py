"""Slices in memory."""

from inference.numpy_kernel import NumpyKernel
from inference.worker.holdings import Holding, Holdings
from relay.messages import status_frame
from tests.inference.slice_builders import built_slice
from tests.inference.worker.builders import BUILD, a_claim


def a_holding(claim_id: int, layer: int) -> Holding:
    return Holding(a_claim(claim_id=claim_id, layer=layer), "ab" * 32, NumpyKernel(built_slice()))


def test_a_holding_is_found_by_its_claim() -> None:
    holdings, held = Holdings(), a_holding(7, layer=3)

    holdings.add(held)

    assert holdings.find(7) is held
    assert holdings.find(8) is None
    assert (len(holdings), holdings.build) == (1, BUILD)


def test_what_was_removed_is_gone() -> None:
    holdings, held = Holdings(), a_holding(7, layer=3)
    holdings.add(held)

    assert holdings.remove(7) is held
    assert holdings.find(7) is None
    assert (len(holdings), holdings.build, str(holdings)) == (0, None, "nothing")


def test_it_reads_as_words_in_the_order_of_layers() -> None:
    holdings = Holdings()
    for claim_id, layer in ((1, 5), (2, 3)):
        holdings.add(a_holding(claim_id, layer))

    assert str(holdings) == "layer 3, experts 8-14; layer 5, experts 8-14"


def test_its_replicas_are_what_the_relay_reads() -> None:
    holdings = Holdings()
    holdings.add(a_holding(7, layer=3))

    replicas = holdings.replicas()

    assert replicas == [
        {"claim_id": 7, "fence": 2, "layer": 3, "first": 8, "last": 15, "sha256": "ab" * 32},
    ]
    assert status_frame({"replicas": replicas}).body
