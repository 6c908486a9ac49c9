"""Findings on their way to the market."""

import threading
from collections import Counter

from inference.audit import Finding, NodeClass
from inference.bookkeeper import NotAcknowledged
from inference.findings import FindingReporter

FINDING = Finding(NodeClass("mallory", "ggml"), 3, 8, 8, 1.0, used=False, rule="bits")


def test_a_failed_node_is_banned_at_once_and_the_market_is_told_until_it_hears() -> None:
    banned: list[str] = []
    told = threading.Event()
    attempts: list[Finding] = []

    def tell(finding: Finding) -> None:
        attempts.append(finding)
        if len(attempts) == 1:
            raise NotAcknowledged("busy")
        told.set()

    reporter = FindingReporter(banned.append, tell)
    reporter.start()

    reporter.report(FINDING)

    assert banned == ["mallory"]
    assert told.wait(10)
    reporter.stop()
    assert attempts == [FINDING, FINDING]


def test_passes_are_told_window_by_window_and_once_more_at_the_end() -> None:
    alice, bob = NodeClass("alice", "numpy"), NodeClass("bob", "numpy")
    counted = [Counter({alice: 3}), Counter({alice: 1, bob: 2})]
    told: list[tuple[NodeClass, int, int]] = []
    reporter = FindingReporter(
        lambda node: None,
        lambda finding: None,
        take_passes=lambda: counted.pop(0),
        tell_passes=lambda who, count, window: told.append((who, count, window)),
        window_seconds=3600,
    )

    reporter.start()
    reporter.stop()
    again = FindingReporter(
        lambda node: None,
        lambda finding: None,
        take_passes=lambda: counted.pop(0),
        tell_passes=lambda who, count, window: told.append((who, count, window)),
        window_seconds=3600,
    )
    again.start()
    again.stop()

    assert told == [(alice, 3, 0), (alice, 1, 0), (bob, 2, 0)]


def test_a_market_that_fails_otherwise_does_not_end_the_reporter() -> None:
    heard = threading.Event()

    def tell(finding: Finding) -> None:
        if finding.layer == 0:
            raise ValueError("a bug")
        heard.set()

    reporter = FindingReporter(lambda node: None, tell)
    reporter.start()

    reporter.report(Finding(NodeClass("mallory", "ggml"), 0, 8, 8, 1.0, used=False, rule="bits"))
    reporter.report(FINDING)

    assert heard.wait(10)
    reporter.stop()
