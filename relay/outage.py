"""One outage, two lines in the log: when something stops answering, and when it answers again.

A store that is away is asked again and again, by every session and every timer, and each would say the same.
"""

import logging
import threading
from time import monotonic


class Outage:
    """What is out of reach, from the first failure to the next success. Any thread may call.

    name: begins the sentence, "the market" for instance. quiet_seconds: how long `is_fresh` is true after a failure.
    """

    def __init__(self, logger: logging.Logger, name: str, quiet_seconds: float = 0.0) -> None:
        self._logger = logger
        self._name = name
        self._quiet_seconds = quiet_seconds
        self._lock = threading.Lock()
        self._began = 0.0
        self._failed = 0.0
        self.failures = 0

    @property
    def is_fresh(self) -> bool:
        """Whether the last answer was a failure, a moment ago: asking again would only cost another wait."""
        with self._lock:
            return bool(self.failures) and monotonic() - self._failed < self._quiet_seconds

    def failed(self, error: object) -> None:
        """A warning for the first failure of an outage, nothing for the others."""
        with self._lock:
            self.failures += 1
            is_first, self._failed = self.failures == 1, monotonic()
            if is_first:
                self._began = self._failed
        if is_first:
            self._logger.warning("%s cannot be reached: %s", self._name, error)

    def answered(self) -> None:
        """Ends the outage, if there was one."""
        if not self.failures:
            return
        with self._lock:
            failures, self.failures = self.failures, 0
            seconds = monotonic() - self._began
        if failures:
            self._logger.warning("%s answers again after %.1f s and %d failures", self._name, seconds, failures)
