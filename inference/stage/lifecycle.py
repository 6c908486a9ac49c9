"""A stage that the market keeps busy: it registers as one, claims a run of units, downloads it, and takes steps through
the relay.

The life of a worker (`inference.worker.lifecycle`) with another role, another thing to open and another request to
answer. Knows nothing of rings: whoever calls says what opens a downloaded stage and answers its messages.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from tqdm.contrib.logging import logging_redirect_tqdm

from inference.errors import InferenceError
from inference.worker.errors import WorkerError
from inference.worker.holdings import Holding, Holdings
from inference.worker.identity import locked_folder, server_folder
from inference.worker.lifecycle import Worker
from inference.worker.market_client import MarketClient
from inference.worker.options import Options
from inference.worker.program import authorities, set_up_logging, stopping_on_signals
from inference.worker.progress import progress_bar
from inference.worker.relay_link import RelayLink
from inference.worker.serve import Answers, Job
from relay.codes import ErrorCode
from relay.errors import MessageError
from relay.frames import Frame, FrameType, Role
from relay.messages import error_frame, read_step, step_result_frame

logger = logging.getLogger(__name__)


class OpenStage(Protocol):
    """A stage that is open and answers messages of rings, one after another."""

    def answer(self, data: bytes, asker: int) -> bytes:
        """asker: the backbone's connection. May raise InferenceError."""
        ...

    def forget(self, asker: int | None) -> None:
        """This connection is gone, with its rings; None: all are."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class StageOpener:
    """How downloaded stages are opened here. open: of the file; raises InferenceError. types: it computes all."""

    kernel_class: str
    open: Callable[[Path], OpenStage]
    types: frozenset[str] | None = None


def run(options: Options, opener: StageOpener) -> int:
    """Work until SIGINT or SIGTERM; returns the exit code of the program, as `inference.worker.program.run`."""
    set_up_logging(options.log_level)
    try:
        folder = server_folder(options.state_dir / "stage", options.server)
        with locked_folder(folder), logging_redirect_tqdm():
            asyncio.run(work(options, folder, opener))
    except WorkerError as error:
        logger.error("%s", error)
        return 1
    logger.info("stopped")
    return 0


async def work(options: Options, folder: Path, opener: StageOpener, stop: asyncio.Event | None = None) -> None:
    """One stage's life, until a signal or `stop`. Raises WorkerError when it cannot go on."""
    ending = stop or asyncio.Event()
    holdings = Holdings()
    tls = None if options.ca is None else authorities(options.ca)
    with stopping_on_signals(ending):
        async with MarketClient(options.server, tls=tls, role="stage") as market:
            link = RelayLink(
                options.server, options.name, opener.kernel_class, holdings, find_relays=market.relays, tls=tls,
                role=Role.STAGE, answers=STAGE_ANSWERS, on_gone=forget,
            )  # fmt: skip
            await Worker(options, folder, opener, market, holdings, link, progress_bar).run(ending)


def answer_step(job: Job) -> Frame:
    """RESULT with the stage's answer, or ERROR with a stable code; never raises."""
    stage = cast(OpenStage, job.holding.kernel)
    try:
        _, message = read_step(job.frame)
        return step_result_frame(job.frame, stage.answer(bytes(message), job.frame.stream))
    except (MessageError, InferenceError) as error:
        return error_frame(job.frame, ErrorCode.BAD_BODY, str(error))
    except Exception:  # a bug, or no memory: this step fails, the stage goes on
        logger.exception("a step for %s failed", job.holding.claim)
        return error_frame(job.frame, ErrorCode.INTERNAL, "the stage could not compute this step")


def forget(holding: Holding, asker: int | None) -> None:
    cast(OpenStage, holding.kernel).forget(asker)


STAGE_ANSWERS: Answers = {FrameType.STEP: answer_step}
