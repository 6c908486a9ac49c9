"""config/watchdog.py: when a worker counts as deaf. (That it ends: tests/e2e/test_celery_workers.py.)"""

from config.watchdog import DEAF_SECONDS, Hearing


def test_messages_that_wait_beside_free_threads_make_a_worker_deaf() -> None:
    hearing = Hearing(now=0.0)

    assert not hearing.is_deaf(10.0, waiting=3, has_room=True)
    assert not hearing.is_deaf(10.0 + DEAF_SECONDS - 1, waiting=3, has_room=True)
    assert hearing.is_deaf(10.0 + DEAF_SECONDS, waiting=3, has_room=True)


def test_a_full_worker_is_busy_and_not_deaf() -> None:
    hearing = Hearing(now=0.0)
    hearing.is_deaf(0.0, waiting=3, has_room=True)

    assert not hearing.is_deaf(DEAF_SECONDS, waiting=3, has_room=False)
    assert not hearing.is_deaf(DEAF_SECONDS + 1, waiting=3, has_room=True)


def test_an_empty_queue_and_a_received_message_both_start_the_wait_anew() -> None:
    hearing = Hearing(now=0.0)
    hearing.is_deaf(0.0, waiting=1, has_room=True)
    assert not hearing.is_deaf(DEAF_SECONDS, waiting=0, has_room=True)

    hearing.is_deaf(DEAF_SECONDS, waiting=1, has_room=True)
    hearing.received(DEAF_SECONDS + 1)

    assert not hearing.is_deaf(2 * DEAF_SECONDS, waiting=1, has_room=True)
