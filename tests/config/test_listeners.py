"""config/listeners.py: closing a listening socket loses nobody who had reached it; with the real servers."""

import asyncio
import errno
import select
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from config.listeners import HANDSHAKE_SECONDS, begin_no_more, listeners_of, stop_listening
from tests.e2e.processes import ROOT, running

TIMEOUT_SECONDS = 10.0
CLIENTS = 6
APPLICATION = """
from config.draining import Draining

async def hello(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})

async def leave(seconds):
    pass

application = Draining(hello, 5.0, leave)
"""


def beginning(address: tuple[str, int]) -> socket.socket:
    """A client whose first packet has left."""
    client = socket.socket()
    client.setblocking(False)
    assert client.connect_ex(address) == errno.EINPROGRESS
    return client


def outcome(client: socket.socket, seconds: float) -> int | None:
    """What came of connecting, as an errno (0: connected); None: nothing yet."""
    if not select.select([], [client], [], seconds)[1]:
        return None
    return client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def test_who_began_before_is_let_in_and_who_comes_after_is_refused_once_the_socket_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(TIMEOUT_SECONDS)
        address = listening.getsockname()
        with socket.create_connection(address) as alice:
            assert begin_no_more(listening.fileno())

            bob = beginning(address)
            came = outcome(bob, 0.2)
            met, _ = listening.accept()
            alice.sendall(b"question")
            heard = met.recv(100)
            met.sendall(b"answer")
            answer = alice.recv(100)
            met.close()
    with bob:
        assert (came, heard, answer) == (None, b"question", b"answer")
        assert outcome(bob, TIMEOUT_SECONDS) == errno.ECONNREFUSED


def test_a_handshake_that_is_half_done_is_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(TIMEOUT_SECONDS)
        # For the server the connection is not made before its first data: the last packet of the handshake is ignored.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
        with socket.create_connection(listening.getsockname()) as alice:
            begin_no_more(listening.fileno())
            alice.sendall(b"question")

            met, _ = listening.accept()
            with met:
                assert met.recv(100) == b"question"


def test_other_sockets_than_tcp_are_left_alone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()

        assert not begin_no_more(listening.fileno())


async def test_an_event_loop_that_is_late_still_accepts_everybody() -> None:
    met: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: met.append(writer), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()

    class Uvicorn:
        servers = (server,)

    clients = [beginning(address) for _ in range(CLIENTS)]
    asyncio.get_running_loop().call_soon(time.sleep, 2 * HANDSHAKE_SECONDS)
    await stop_listening(listeners_of(Uvicorn()))
    with socket.socket() as mallory:
        late = mallory.connect_ex(address)

    assert [outcome(client, 0.0) for client in clients] == [0] * CLIENTS
    assert len(met) == CLIENTS
    assert late == errno.ECONNREFUSED
    for client, writer in zip(clients, met, strict=True):
        client.close()
        writer.close()


def ask(client: socket.socket) -> bytes:
    """The whole answer, or why there is none."""
    answer = b""
    try:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        while piece := client.recv(4096):
            answer += piece
    except OSError as error:
        return repr(error).encode()
    return answer


class Impatient:
    """Asks over one new connection after another until it is refused; counts answers, and notes what was lost."""

    def __init__(self, port: int) -> None:
        self.answered, self.lost = 0, list[str]()
        self._port = port
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                client = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_SECONDS)
            except ConnectionRefusedError:
                return
            with client:
                answer = ask(client)
            if answer.endswith(b"hello"):
                self.answered += 1
            else:
                self.lost.append(answer.decode())


def start_command(program: str, port: int) -> list[str]:
    address = {"daphne": ["--verbosity", "0", "--bind", "127.0.0.1"], "uvicorn": ["--host", "127.0.0.1"]}[program]
    return ["-m", program, *address, "--port", str(port), "hello:application"]


@pytest.mark.parametrize("program", ["daphne", "uvicorn"])
def test_a_server_that_stops_answers_everybody_who_got_a_connection(program: str, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(APPLICATION)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with running(start_command(program, port), tmp_path / "log", {"PYTHONPATH": f"{ROOT}:{tmp_path}"}) as server:
        server.wait_for(listens, 30, f"{program} listens")
        clients = [Impatient(port) for _ in range(CLIENTS)]
        server.wait_for(lambda: all(client.answered for client in clients), 10, "everybody is answered")
        server.end(signal.SIGTERM, 10)
        for client in clients:
            client.join()

        assert [client.lost for client in clients] == [[]] * CLIENTS
        assert "Traceback" not in server.output
