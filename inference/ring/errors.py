"""Errors of a ring: each with a stable code, told by stages to the coordinator and by the coordinator to its caller."""

from inference.errors import InferenceError


class RingError(InferenceError):
    """Base of what goes wrong in a ring."""

    code = "ring_error"


class BadStep(RingError):
    """Bytes that are no message of a ring, or a step that does not fit the stage that it reached."""

    code = "bad_step"


class UnknownRing(RingError):
    """A step of a ring that this stage has not opened, or no longer holds."""

    code = "unknown_ring"


class StageFull(RingError):
    """The stage serves as many rings as it may."""

    code = "stage_full"


class StageFailed(RingError):
    """A stage refused or failed; the message holds its own code and reason."""

    code = "stage_failed"


class NotAuthentic(RingError):
    """The other side of a connection does not know the stages' secret."""

    code = "not_authentic"


class LineBroken(RingError):
    """The connection to a stage ended, or nothing came from it in time."""

    code = "line_broken"


class RingIncomplete(RingError):
    """The stages that answer do not hold every layer of the model between them."""

    code = "ring_incomplete"
