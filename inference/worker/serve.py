"""Requests from the relay: check, compute, answer. Knows frames, holdings and kernels; nothing of money or HTTP.

The event loop receives and sends. One thread computes, one request after another, backbones in turn: the kernel spreads
over the cores itself, and all rows of a request must be computed in one call (`inference.kernel`). What reaches the
thread was checked against the lease; sizes and expert numbers are checked before anything is computed.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol, cast

import numpy as np

from inference.errors import InferenceError
from inference.kernel import ExpertKernel
from inference.rows import partial_sums
from inference.worker.fair_queue import FairQueue
from inference.worker.holdings import Holding, Holdings
from inference.worker.row_budget import RowBudget
from relay.codes import ErrorCode
from relay.errors import MessageError
from relay.frames import Frame, FrameType, ResultDtype
from relay.messages import error_frame, read_dispatch, read_lease, result_frame

QUEUE_LIMIT = 256
"""Requests that may wait. A backbone lane waits for one layer before it asks for the next: more means we are slow."""
RESULT_LIMIT_BYTES = 64 << 20

logger = logging.getLogger(__name__)


class Outlet(Protocol):
    """Where answers go; called in the event loop's thread."""

    def send(self, frame: Frame) -> None: ...

    def consumed(self, frame: Frame) -> None:
        """The request's bytes are no longer held here, so its sender may send as many more."""
        ...


class Job:
    """One accepted request on its way through the queue. Cancelling is a flag, because a queue cannot be searched.

    `abandoned`: the connection on which it came is gone, so there is nobody to tell anything.
    """

    __slots__ = ("abandoned", "cancelled", "frame", "holding")

    def __init__(self, frame: Frame, holding: Holding) -> None:
        self.frame = frame
        self.holding = holding
        self.cancelled = False
        self.abandoned = False


class Answer(NamedTuple):
    """`reply` is None for a cancelled request."""

    job: Job
    reply: Frame | None


Answers = Mapping[FrameType, Callable[[Job], Frame]]
OnGone = Callable[[Holding, int | None], None]


def rows_of(frame: Frame) -> int:
    """(row, expert) pairs of a request or its answer; of a step, which has no pairs to speak of, its rows."""
    return max(frame.rows, frame.pairs)


