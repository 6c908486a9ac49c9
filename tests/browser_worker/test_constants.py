"""The constants of the browser's frames are those of the relay."""

from frontend.browser_worker.constants import CONSTANTS, constants_js


def test_the_committed_constants_are_those_of_the_relay() -> None:
    assert CONSTANTS.read_text() == constants_js(), "run `python -m frontend.browser_worker.constants`"
