import json
import random

from inference.hostile import mutations


def test_the_same_seed_makes_the_same_bad_input_and_another_seed_other_input() -> None:
    sample = {"name": "phone", "budget_bytes": 1 << 20}

    first, again, other = (
        [mutations.odd_json(random.Random(f"{seed}/{number}"), sample) for number in range(200)] for seed in (1, 1, 2)
    )

    assert first == again
    assert first != other


def test_a_mutation_changes_nearly_every_sample_and_never_fails_on_an_empty_one() -> None:
    sample = bytes(range(64))

    changed = [mutations.mutated(random.Random(seed), sample) for seed in range(500)]

    assert sum(data != sample for data in changed) > 450
    assert all(isinstance(mutations.mutated(random.Random(seed), b""), bytes) for seed in range(100))


def test_odd_bodies_are_json_of_every_kind_and_no_json_too() -> None:
    kinds = set()
    for seed in range(1000):
        body = mutations.odd_json(random.Random(seed), {"model": "demo"})
        try:
            kinds.add(type(json.loads(body)).__name__)
        except RecursionError:
            kinds.add("nested")
        except ValueError:
            kinds.add("no JSON")

    assert kinds >= {"dict", "list", "str", "int", "float", "no JSON"}
