"""Every error that the worker raises on purpose; `lifecycle.py` turns each into one readable line."""

from inference.errors import InferenceError


class WorkerError(InferenceError):
    """Base of the worker's errors. `fatal`: trying again cannot help, so the program ends with exit code 1."""

    code = "worker_error"
    fatal = False


class StateUnusable(WorkerError):
    """The state folder cannot be read or written, or another worker uses it."""

    code = "state_unusable"
    fatal = True


class CertificatesUnusable(WorkerError):
    """The file given with --ca cannot be read, or holds no certificates."""

    code = "certificates_unusable"
    fatal = True


class KernelUnavailable(WorkerError):
    """The chosen kernel cannot run on this machine."""

    code = "kernel_unavailable"
    fatal = True


class ServerUnreachable(WorkerError):
    """No answer from the server: down, wrong address, a broken line, or it answered with 5xx several times."""

    code = "server_unreachable"


class ServerRefused(WorkerError):
    """The server answered with an error of its own; `code` and the text are the server's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class NotAccepted(WorkerError):
    """The server does not register this worker as it presents itself."""

    code = "not_accepted"
    fatal = True


class UnknownToken(ServerRefused):
    """The server does not know this node's token (any more)."""


class RelayRefused(WorkerError):
    """The relay ended the session for good; `code` is the relay's (docs/protocol.md)."""

    def __init__(self, code: str, message: str, *, fatal: bool) -> None:
        super().__init__(message)
        self.code = code
        self.fatal = fatal


class BadAnswer(WorkerError):
    """The server's answer is not what this version of the worker understands."""

    code = "bad_answer"


class DownloadFailed(WorkerError):
    """A piece of a slice did not arrive whole and right after several tries."""

    code = "download_failed"


class NoSpace(WorkerError):
    """The disk has no room for a slice."""

    code = "no_space"


class BudgetTooSmall(WorkerError):
    """The memory lent is less than one expert."""

    code = "budget_too_small"
    fatal = True
