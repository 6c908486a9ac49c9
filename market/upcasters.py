"""From older bodies of events to newer ones, one pure function per step. See docs/events.md, "Changing an event"."""

from collections.abc import Callable
from typing import Any

Body = dict[str, Any]


def upcast_build_published_1_to_2(body: Body) -> Body:
    """Version 1 knew experts only."""
    return {**body, "build": {**body["build"], "kind": "experts"}}


def upcast_node_registered_1_to_2(body: Body) -> Body:
    """Every device was a worker."""
    return {**body, "role": "worker"}


def upcast_work_credited_1_to_2(body: Body) -> Body:
    """Version 1 knew the rows per layer only, and not when it was written: its window's end is the best we know."""
    return {**body, "counted_by_claim": False, "at": body["window_end"]}


def upcast_node_token_rotated_1_to_2(body: Body) -> Body:
    """Only owners could rotate a token, and nobody was asked why."""
    return {**body, "by": "owner", "reason": ""}


def upcast_node_reinstated_1_to_2(body: Body) -> Body:
    """Nobody was asked why."""
    return {**body, "reason": ""}


def upcast_node_leaving_1_to_2(body: Body) -> Body:
    """Only owners could announce a leave."""
    return {**body, "by": "owner"}


def upcast_policy_changed_1_to_2(body: Body) -> Body:
    """Version 1 knew neither targets by demand nor a stand-by reward: both were off."""
    return {**body, "target_bytes_percent": 0, "standby_percent": 0}


def upcast_node_audited_1_to_2(body: Body) -> Body:
    """Backbones reported devices, whatever program computed there."""
    return {**body, "kernel_class": ""}


# (name, old version) -> function from a body of that version to a body of the next one.
UPCASTERS: dict[tuple[str, int], Callable[[Body], Body]] = {
    ("build-published", 1): upcast_build_published_1_to_2,
    ("node-registered", 1): upcast_node_registered_1_to_2,
    ("policy-changed", 1): upcast_policy_changed_1_to_2,
    ("work-credited", 1): upcast_work_credited_1_to_2,
    ("node-token-rotated", 1): upcast_node_token_rotated_1_to_2,
    ("node-leaving", 1): upcast_node_leaving_1_to_2,
    ("node-audited", 1): upcast_node_audited_1_to_2,
    ("node-reinstated", 1): upcast_node_reinstated_1_to_2,
}
