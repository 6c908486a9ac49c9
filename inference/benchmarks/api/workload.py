"""The requests of `bench api`, equal over HTTP and straight to the engine."""

from inference.sampling import SamplingParameters

# Greedy, and the model cannot end an answer: every one has exactly the tokens that were asked for.
SAMPLING = SamplingParameters(temperature=0.0, ignore_eos=True)
MODEL_NAME = "qwen35moe-demo"


def prompt(number: int) -> tuple[int, ...]:
    """Six tokens of the demo model's vocabulary, different for every sequence."""
    return tuple(20 + (number * 37 + step * 101) % 4000 for step in range(6))
