"""The listening side of a stage: one thread per connection, one connection per ring that passes through here.

The first message of a connection says what it is: DESCRIBE (answered, more may follow), ATTACH (answers of a ring will
leave here) or OPEN (steps of a ring will come in here; the next stage of its route is dialled, or, behind the last one,
the attached connection is used). A ring ends with either of its connections, and then so does the other.
"""

from __future__ import annotations

import logging
import socket
import threading
from dataclasses import dataclass, field

from inference.errors import InferenceError
from inference.ring.errors import BadStep, LineBroken, RingError, StageFailed
from inference.ring.line import OPEN_SECONDS
from inference.ring.service import StageService, failed
from inference.ring.steps import (
    Answer,
    Attach,
    Body,
    Close,
    Describe,
    Failed,
    Message,
    Open,
    Opened,
    StageDescription,
    Step,
    read_message,
    write_message,
)
from inference.ring.wire import HANDSHAKE_SECONDS, Wire

logger = logging.getLogger(__name__)

CONNECTIONS_LIMIT = 128
FIRST_MESSAGE_SECONDS = 30.0
SEND_SECONDS = 60.0
# A step has beside its hidden states: header, operations, and nothing else of size.
STEP_SLACK_BYTES = 1 << 16
ROW_BYTES = 16


@dataclass
class Attached:
    """A connection for the answers of a ring. taken: the ring has opened; ended: and is over."""

    wire: Wire
    taken: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


