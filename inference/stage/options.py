"""The command line of a stage: parsing and defaults, nothing else."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from inference.ring.service import DEFAULT_RINGS
from inference.ring.wire import SHORTEST_SECRET, host_and_port

SECRET_VARIABLE = "STAGE_SECRET"
LOG_LEVELS = ("debug", "info", "warning", "error")
DESCRIPTION = """\
Serve a run of a model's layers to rings of stages over direct TCP. The model is a stage file, made with
`manage.py slice MODEL --layers A:B`. Connections are authenticated by a secret that all stages and the coordinator
share, but not encrypted: listen on a network that you trust, or in a tunnel. Stop with Ctrl-C.
"""


@dataclass(frozen=True)
class Options:
    """rings: contexts at most (one per lane of every coordinator); at_once: steps that compute at the same time."""

    model: Path
    listen: tuple[str, int]
    secret: bytes
    rings: int
    at_once: int
    gpu_layers: int
    log_level: str


def read_secret(path: Path | None) -> bytes:
    """The secret from a file, or from the environment. Raises ArgumentTypeError."""
    if path is not None:
        try:
            secret = path.read_bytes().strip()
        except OSError as error:
            raise argparse.ArgumentTypeError(f"cannot read the secret: {error}") from error
    else:
        secret = os.environ.get(SECRET_VARIABLE, "").strip().encode()
    if len(secret) < SHORTEST_SECRET:
        raise argparse.ArgumentTypeError(
            f"a secret of at least {SHORTEST_SECRET} characters is needed: --secret FILE, or {SECRET_VARIABLE} in the "
            "environment; the same for all stages and the coordinator"
        )
    return secret


def listen_address(text: str) -> tuple[str, int]:
    """As `host_and_port`, with port 0 for a free one."""
    if text.endswith(":0"):
        return text.removesuffix(":0"), 0
    try:
        return host_and_port(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least 1")
    return int(text)


def parse_options(arguments: list[str] | None = None) -> Options:
    """Options from the command line; prints usage and exits with 2 when it is wrong (argparse's way)."""
    parser = argparse.ArgumentParser(prog="python -m inference.stage", description=DESCRIPTION)
    parser.add_argument("--model", metavar="STAGE.gguf", type=Path, required=True, help="the stage file")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", type=listen_address, required=True,
        help="where coordinators and stages reach this one; port 0: a free one, printed",
    )  # fmt: skip
    parser.add_argument(
        "--secret", metavar="FILE", type=Path, help=f"file with the secret (default: {SECRET_VARIABLE})"
    )
    parser.add_argument(
        "--rings", metavar="N", type=_positive, default=DEFAULT_RINGS,
        help="most contexts, one per lane of every coordinator (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--at-once", metavar="N", type=_positive, default=1,
        help="steps that compute at the same time, each with its own threads (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--gpu-layers", metavar="N", type=int, default=0, help="layers on a GPU (default: %(default)s)")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="default: %(default)s")
    namespace = parser.parse_args(arguments)
    try:
        secret = read_secret(namespace.secret)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    return Options(
        model=namespace.model,
        listen=namespace.listen,
        secret=secret,
        rings=namespace.rings,
        at_once=namespace.at_once,
        gpu_layers=namespace.gpu_layers,
        log_level=namespace.log_level,
    )
