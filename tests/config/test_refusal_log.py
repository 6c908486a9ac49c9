import logging
import sys
from typing import Any

import pytest

from config import settings
from config.refusal_log import RefusalsInOneLine


def record(name: str, level: int) -> logging.LogRecord:
    try:
        raise PermissionError("not yours")
    except PermissionError:
        return logging.LogRecord(name, level, __file__, 1, "refused", (), sys.exc_info())


@pytest.mark.parametrize(
    ("name", "level", "keeps"),
    [
        ("django.security.DisallowedHost", logging.ERROR, False),
        ("django.security.csrf", logging.WARNING, False),
        ("django.request", logging.WARNING, False),
        ("django.request", logging.ERROR, True),
        ("relay.connection", logging.WARNING, True),
    ],
)
def test_a_refusal_is_logged_without_a_traceback_and_a_defect_with_it(name: str, level: int, keeps: bool) -> None:
    made = record(name, level)

    is_logged = RefusalsInOneLine().filter(made)

    assert is_logged
    assert bool(made.exc_info) is keeps


def test_what_the_server_prints_goes_through_it() -> None:
    logging_settings: dict[str, Any] = settings.LOGGING

    assert logging_settings["handlers"]["console"]["filters"] == ["refusals"]
    assert logging_settings["filters"]["refusals"] == {"()": "config.refusal_log.RefusalsInOneLine"}