class Refused(Exception):
    """A request that is not computed; `code` goes into the ERROR frame."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Counters:
    """What happened to requests so far."""

    def __init__(self) -> None:
        self.answered = self.rows = self.refused = self.cancelled = 0


class ExpertService:
    """Answers DISPATCH and CHALLENGE out of `holdings`, honours CANCEL. Made, used and closed in one event loop.

    budget: how many rows it may compute in a second; None: as many as it can. answers: what computes a request of each
    kind, for those who hold something else than experts. on_gone: told in the computing thread, of each holding, that a
    backbone's stream is gone, None: all are, for those who keep something for it.
    """

    def __init__(
        self,
        holdings: Holdings,
        outlet: Outlet,
        queue_limit: int = QUEUE_LIMIT,
        *,
        budget: RowBudget | None = None,
        answers: Answers | None = None,
        on_gone: OnGone | None = None,
    ) -> None:
        self.counters = Counters()
        self._holdings = holdings
        self._outlet = outlet
        self._queue_limit = queue_limit
        self._budget = budget
        self._on_gone = on_gone
        self._answers_by_kind = EXPERT_ANSWERS if answers is None else answers
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[tuple[int, int], Job] = {}
        self._unfinished = 0
        self._queue: FairQueue[Job] = FairQueue()
        self._answers: deque[Answer] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._compute_all, name="experts", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Requests that were accepted and not answered yet."""
        return self._unfinished

    def receive(self, frame: Frame) -> None:
        """Take one whole frame from the relay."""
        if frame.type is FrameType.CANCEL:
            self._cancel(frame)
        elif frame.type in self._answers_by_kind:
            try:
                self._accept(frame)
            except Refused as refusal:
                self._refuse(frame, refusal)

    def drop(self, holding: Holding) -> None:
        """Stop answering for a slice; what is queued for it is still computed, then its kernel is closed."""
        self._holdings.remove(holding.claim.claim_id)
        self._queue.afterwards(holding.kernel.close)

    def abandon_all(self) -> None:
        """The connection is gone: forget its requests. Numbers may come again on the next one and mean others."""
        for job in self._jobs.values():
            job.cancelled = job.abandoned = True
        self._jobs.clear()
        self._gone(None)

    async def finish(self, timeout_seconds: float) -> bool:
        """Wait until nothing is queued; False when that takes longer than the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """End the computing thread after what it computes now; everything else in the queue is dropped."""
        self.abandon_all()
        self._queue.close()

    # --- event loop ---------------------------------------------------------------------------------------------------
    def _accept(self, frame: Frame) -> None:
        try:
            lease = read_lease(frame)
        except MessageError as error:
            raise Refused(ErrorCode.BAD_BODY, str(error)) from error
        holding = self._holdings.find(lease.claim_id)
        if holding is None or holding.claim.fence != lease.fence:
            raise Refused(ErrorCode.STALE_FENCE, f"claim {lease.claim_id} with fence {lease.fence} is not held here")
        if holding.claim.layer != frame.layer:
            raise Refused(ErrorCode.UNKNOWN_EXPERT, f"claim {lease.claim_id} is not about layer {frame.layer}")
        if self._unfinished >= self._queue_limit:
            raise Refused(ErrorCode.OVERLOADED, f"{self._unfinished} requests are waiting here")
        key = (frame.stream, frame.request)
        if key in self._jobs:
            raise Refused(ErrorCode.BAD_BODY, f"request {frame.request} is already being computed")
        job = self._jobs[key] = Job(frame, holding)
        self._unfinished += 1
        self._idle.clear()
        self._queue.put(frame.stream, rows_of(frame), job)

    def _refuse(self, frame: Frame, refusal: Refused) -> None:
        self.counters.refused += 1
        self._outlet.consumed(frame)
        self._outlet.send(error_frame(frame, refusal.code, str(refusal)))

    def _cancel(self, frame: Frame) -> None:
        """Request 0 means everything of the stream: its backbone is gone."""
        if frame.request:
            job = self._jobs.get((frame.stream, frame.request))
            if job is not None:
                job.cancelled = True
        else:
            for (stream, _), job in self._jobs.items():
                if stream == frame.stream:
                    job.cancelled = True
            self._gone(frame.stream)

    def _gone(self, stream: int | None) -> None:
        if self._on_gone is not None:
            for holding in self._holdings:
                self._queue.afterwards(partial(self._on_gone, holding, stream))

    def _deliver(self) -> None:
        """Send all answers that the thread has put down; it schedules one call per answer, so none is left behind."""
        while self._answers:
            job, reply = self._answers.popleft()
            self._unfinished -= 1
            if job.abandoned:
                self.counters.cancelled += 1
                continue
            del self._jobs[job.frame.stream, job.frame.request]
            self._outlet.consumed(job.frame)
            if reply is None or job.cancelled:
                self.counters.cancelled += 1
            else:
                self._count(reply)
                self._outlet.send(reply)
        if not self._unfinished:
            self._idle.set()

    def _count(self, reply: Frame) -> None:
        if reply.type is FrameType.RESULT:
            self.counters.answered += 1
            self.counters.rows += rows_of(reply)
        else:
            self.counters.refused += 1

    # --- computing thread ---------------------------------------------------------------------------------------------
    def _compute_all(self) -> None:
        while (task := self._queue.get()) is not None:
            reply = None if task.cancelled else self._answers_by_kind[task.frame.type](task)
            if self._budget is not None and reply is not None:
                self._budget.spend(rows_of(task.frame))
            self._answers.append(Answer(task, reply))
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop is closed: nobody is there to answer to
                return


def answer(job: Job) -> Frame:
    """RESULT, or ERROR with a stable code; never raises."""
    try:
        return result_frame(job.frame, compute(job.frame, job.holding))
    except Refused as refusal:
        return error_frame(job.frame, refusal.code, str(refusal))
    except (MessageError, InferenceError) as error:
        return error_frame(job.frame, ErrorCode.BAD_BODY, str(error))
    except Exception:  # a bug, or no memory: this request fails, the worker goes on
        logger.exception("a request for %s failed", job.holding.claim)
        return error_frame(job.frame, ErrorCode.INTERNAL, "the worker could not compute this request")


def compute(frame: Frame, holding: Holding) -> np.ndarray:
    """The rows of a request through the kernel: (pairs, n_embd) float32, or (rows, n_embd) partial sums where they are
    asked for. Raises Refused, MessageError, RowsError."""
    kernel = cast(ExpertKernel, holding.kernel)
    if frame.pairs * kernel.n_embd * 4 > RESULT_LIMIT_BYTES:
        raise Refused(ErrorCode.BAD_BODY, f"{frame.pairs} pairs at once are too many")
    body = read_dispatch(frame)
    experts = body.pairs[:, 1].astype(np.int32)
    if int(experts.min()) < kernel.first or int(experts.max()) >= kernel.last:
        raise Refused(ErrorCode.UNKNOWN_EXPERT, f"experts outside {kernel.first}-{kernel.last - 1} were asked for")
    values = kernel.compute(body.rows[body.pairs[:, 0]], experts)
    if body.weights is None:
        return values
    kind = np.float16 if frame.result_dtype == ResultDtype.PARTIAL_F16 else np.float32
    return partial_sums(values, body.pairs[:, 0], body.weights, frame.rows, kind)


EXPERT_ANSWERS: Answers = {FrameType.DISPATCH: answer, FrameType.CHALLENGE: answer}
