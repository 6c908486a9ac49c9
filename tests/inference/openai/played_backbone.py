"""A backbone played by the test: it takes what the API queues and writes tokens into the real Redis streams."""

from collections.abc import Callable, Sequence

import redis

from inference import backbone_status, jobs, token_stream
from inference.models import GenerationJob
from inference.token_stream import StreamedToken

BUILD = "0123456789abcdef0123456789abcdef"


def text_tokens(*texts: str, finish: str = "stop", attempt: int = 1, start: int = 0) -> list[StreamedToken]:
    """One token per text; the last one carries the finish ("": the answer stays open)."""
    last = start + len(texts) - 1
    return [
        StreamedToken(attempt, index, 300 + index, text, finish if index == last else "")
        for index, text in enumerate(texts, start)
    ]


class PlayedBackbone:
    """`script(job)` gives the tokens that are written the moment a job is queued."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url)
        self.script: Callable[[GenerationJob], Sequence[StreamedToken]] = lambda job: text_tokens("Hello", " world")
        self.queued: list[str] = []
        self.prompts: list[list[int]] = []
        self.samplings: list[dict[str, object]] = []
        self.come()

    def come(self) -> None:
        backbone_status.publish(self.client, "played", {"started": 1.0, "build": BUILD, "model": "qwen35moe-demo"})

    def leave(self) -> None:
        backbone_status.withdraw(self.client, "played")

    def enqueue(self, job_id: str, priority: int = 0) -> None:
        """Stands in for the Celery queue."""
        job = jobs.take_job(job_id, boot="played", alive=())
        assert job is not None
        self.queued.append(job_id)
        self.prompts.append(job.prompt_tokens)
        self.samplings.append(job.sampling)
        self.write(job_id, self.script(job))

    def write(self, job_id: str, tokens: Sequence[StreamedToken]) -> None:
        token_stream.append(self.client, [(job_id, token) for token in tokens])
        if tokens and tokens[-1].finish:
            job = GenerationJob.objects.get(pk=job_id)
            last = tokens[-1]
            jobs.finish_job(job, finish=last.finish, generated=last.index + (last.token >= 0), error=last.error)

    def is_cancelled(self, job_id: str) -> bool:
        return token_stream.is_cancelled(self.client, job_id)

    def close(self) -> None:
        self.client.close()
