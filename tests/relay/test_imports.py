"""The modules that both ends share need neither Django nor Channels nor anything else of the server."""

import subprocess
import sys

import pytest

from tests.e2e.processes import ROOT

PURE = ["frames", "messages", "protocol", "credit", "roster", "admission", "connection", "client", "backbone_link"]
SERVER_ONLY = {"django", "channels", "celery", "daphne", "market", "inference", "config"}


@pytest.mark.parametrize("module", PURE)
def test_a_shared_module_leaves_the_server_out(module: str) -> None:
    program = f"import sys, relay.{module}; print(*{{name.split('.')[0] for name in sys.modules}})"

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert not set(done.stdout.split()) & SERVER_ONLY


@pytest.mark.parametrize("module", ["frames", "protocol", "client_session", "records", "outbound", "roster"])
def test_what_decides_does_no_input_or_output(module: str) -> None:
    program = f"import sys, relay.{module}; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert not set(done.stdout.split()) & {"websockets", "relay.client", "relay.connection", "relay.consumers"}
