"""The command line of the worker: parsing and defaults, nothing else."""

import argparse
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

KERNEL_CHOICES = ("auto", "ggml", "numpy")
TOKEN_VARIABLE = "EXPERTSWARM_TOKEN"
INVITE_VARIABLE = "EXPERTSWARM_INVITE"
LOG_LEVELS = ("debug", "info", "warning", "error")
DEFAULT_STATE_DIR = Path("~/.local/state/expertswarm")
DEFAULT_BUDGET_SHARE = 0.25
DEFAULT_BUDGET_LIMIT = 2 << 30
UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}

DESCRIPTION = """\
Lend memory and processor time to an Expertswarm server: claim the experts that pay best for the memory lent, download
them, and compute them for the server's model. Stop with Ctrl-C: queued work is finished and the experts are given back.
"""


@dataclass(frozen=True)
class Options:
    """What the owner of the machine asked for. Exactly one of `budget_bytes` and `experts` is set."""

    server: str
    budget_bytes: int | None
    experts: int | None
    kernel: str
    name: str
    state_dir: Path
    threads: int
    log_level: str
    token: str | None = None
    ca: Path | None = None
    rows_per_second: float | None = None
    invite: str = ""


def parse_size(text: str) -> int:
    """Bytes from a readable size: `42MB` (10^6), `1GiB` (2^30), `5000000`. Raises ArgumentTypeError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write for example 42MB, 1GiB or 5000000")
    size_bytes = int(float(match[1]) * UNITS[match[2]])
    if size_bytes < 1:
        raise argparse.ArgumentTypeError("the size must be at least one byte")
    return size_bytes


def parse_server(text: str) -> str:
    """The server's address without a trailing slash. Raises ArgumentTypeError."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise argparse.ArgumentTypeError(f"{text!r} is not a server address: write for example https://swarm.example")
    return text.rstrip("/")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least 1")
    return int(text)


def _positive_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0")
    return value


def default_budget_bytes() -> int:
    """A quarter of the machine's memory, at most 2 GiB; 1 GiB where the system does not tell its memory."""
    try:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not a POSIX system, or one without these names
        return 1 << 30
    return min(int(memory_bytes * DEFAULT_BUDGET_SHARE), DEFAULT_BUDGET_LIMIT)


def default_threads() -> int:
    """Half of the cores: the owner keeps the other half."""
    return max(1, (os.cpu_count() or 1) // 2)


def add_arguments(parser: argparse.ArgumentParser, *, server_required: bool = True) -> None:
    """Declare the worker's options."""
    parser.add_argument(
        "--server",
        metavar="URL",
        type=parse_server,
        required=server_required,
        help="address of the server, for example https://swarm.example"
        + ("" if server_required else " (default: the one that runs on this machine)"),
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--budget",
        metavar="SIZE",
        type=parse_size,
        dest="budget_bytes",
        help="memory (and disk) to lend, for example 42MB or 1GiB (default: a quarter of the memory, at most 2GiB)",
    )
    size.add_argument("--experts", metavar="N", type=_positive, help="lend memory for N experts instead of a size")
    parser.add_argument(
        "--kernel",
        choices=KERNEL_CHOICES,
        default="auto",
        help="what computes: ggml (fast, needs llama-cpp-python), numpy (slow, runs everywhere) or auto (default)",
    )
    parser.add_argument(
        "--name", default=_machine_name(), help="how the server's lists call this machine (default: %(default)s)"
    )
    parser.add_argument(
        "--state",
        metavar="DIR",
        type=Path,
        default=DEFAULT_STATE_DIR,
        dest="state_dir",
        help="folder for the node's token and the slices (default: %(default)s)",
    )
    parser.add_argument(
        "--token",
        default=os.environ.get(TOKEN_VARIABLE) or None,
        help="be the node that the server's page registered, instead of a new one; kept in the state folder. Everybody "
        f"on this machine can read it here: set {TOKEN_VARIABLE} in the environment instead",
    )
    parser.add_argument(
        "--invite",
        metavar="CODE",
        default=os.environ.get(INVITE_VARIABLE, ""),
        help=f"where registration is by invite: the code; or in {INVITE_VARIABLE}",
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=_positive,
        default=default_threads(),
        help="cores that the ggml kernel uses (default: half of them, here %(default)s); numpy follows OMP_NUM_THREADS",
    )
    parser.add_argument(
        "--rows-per-second",
        metavar="N",
        type=_positive_number,
        help="compute at most so many rows (a token's share of one expert) in a second (default: as many as it can)",
    )
    parser.add_argument(
        "--ca",
        metavar="FILE",
        type=Path,
        help="trust the certificate authorities in this PEM file (default: the system's, or SSL_CERT_FILE's)",
    )
    parser.add_argument(
        "--log-level", choices=LOG_LEVELS, default="info", help="how much to print (default: %(default)s)"
    )


def _machine_name() -> str:
    return socket.gethostname()[:60] or "worker"


def options_from(namespace: argparse.Namespace) -> Options:
    """Options from what argparse (or Django's command parser) read."""
    budget_bytes, experts = namespace.budget_bytes, namespace.experts
    if budget_bytes is None and experts is None:
        budget_bytes = default_budget_bytes()
    return Options(
        server=namespace.server,
        budget_bytes=budget_bytes,
        experts=experts,
        kernel=namespace.kernel,
        name=namespace.name,
        state_dir=namespace.state_dir.expanduser(),
        threads=namespace.threads,
        log_level=namespace.log_level,
        ca=namespace.ca,
        token=namespace.token,
        rows_per_second=namespace.rows_per_second,
        invite=namespace.invite,
    )


def parse_options(arguments: list[str] | None = None) -> Options:
    """Options from the command line; prints usage and exits with 2 when it is wrong (argparse's way)."""
    parser = argparse.ArgumentParser(prog="python -m inference.worker", description=DESCRIPTION)
    add_arguments(parser)
    return options_from(parser.parse_args(arguments))
