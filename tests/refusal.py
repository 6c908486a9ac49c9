"""What a call refuses with, as a value: for tests whose point is that nothing is refused."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
E = TypeVar("E", bound=BaseException)


def refusal(error: type[E], call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> E | None:
    """The `error` that the call raises; None where it returns. Other errors go through."""
    try:
        call(*args, **kwargs)
    except error as raised:
        return raised
    return None
