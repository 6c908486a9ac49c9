"""inference/prompt_queue.py: order of prompts."""

from inference.generation import Generation, GenerationRequest
from inference.prompt_queue import PromptQueue
from tests.inference.models import demo_model


def waiting(name: str, *, order: float, position: int = 0) -> Generation:
    generation = Generation(GenerationRequest(name, (1, 2, 3)), lambda event: None, demo_model().vocabulary, 64)
    generation.order, generation.position = order, position
    return generation


def first_names(queue: PromptQueue, turns: int) -> list[str]:
    return [queue.in_order()[0].request_id for _ in range(turns)]


def test_turns_go_to_the_oldest_and_to_the_one_that_was_read_least() -> None:
    queue = PromptQueue()
    queue.add(waiting("document", order=1.0, position=500))
    queue.add(waiting("chat", order=2.0))

    assert first_names(queue, 4) == ["document", "chat", "document", "chat"]


def test_only_prompts_with_a_number_are_begun() -> None:
    queue = PromptQueue()
    begun, other = waiting("begun", order=1.0), waiting("other", order=2.0)
    begun.slot = 3
    queue.add(begun)
    queue.add(other)

    assert queue.begun == [begun]
    assert list(queue) == [begun, other]


def test_priority_counts_like_an_earlier_arrival() -> None:
    requests = [GenerationRequest(str(priority), (1,), priority=priority) for priority in (0, 2, -1)]
    generations = [Generation(one, lambda event: None, demo_model().vocabulary, 64) for one in requests]

    assert [one.request_id for one in sorted(generations, key=lambda one: one.order)] == ["2", "0", "-1"]
