"""Typed readers of environment variables: each error names the variable and what it may be."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Everybody knows it: `config/checks.py` refuses it on a server that others may reach.
DEVELOPMENT_SECRET_KEY = "development-only-not-secret"
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")


class EnvironmentValueError(ValueError):
    """A variable is set to something that cannot be read; the message names the variable."""


@dataclass(frozen=True)
class Variable:
    """One row of the settings table: `docs/settings.md` lists them and a test compares."""

    name: str
    kind: str
    default: str
    meaning: str


class Environment:
    """Reads variables from one mapping (`os.environ` unless a test passes its own) and remembers what was asked for."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = os.environ if variables is None else variables
        self.table: list[Variable] = []

    def _read(self, name: str, kind: str, default: object, meaning: str) -> str:
        self.table.append(Variable(name, kind, str(default), meaning))
        return self._variables.get(name, "").strip()

    def text(self, name: str, default: str, meaning: str) -> str:
        return self._read(name, "text", default, meaning) or default

    def redis_url(self, name: str, meaning: str) -> str:
        """A Redis address, or empty; raises EnvironmentValueError, without the value: it may hold a password."""
        value = self.text(name, "", meaning)
        if value and not value.startswith(REDIS_SCHEMES):
            raise EnvironmentValueError(f"{name} must start with {', '.join(REDIS_SCHEMES)}")
        return value

    def path(self, name: str, default: Path, meaning: str) -> Path:
        value = self._read(name, "path", default, meaning)
        return Path(value).expanduser().resolve() if value else default

    def integer(self, name: str, default: int, meaning: str, *, minimum: int = 0) -> int:
        """Raises EnvironmentValueError when the value is no whole number or is below `minimum`."""
        value = self._read(name, "whole number", default, meaning)
        if not value:
            return default
        try:
            number = int(value)
        except ValueError:
            raise EnvironmentValueError(f"{name} must be a whole number, not {value!r}") from None
        if number < minimum:
            raise EnvironmentValueError(f"{name} must be at least {minimum}, not {number}")
        return number

    def seconds(self, name: str, default: float, meaning: str) -> float:
        """A positive number of seconds; raises EnvironmentValueError otherwise."""
        value = self._read(name, "seconds", default, meaning)
        if not value:
            return default
        try:
            number = float(value)
        except ValueError:
            raise EnvironmentValueError(f"{name} must be a number of seconds, not {value!r}") from None
        if not 0 < number < float("inf"):
            raise EnvironmentValueError(f"{name} must be a positive number of seconds, not {value!r}")
        return number

    def flag(self, name: str, default: bool, meaning: str) -> bool:
        value = self._read(name, "flag", int(default), meaning).lower()
        if not value:
            return default
        if value in {"1", "true", "yes", "on"}:
            return True
        if value in {"0", "false", "no", "off"}:
            return False
        raise EnvironmentValueError(f"{name} must be 1 or 0, not {value!r}")

    def words(self, name: str, default: list[str], meaning: str) -> list[str]:
        """A comma-separated list without empty entries."""
        value = self._read(name, "list", ",".join(default), meaning)
        return [word.strip() for word in value.split(",") if word.strip()] or default
