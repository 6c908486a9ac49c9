"""Typed readers of environment variables: each error names the variable and what it may be."""

import os
from collections.abc import Mapping
from pathlib import Path


class EnvironmentValueError(ValueError):
    """A variable is set to something that cannot be read; the message names the variable."""


class Environment:
    """Reads variables from one mapping (`os.environ` unless a test passes its own)."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = os.environ if variables is None else variables

    def text(self, name: str, default: str = "") -> str:
        return self._variables.get(name, default)

    def path(self, name: str, default: Path) -> Path:
        value = self._variables.get(name)
        return Path(value).expanduser().resolve() if value else default

    def integer(self, name: str, default: int, *, minimum: int | None = None) -> int:
        """Raises EnvironmentValueError when the value is no whole number or below `minimum`."""
        value = self._variables.get(name)
        if value is None or value == "":
            return default
        try:
            number = int(value)
        except ValueError:
            raise EnvironmentValueError(f"{name} must be a whole number, not {value!r}") from None
        if minimum is not None and number < minimum:
            raise EnvironmentValueError(f"{name} must be at least {minimum}, not {number}")
        return number

    def seconds(self, name: str, default: float) -> float:
        """A positive number of seconds; raises EnvironmentValueError otherwise."""
        value = self._variables.get(name)
        if value is None or value == "":
            return default
        try:
            number = float(value)
        except ValueError:
            raise EnvironmentValueError(f"{name} must be a number of seconds, not {value!r}") from None
        if not 0 < number < float("inf"):
            raise EnvironmentValueError(f"{name} must be a positive number of seconds, not {value!r}")
        return number

    def flag(self, name: str, default: bool) -> bool:
        value = self._variables.get(name)
        if value is None or value == "":
            return default
        if value.lower() in {"1", "true", "yes", "on"}:
            return True
        if value.lower() in {"0", "false", "no", "off"}:
            return False
        raise EnvironmentValueError(f"{name} must be 1 or 0, not {value!r}")

    def words(self, name: str, default: list[str]) -> list[str]:
        """A comma-separated list without empty entries."""
        value = self._variables.get(name)
        return default if value is None else [word.strip() for word in value.split(",") if word.strip()]
