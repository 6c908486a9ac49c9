"""Two backbone processes over three workers: both make progress, and under equal load they share the swarm."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.live_server import MODEL, LiveServer, live_server

pytestmark = pytest.mark.e2e

READERS, TOKENS = 12, 40


def test_two_backbones_share_three_workers(tmp_path: Path) -> None:
    arguments = ("--backbones", "2", "--workers", "3")
    with live_server(tmp_path, *arguments, BACKBONE_SEQUENCES="4", BACKBONE_LANES="1", HOLD_SECONDS="1") as server:
        server.wait_for(lambda: both_use_all(server), 90, "both backbones use every worker")
        before = rows_by_backbone(server)

        ends = ask_together(server)

        server.wait_for(lambda: generated(server) >= READERS * TOKENS, 30, "the last figures are there")
        used = {boot: rows - before[boot] for boot, rows in rows_by_backbone(server).items()}
        assert set(server.run.pids) >= {"backbone", "backbone-2"}
        assert ends == ["length"] * READERS
        assert min(used.values()) >= 0.4 * sum(used.values()), used


def both_use_all(server: LiveServer) -> bool:
    backbones = server.stats()["backbones"]
    return len(backbones) == 2 and all(each["sessions"] == 3 and each["replicas"] >= 8 for each in backbones)


def rows_by_backbone(server: LiveServer) -> dict[str, int]:
    """Boot -> rows that workers computed for it."""
    return {each["boot"]: each["rows"].get("remote", 0) for each in server.stats()["backbones"]}


def generated(server: LiveServer) -> int:
    found: int = server.stats()["engine"]["tokens_generated"]
    return found


def ask_together(server: LiveServer) -> list[Any]:
    """All readers at once; how their answers ended."""
    ends: list[Any] = [None] * READERS
    client = server.client(timeout=120)

    def ask(number: int) -> None:
        answer = client.completions.create(
            model=MODEL, prompt="Once upon a time", max_tokens=TOKENS, seed=number, extra_body={"ignore_eos": True}
        )
        ends[number] = answer.choices[0].finish_reason

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(150)
    return ends