class StageServer:
    """Serves until `close`. secret: every connection must prove that it knows it."""

    def __init__(self, service: StageService, listener: socket.socket, secret: bytes) -> None:
        self._service, self._listener, self._secret = service, listener, secret
        self._attached: dict[bytes, Attached] = {}
        self._wires: set[Wire] = set()
        self._lock = threading.Lock()
        self._places = threading.Semaphore(CONNECTIONS_LIMIT)
        self._closing = threading.Event()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """Takes connections until `close` is called from another thread or a signal handler."""
        while not self._closing.is_set():
            try:
                connection, address = self._listener.accept()
            except OSError:
                if self._closing.is_set():
                    return
                raise
            if not self._places.acquire(blocking=False):
                logger.warning("%s is refused: %d connections are open", address[0], CONNECTIONS_LIMIT)
                connection.close()
                continue
            name = f"line-{address[0]}:{address[1]}"
            threading.Thread(target=self._serve, args=(connection, name), name=name, daemon=True).start()

    def close(self) -> None:
        """Ends every connection; the rings' contexts are freed."""
        self._closing.set()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            logger.debug("the listening socket: %s", error)
        self._listener.close()
        with self._lock:
            wires = list(self._wires)
        for wire in wires:
            wire.close()
        self._service.stop()

    # --- one connection -----------------------------------------------------------------------------------------------
    def _serve(self, connection: socket.socket, name: str) -> None:
        try:
            with Wire.accept(connection, self._secret, HANDSHAKE_SECONDS) as wire:
                with self._lock:
                    self._wires.add(wire)
                try:
                    self._begin(wire)
                finally:
                    with self._lock:
                        self._wires.discard(wire)
        except InferenceError as error:
            logger.info("%s: %s: %s", name, error.code, error)
        except Exception:
            logger.exception("%s: an error of this program", name)
        finally:
            self._places.release()

    def _begin(self, wire: Wire) -> None:
        while True:
            message = read_message(wire.receive(FIRST_MESSAGE_SECONDS))
            match message.body:
                case Describe():
                    _reply(wire, message, Opened((self._service.description,)))
                case Attach():
                    return self._attach(wire, message)
                case Open():
                    return self._pass_steps(wire, message, message.body)
                case _:
                    error = BadStep(f"{type(message.body).__name__} is no beginning")
                    _reply(wire, message, failed(0, error))
                    raise error

    def _attach(self, wire: Wire, message: Message) -> None:
        attached = Attached(wire)
        with self._lock:
            if message.ring in self._attached:
                raise BadStep("somebody waits for the answers of this ring already")
            self._attached[message.ring] = attached
        try:
            _reply(wire, message, Opened())
            if attached.taken.wait(OPEN_SECONDS):
                attached.ended.wait()  # the ring's thread writes here meanwhile
        finally:
            with self._lock:
                self._attached.pop(message.ring, None)

    # --- one ring -----------------------------------------------------------------------------------------------------
    def _pass_steps(self, incoming: Wire, message: Message, order: Open) -> None:
        ring = message.ring
        try:
            self._service.open(ring, order.settings)
            try:
                outgoing, opened, attached = self._onward(ring, message, order)
            except InferenceError:
                self._service.close(ring)
                raise
        except InferenceError as error:
            _reply(incoming, message, failed(0, error))
            raise
        try:
            with outgoing:
                _reply(incoming, message, opened)
                self._loop(incoming, outgoing, ring, self._step_bytes(order))
        except LineBroken as error:
            logger.info("ring %s ends: %s", ring.hex()[:8], error)
        finally:
            if attached is not None:
                attached.ended.set()
            self._service.close(ring)

    def _onward(self, ring: bytes, message: Message, order: Open) -> tuple[Wire, Opened, Attached | None]:
        """Where steps go from here, and the stages from here on. Raises RingError."""
        here = self._service.description
        if not order.route:
            if not self._service.is_last:
                raise BadStep(f"the ring ends here, at layer {here.last} of {here.layers}")
            with self._lock:
                attached = self._attached.get(ring)
            if attached is None:
                raise BadStep("nobody is attached for the answers of this ring")
            attached.taken.set()
            return attached.wire, Opened((here,)), attached
        wire = Wire.dial(order.route[0], self._secret)
        try:
            wire.send(write_message(ring, message.number, Open(order.settings, order.route[1:])), OPEN_SECONDS)
            answer = read_message(wire.receive(OPEN_SECONDS)).body
            if isinstance(answer, Failed):
                raise StageFailed(f"{order.route[0]}: {answer.code}: {answer.reason}")
            if not isinstance(answer, Opened) or not answer.stages or not follows(here, answer.stages[0]):
                raise BadStep(f"{order.route[0]} does not hold the layers behind {here.last}")
        except RingError:
            wire.close()
            raise
        return wire, Opened((here, *answer.stages)), None

    def _step_bytes(self, order: Open) -> int:
        """The longest step of a ring."""
        row = ROW_BYTES + (0 if self._service.is_first else 4 * self._service.description.n_embd)
        return order.settings.batch_tokens * row + STEP_SLACK_BYTES

    def _loop(self, incoming: Wire, outgoing: Wire, ring: bytes, limit: int) -> None:
        """Until a connection ends. Raises LineBroken, BadStep."""
        while True:
            data: bytes | bytearray = incoming.receive(None, limit)
            message = read_message(data)
            if message.ring != ring:
                raise BadStep("a step of another ring")
            match message.body:
                case Step():
                    data = write_message(ring, message.number, self._computed(ring, message.body))
                case Answer() | Failed():
                    pass  # an earlier stage's, on its way to the coordinator
                case Close():
                    return
                case _:
                    raise BadStep(f"{type(message.body).__name__} within a ring")
            outgoing.send(data, SEND_SECONDS)

    def _computed(self, ring: bytes, step: Step) -> Body:
        """The step for the next stage, or the answer for the coordinator."""
        try:
            answer = self._service.compute(ring, step)
        except InferenceError as error:
            return failed(len(step.seconds), error)
        if answer.code == 0 and not self._service.is_last:
            return step.onward(answer)
        return Answer(answer.code, answer.content, answer.values, step.seconds + answer.seconds)


def follows(here: StageDescription, there: StageDescription) -> bool:
    """Whether a stage holds the layers right behind those of another, of the same model."""
    return (here.fingerprint, here.last, here.layers) == (there.fingerprint, there.first, there.layers)


def _reply(wire: Wire, message: Message, body: Body) -> None:
    wire.send(write_message(message.ring, message.number, body), SEND_SECONDS)
