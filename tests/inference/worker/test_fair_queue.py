"""inference/worker/fair_queue.py: backbones take turns, counted in rows."""

import threading

from inference.worker.fair_queue import FairQueue

ALICE, BOB = 1, 2


def taken(queue: FairQueue[str], count: int) -> list[str]:
    found = [queue.get() for _ in range(count)]
    return [one for one in found if one is not None]


def test_one_owner_is_served_in_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in "abc":
        queue.put(ALICE, 5, name)

    assert taken(queue, 3) == ["a", "b", "c"]


def test_an_owner_that_asks_for_much_does_not_push_out_one_that_asks_for_little() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(10):
        queue.put(ALICE, 10, f"alice {number}")
    queue.put(BOB, 10, "bob 0")
    queue.put(BOB, 10, "bob 1")

    order = taken(queue, 12)

    assert order.index("bob 0") <= 2
    assert order.index("bob 1") <= 4


def test_turns_are_counted_in_rows() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(4):
        queue.put(ALICE, 40, f"alice {number}")
    for number in range(16):
        queue.put(BOB, 10, f"bob {number}")

    first = taken(queue, 10)

    rows = {
        name: sum(40 if name == "alice" else 10 for one in first if one.startswith(name)) for name in ("alice", "bob")
    }
    assert abs(rows["alice"] - rows["bob"]) <= 40


def test_who_was_away_has_saved_nothing_up() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(20):
        queue.put(ALICE, 10, f"alice {number}")
    taken(queue, 10)
    for number in range(10):
        queue.put(BOB, 10, f"bob {number}")

    next_ten = taken(queue, 10)

    assert 4 <= sum(one.startswith("bob") for one in next_ten) <= 6


def test_what_comes_afterwards_waits_for_the_requests_before_it_only() -> None:
    queue: FairQueue[str] = FairQueue()
    done: list[str] = []
    queue.put(ALICE, 1, "before")
    queue.afterwards(lambda: done.append("closed"))
    queue.put(ALICE, 1, "after")

    first, then = queue.get(), list(done)
    second = queue.get()

    assert (first, then, second, done) == ("before", [], "after", ["closed"])


def test_a_closed_queue_ends_its_taker_after_what_waits() -> None:
    queue: FairQueue[str] = FairQueue()
    found: list[str | None] = []
    thread = threading.Thread(target=lambda: found.extend((queue.get(), queue.get())))
    thread.start()

    queue.put(ALICE, 1, "last")
    queue.close()
    thread.join(5)

    assert found == ["last", None]
