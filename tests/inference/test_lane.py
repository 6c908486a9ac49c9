"""A lane driven by hand, step by step, on the demo model."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from inference.generation import NO_TOKEN, Generation, GenerationRequest, TokenEvent
from inference.lane import Lane
from inference.llama import Batch, Context, ContextSettings, Vocabulary
from inference.sampling import SamplingParameters
from tests.inference.models import demo_model, tokens_of

SETTINGS = ContextSettings(sequence_tokens=256, sequences=4, batch_tokens=64, threads=1, outputs=4)
GREEDY = SamplingParameters(temperature=0.0, max_tokens=12)
ALICE, BOB, CAROL = (
    tokens_of(text) for text in ("Once upon a time there was", "My dear sister, I have", "The old man looked at")
)


@dataclass
class Listener:
    """Collects the events of one request."""

    generation: Generation
    events: list[TokenEvent] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.events if event.token != NO_TOKEN]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events)

    @property
    def finish(self) -> str | None:
        return self.events[-1].finish if self.events else None


class Driver:
    """A lane with its context, and requests by name."""

    def __init__(self, settings: ContextSettings = SETTINGS, vocabulary: Vocabulary | None = None) -> None:
        self.context = Context(demo_model(), settings)
        self.left: list[str] = []
        self.lane = Lane(self.context, on_left=lambda generation: self.left.append(generation.request_id))
        self.vocabulary = vocabulary or demo_model().vocabulary
        self.longest = settings.sequence_tokens

    def add(
        self,
        name: str,
        prompt: tuple[int, ...],
        sampling: SamplingParameters = GREEDY,
        resumed: tuple[int, ...] = (),
    ) -> Listener:
        events: list[TokenEvent] = []
        request = GenerationRequest(name, prompt, sampling, resumed)
        generation = Generation(request, events.append, self.vocabulary, self.longest)
        self.lane.add(generation)
        return Listener(generation, events)

    def run(self) -> None:
        while self.lane.step():
            pass


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.lane.abandon("cancelled")
    driver.context.close()


def plain_greedy(prompt: tuple[int, ...], count: int) -> list[int]:
    """The greedy continuation by a bare decode loop."""
    tokens: list[int] = []
    with Context(demo_model(), SETTINGS) as context:
        batch = Batch(64)
        feed, position = list(prompt), 0
        while len(tokens) < count:
            batch.size = len(feed)
            batch.tokens[: len(feed)] = feed
            batch.positions[: len(feed)] = np.arange(position, position + len(feed))
            batch.wants_logits[: len(feed)] = 0
            batch.wants_logits[len(feed) - 1] = 1
            assert context.decode(batch) == 0
            position += len(feed)
            feed = [int(context.logits(1)[0].argmax())]
            tokens += feed
    return tokens


def test_it_generates_what_a_bare_loop_generates(driver: Driver) -> None:
    alice = driver.add("alice", ALICE)

    driver.run()

    assert alice.tokens == plain_greedy(ALICE, 12)
    assert [event.index for event in alice.events] == list(range(12))
    assert alice.text == demo_model().vocabulary.detokenize(alice.tokens)
    assert [event.finish for event in alice.events] == [None] * 11 + ["length"]
    assert driver.left == ["alice"]


def test_an_idle_lane_has_nothing_to_do(driver: Driver) -> None:
    assert not driver.lane.step()
    assert driver.lane.size == 0


def test_requests_join_and_leave_between_steps(driver: Driver) -> None:
    alice = driver.add("alice", ALICE, replace(GREEDY, max_tokens=20))
    bob = driver.add("bob", BOB, replace(GREEDY, max_tokens=4))
    for _ in range(3):
        driver.lane.step()
    carol = driver.add("carol", CAROL, replace(GREEDY, max_tokens=3))
    driver.run()

    assert driver.left == ["bob", "carol", "alice"]
    assert [len(listener.tokens) for listener in (alice, bob, carol)] == [20, 4, 3]
    assert driver.lane.size == 0


def test_a_leaving_sequence_does_not_disturb_the_one_that_takes_its_number() -> None:
    def bob_s_tokens(alice_leaves_after: int) -> list[int]:
        driver = Driver()
        alice = driver.add("alice", ALICE, replace(GREEDY, max_tokens=30))
        bob = driver.add("bob", BOB, replace(GREEDY, max_tokens=30))
        for step in range(40):
            if step == alice_leaves_after:
                alice.generation.cancelled = True
            driver.lane.step()
        driver.context.close()
        return bob.tokens

    disturbed = bob_s_tokens(alice_leaves_after=5)

    # Only the first tokens are compared: batches of other sizes round differently, so the texts part in the end.
    assert disturbed[:12] == bob_s_tokens(alice_leaves_after=39)[:12]
    assert len(disturbed) == 30


def test_a_long_prompt_is_read_in_chunks_while_others_go_on() -> None:
    driver = Driver(replace(SETTINGS, batch_tokens=8))
    alice = driver.add("alice", ALICE, replace(GREEDY, max_tokens=50))
    driver.lane.step()
    seen = len(alice.tokens)
    bob = driver.add("bob", (BOB * 9)[:50])

    steps = 0
    while not bob.tokens:
        driver.lane.step()
        steps += 1

    assert steps == 7  # 50 tokens in chunks of 8
    assert len(alice.tokens) - seen == 7
    assert bob.tokens[0] == plain_greedy((BOB * 9)[:50], 1)[0]
    driver.lane.abandon("cancelled")
    driver.context.close()


def test_short_prompts_are_read_together_while_one_number_stays_free(driver: Driver) -> None:
    listeners = [driver.add(str(number), ALICE) for number in range(4)]

    driver.lane.step()
    first = [len(listener.tokens) for listener in listeners]
    driver.lane.step()

    assert first == [2, 2, 2, 0]
    assert driver.lane.counts.decodes == 4
    assert [len(listener.tokens) for listener in listeners] == [3, 3, 3, 2]


def test_a_short_prompt_passes_a_long_one_that_goes_on() -> None:
    driver = Driver(replace(SETTINGS, batch_tokens=8))
    document = driver.add("document", (BOB * 9)[:60])
    driver.lane.step()
    chat = driver.add("chat", CAROL)

    steps = 0
    while not document.tokens:
        driver.lane.step()
        steps += 1

    assert len(chat.tokens) >= steps - 2
    assert 7 <= steps <= 9  # 52 tokens left in chunks of 8, a turn or two for the chat
    assert document.tokens[0] == plain_greedy((BOB * 9)[:60], 1)[0]
    driver.lane.abandon("cancelled")
    driver.context.close()


def test_a_long_prompt_is_not_starved_by_short_ones() -> None:
    driver = Driver(replace(SETTINGS, batch_tokens=8))
    document = driver.add("document", (BOB * 9)[:60])

    steps = 0
    while not document.tokens:
        if driver.lane.size < 4:
            driver.add(f"chat {steps}", CAROL, replace(GREEDY, max_tokens=1))
        driver.lane.step()
        steps += 1

    assert steps <= 16  # every second chunk at least
    driver.lane.abandon("cancelled")
    driver.context.close()


def test_a_step_reads_few_prompt_tokens_while_others_generate() -> None:
    driver = Driver()
    lane = Lane(driver.context, prefill_tokens=10)
    driver.lane = lane
    alice = driver.add("alice", ALICE, replace(GREEDY, max_tokens=30))
    lane.step()
    before = lane.counts.prompt_tokens
    driver.add("bob", (BOB * 9)[:40])

    read = []
    for _ in range(4):
        lane.step()
        read.append(lane.counts.prompt_tokens - before)

    assert read == [10, 20, 30, 40]
    assert len(alice.tokens) == 6
    lane.abandon("cancelled")
    driver.context.close()


def keeping(sequences: int = 4, seats: int = 2) -> Driver:
    """A lane that keeps states beside its seats."""
    driver = Driver(replace(SETTINGS, sequences=sequences, outputs=sequences))
    driver.lane = Lane(driver.context, seats=seats)
    return driver


def test_the_next_turn_of_a_chat_goes_on_from_the_kept_state() -> None:
    driver = keeping()
    first = driver.add("first", BOB * 6)
    driver.run()
    turn = BOB * 6 + tuple(first.tokens) + CAROL

    second = driver.add("second", turn)
    driver.run()

    assert driver.lane.counts.reused_tokens == len(BOB * 6) + 11  # the last token of the answer was never read
    assert driver.lane.counts.prompt_tokens == len(BOB * 6) + 1 + len(CAROL)
    assert second.tokens[0] == plain_greedy(turn, 1)[0]
    driver.context.close()


def test_a_common_beginning_is_kept_when_it_is_seen_twice() -> None:
    driver = keeping()
    system = BOB * 6
    for name, tail in (("first", ALICE), ("second", CAROL), ("third", ALICE + CAROL)):
        driver.add(name, system + tail, replace(GREEDY, max_tokens=2))
        driver.run()

    fourth = driver.add("fourth", system + tokens_of("Gentlemen of the Senate"))
    driver.run()

    assert driver.lane.reusable(np.array(system + CAROL, np.int32)) >= len(system)
    assert driver.lane.counts.reused_tokens >= 2 * len(system)
    assert fourth.tokens[0] == plain_greedy(system + tokens_of("Gentlemen of the Senate"), 1)[0]
    driver.context.close()


def test_a_kept_state_serves_only_prompts_that_go_on_from_its_very_end() -> None:
    driver = keeping()
    driver.add("first", BOB * 6)
    driver.run()

    other = driver.add("other", (BOB * 6)[:-1])
    driver.run()

    assert driver.lane.counts.reused_tokens == 0
    assert other.tokens[0] == plain_greedy((BOB * 6)[:-1], 1)[0]
    driver.context.close()


def test_the_state_used_least_recently_is_given_up_first() -> None:
    driver = keeping(sequences=3, seats=1)
    alice, bob, carol = (name * 6 for name in (ALICE, BOB, CAROL))
    for prompt in (alice, bob):
        driver.add("first", prompt, replace(GREEDY, max_tokens=1))
        driver.run()
    driver.add("again", alice + BOB, replace(GREEDY, max_tokens=1))
    driver.run()

    kept = [driver.lane.reusable(np.array(prompt + CAROL, np.int32)) for prompt in (alice, bob, carol)]

    assert kept == [len(alice), 0, 0]
    driver.context.close()


def test_a_cancelled_request_leaves_at_the_next_boundary(driver: Driver) -> None:
    alice, bob = driver.add("alice", ALICE), driver.add("bob", BOB)
    driver.lane.step()
    waiting = driver.add("carol", CAROL)
    alice.generation.cancelled = True
    waiting.generation.cancelled = True

    driver.run()

    assert alice.finish == "cancelled"
    assert len(alice.tokens) == 2
    assert (waiting.finish, waiting.tokens) == ("cancelled", [])
    assert (bob.finish, len(bob.tokens)) == ("length", 12)


def test_a_request_can_be_cancelled_in_the_middle_of_its_prompt() -> None:
    driver = Driver(replace(SETTINGS, batch_tokens=8))
    bob = driver.add("bob", (BOB * 9)[:50])
    driver.lane.step()
    bob.generation.cancelled = True
    alice = driver.add("alice", ALICE)

    driver.run()

    assert (bob.finish, bob.tokens) == ("cancelled", [])
    assert alice.tokens == plain_greedy(ALICE, 12)
    driver.context.close()


def test_it_stops_at_a_stop_string(driver: Driver) -> None:
    whole = demo_model().vocabulary.detokenize(plain_greedy(ALICE, 12))
    stop = whole[len(whole) // 2 :][:4]

    alice = driver.add("alice", ALICE, replace(GREEDY, stop=(stop,)))
    driver.run()

    assert alice.finish == "stop"
    assert alice.text == whole[: whole.index(stop)]


def test_it_stops_at_an_end_token_unless_told_otherwise() -> None:
    third = plain_greedy(ALICE, 3)[2]
    vocabulary = Vocabulary(demo_model().vocabulary.pointer)
    vocabulary.__dict__["end_tokens"] = frozenset({third})
    driver = Driver(vocabulary=vocabulary)

    alice = driver.add("alice", ALICE)
    driver.run()
    bob = driver.add("bob", ALICE, replace(GREEDY, ignore_eos=True))
    driver.run()

    assert (alice.finish, len(alice.tokens), alice.events[-1].text) == ("stop", 3, "")
    assert (bob.finish, len(bob.tokens)) == ("length", 12)
    assert third not in bob.tokens
    driver.context.close()


def test_it_ends_at_the_end_of_the_context() -> None:
    driver = Driver(replace(SETTINGS, sequence_tokens=16))

    alice = driver.add("alice", ALICE, replace(GREEDY, max_tokens=1000, ignore_eos=True))
    driver.run()

    assert alice.finish == "length"
    assert len(ALICE) + len(alice.tokens) == 16
    driver.context.close()


def test_resumed_tokens_are_read_and_the_answer_continues_at_the_next_index(driver: Driver) -> None:
    first = tuple(plain_greedy(ALICE, 5))
    expected = plain_greedy(ALICE + first, 7)

    alice = driver.add("alice", ALICE, GREEDY, resumed=first)
    driver.run()

    assert alice.tokens == expected
    assert [event.index for event in alice.events] == list(range(5, 12))


def test_resumed_tokens_that_are_the_whole_answer_only_end_it(driver: Driver) -> None:
    alice = driver.add("alice", ALICE, GREEDY, resumed=tuple(plain_greedy(ALICE, 12)))

    driver.run()

    assert alice.events == [TokenEvent(12, NO_TOKEN, "", "length")]
    assert driver.lane.counts.decodes == 0


def test_it_reports_log_probabilities_when_asked(driver: Driver) -> None:
    alice = driver.add("alice", ALICE, replace(GREEDY, logprobs=3, max_tokens=4))
    bob = driver.add("bob", BOB)

    driver.run()

    for event in alice.events:
        assert len(event.top_logprobs) == 3
        assert event.top_logprobs[0][0] == event.token  # greedy: the likeliest
        assert event.logprob == pytest.approx(event.top_logprobs[0][2])
    assert all(event.logprob is None for event in bob.events)


def test_a_failed_decode_ends_its_sequences_and_the_lane_lives_on() -> None:
    driver = Driver()
    driver.longest = 10_000  # the lane is told that the context is longer than it is
    alice = driver.add("alice", ALICE, replace(GREEDY, max_tokens=2000, ignore_eos=True))
    bob = driver.add("bob", BOB, replace(GREEDY, max_tokens=2000, ignore_eos=True))

    driver.run()
    carol = driver.add("carol", CAROL)
    driver.run()

    assert (alice.finish, bob.finish) == ("error", "error")
    assert "no room" in alice.events[-1].error
    assert driver.lane.counts.failed_decodes >= 1
    assert carol.tokens == plain_greedy(CAROL, 12)
    driver.context.close()


def test_a_failed_prompt_ends_only_its_own_request() -> None:
    driver = Driver(replace(SETTINGS, batch_tokens=64))
    driver.longest = 10_000
    alice = driver.add("alice", ALICE, replace(GREEDY, max_tokens=30))
    bob = driver.add("bob", BOB * 200)

    driver.run()

    assert (bob.finish, bob.tokens) == ("error", [])
    assert (alice.finish, len(alice.tokens)) == ("length", 30)
    driver.context.close()


def test_abandoning_ends_everything_and_leaves_a_clean_context(driver: Driver) -> None:
    alice, bob = driver.add("alice", ALICE), driver.add("bob", BOB)
    driver.lane.step()

    driver.lane.abandon("error", "told to")
    carol = driver.add("carol", CAROL)
    driver.run()

    assert (alice.finish, bob.finish, bob.events[-1].error) == ("error", "error", "told to")
    assert carol.tokens == plain_greedy(CAROL, 12)
