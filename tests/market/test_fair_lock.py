"""market/fair_lock.py."""

import threading
import time

import pytest

from market.fair_lock import FairLock


def test_it_serves_in_the_order_of_arrival() -> None:
    lock, order = FairLock(), list[int]()
    assert lock.acquire(1)

    def wait(number: int) -> None:
        assert lock.acquire(10)
        order.append(number)
        lock.release()

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        time.sleep(0.02)
    lock.release()
    for thread in threads:
        thread.join(10)

    assert order == [0, 1, 2, 3, 4]


def test_its_owner_may_take_it_again() -> None:
    lock = FairLock()

    assert lock.acquire(1)
    assert lock.acquire(1)
    lock.release()
    taken = []
    thread = threading.Thread(target=lambda: taken.append(lock.acquire(0.01)))
    thread.start()
    thread.join(10)

    assert taken == [False]
    lock.release()
    assert lock.acquire(1)


def test_one_that_gave_up_is_not_served_later() -> None:
    lock, served = FairLock(), list[str]()
    assert lock.acquire(1)

    def impatient() -> None:
        served.append("impatient" if lock.acquire(0.01) else "gave up")

    def patient() -> None:
        assert lock.acquire(10)
        served.append("patient")
        lock.release()

    threads = [threading.Thread(target=impatient), threading.Thread(target=patient)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    lock.release()
    for thread in threads:
        thread.join(10)

    assert served == ["gave up", "patient"]


def test_only_its_owner_releases_it() -> None:
    with pytest.raises(RuntimeError, match="owner"):
        FairLock().release()
