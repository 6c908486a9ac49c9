"""The program around the worker: logging, signals, exit codes.

Exit codes: 0 after a clean stop, 1 when it cannot go on (one line says why), 2 for a wrong command line, 130 when a
second signal ended it at once.
"""

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType as StackFrame

from tqdm.contrib.logging import logging_redirect_tqdm

from inference.worker.errors import CertificatesUnusable, WorkerError
from inference.worker.holdings import Holdings
from inference.worker.identity import locked_folder, server_folder
from inference.worker.kernels import KernelChoice, choose_kernel
from inference.worker.lifecycle import Worker
from inference.worker.market_client import MarketClient
from inference.worker.options import Options, parse_options
from inference.worker.progress import progress_bar
from inference.worker.relay_link import RelayLink

LIBRARIES = ("httpx", "httpcore", "websockets")
"""Their loggers tell every request; the owner of a machine wants to read what the worker does."""

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """The whole program; returns the exit code."""
    return run(parse_options(arguments))


def run(options: Options, choose: Callable[[str, int], KernelChoice] = choose_kernel) -> int:
    """Work until SIGINT or SIGTERM, with a terminal's or a service's log on standard error."""
    set_up_logging(options.log_level)
    try:
        with locked_folder(server_folder(options.state_dir, options.server)) as folder, logging_redirect_tqdm():
            kernel = choose(options.kernel, options.threads)
            if kernel.hint:
                logger.warning("%s", kernel.hint)
            asyncio.run(work(options, folder, kernel))
    except WorkerError as error:
        logger.error("%s", error)
        return 1
    logger.info("stopped")
    return 0


async def work(options: Options, folder: Path, kernel: KernelChoice) -> None:
    """One worker's life. Raises WorkerError when it cannot go on."""
    stop = asyncio.Event()
    holdings = Holdings()
    tls = None if options.ca is None else authorities(options.ca)
    with stopping_on_signals(stop):
        async with MarketClient(options.server, tls=tls) as market:
            link = RelayLink(
                options.server, options.name, kernel.kernel_class, holdings, find_relays=market.relays, tls=tls,
                rows_per_second=options.rows_per_second,
            )  # fmt: skip
            await Worker(options, folder, kernel, market, holdings, link, progress_bar).run(stop)


def authorities(path: Path) -> ssl.SSLContext:
    """TLS that trusts the certificate authorities in a file, and no others. Raises CertificatesUnusable."""
    try:
        return ssl.create_default_context(cafile=str(path))
    except OSError as error:  # ssl.SSLError is one
        raise CertificatesUnusable(f"cannot use the certificates in {path}: {error}") from error


def set_up_logging(level: str) -> None:
    """One line per message; debug also shows the libraries."""
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    if level != "debug":
        for name in LIBRARIES:
            logging.getLogger(name).setLevel(logging.WARNING)


@contextlib.contextmanager
def stopping_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """The first SIGINT or SIGTERM sets `stop`; the second ends the process at once."""
    loop = asyncio.get_running_loop()

    def on_signal(number: int, _stack: StackFrame | None) -> None:
        if stop.is_set():
            # Not sys.exit: a thread that computes, or a stuck call, must not keep the process.
            os._exit(130)
        logger.info("%s: stopping (again: at once)", signal.Signals(number).name)
        loop.call_soon_threadsafe(stop.set)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
