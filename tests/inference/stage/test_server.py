"""A stage that listens: who may connect, what ends a ring, and what strangers get."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inference.llama import ContextSettings
from inference.ring.errors import LineBroken, NotAuthentic, RingError, StageFailed
from inference.ring.line import TcpLine, describe
from inference.ring.steps import Step, write_message
from inference.ring.wire import LENGTH, MAGIC, Wire
from tests.inference.models import DEMO_MODEL
from tests.inference.ring.lines import SECRET, RunningStage
from tests.inference.stage_chain import cut

SETTINGS = ContextSettings(sequence_tokens=64, sequences=2, batch_tokens=8, threads=1, outputs=2)
STEP = Step((), np.zeros(1, np.int32), np.zeros(1, np.int32), np.ones(1, np.int8), tokens=np.array([9], np.int32))


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return cut(DEMO_MODEL, tmp_path_factory.mktemp("stages"), 2)


@pytest.fixture
def first(paths: list[Path]) -> Iterator[RunningStage]:
    with RunningStage(paths[0], rings=1) as stage:
        yield stage


@pytest.fixture
def last(paths: list[Path]) -> Iterator[RunningStage]:
    with RunningStage(paths[1], rings=1) as stage:
        yield stage


def test_it_describes_itself_to_who_knows_the_secret(first: RunningStage) -> None:
    stage = describe(first.address, SECRET)

    assert (stage.first, stage.last, stage.layers, stage.has_experts) == (0, 4, 8, True)


def test_it_ends_the_handshake_of_who_does_not(first: RunningStage) -> None:
    with pytest.raises(NotAuthentic, match="same secret"):
        describe(first.address, b"another secret of mine")


def test_a_listener_that_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(LineBroken, match="within"):
        Wire.dial(f"127.0.0.1:{listener.getsockname()[1]}", SECRET, 0.2)


def test_a_listener_without_the_secret_is_recognised() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        answerer = _FalseStage(listener)
        with pytest.raises(NotAuthentic, match="does not know"):
            Wire.dial(f"127.0.0.1:{port}", SECRET, 5.0)
        answerer.join()


def test_a_stranger_who_sends_garbage_is_dropped_and_the_stage_goes_on(first: RunningStage) -> None:
    host, port = first.address.split(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.settimeout(5)
        assert stranger.recv(len(MAGIC)) == MAGIC
        stranger.sendall(bytes(200))
        while stranger.recv(64):  # the rest of its greeting, then the end
            pass

    assert describe(first.address, SECRET).last == 4


def test_a_message_that_is_too_long_is_refused_before_it_is_read(first: RunningStage) -> None:
    with Wire.dial(first.address, SECRET) as wire:
        wire._socket.sendall(LENGTH.pack(1 << 28))

        with pytest.raises(LineBroken):
            wire.receive(5.0)


def test_a_step_is_no_beginning(first: RunningStage) -> None:
    with Wire.dial(first.address, SECRET) as wire:
        wire.send(write_message(bytes(16), 1, STEP), 5.0)

        assert b"bad_step" in wire.receive(5.0)


def test_a_ring_that_does_not_reach_the_last_layer_is_refused(first: RunningStage) -> None:
    with pytest.raises(StageFailed, match="layer 4 of 8"):
        TcpLine([first.address], SECRET, SETTINGS)

    assert first.service.ring_count == 0


def test_a_ring_in_the_wrong_order_is_refused(first: RunningStage, last: RunningStage) -> None:
    with pytest.raises(RingError):
        TcpLine([last.address, first.address], SECRET, SETTINGS)

    assert (first.service.ring_count, last.service.ring_count) == (0, 0)


def test_a_stage_that_is_full_says_so(first: RunningStage, last: RunningStage) -> None:
    line = TcpLine([first.address, last.address], SECRET, SETTINGS)
    try:
        with pytest.raises(StageFailed, match="stage_full"):
            TcpLine([first.address, last.address], SECRET, SETTINGS)
    finally:
        line.close()


def test_a_step_that_a_stage_refuses_comes_back_with_its_reason(first: RunningStage, last: RunningStage) -> None:
    line = TcpLine([first.address, last.address], SECRET, SETTINGS)
    try:
        bad = Step((), STEP.positions, STEP.sequences, STEP.wants_logits, tokens=np.array([1 << 20], np.int32))
        with pytest.raises(StageFailed, match=r"stage 0 .*bad_step.*vocabulary"):
            line.exchange(bad)

        assert line.exchange(STEP).code == 0
    finally:
        line.close()


def test_a_stage_that_dies_ends_the_ring_at_once(first: RunningStage, last: RunningStage) -> None:
    line = TcpLine([first.address, last.address], SECRET, SETTINGS)
    assert line.exchange(STEP).code == 0

    first.stop()

    with pytest.raises(LineBroken):
        line.exchange(STEP)
    line.close()


class _FalseStage:
    """Greets as a stage does, and proves nothing."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.sendall(MAGIC + bytes(16))
            connection.recv(64)
            connection.sendall(bytes(32))
            connection.recv(64)

    def join(self) -> None:
        self._thread.join()
