"""A server that offers its model's stages: two join, are verified, answer, and are paid; one dies and is replaced."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from inference.gguf_index import open_index
from inference.stage_file import open_stages
from tests.e2e.live_server import MODEL, LiveServer, live_server
from tests.e2e.processes import Running, running
from tests.inference.models import DEMO_MODEL

pytestmark = pytest.mark.e2e
TOKENS = 24


class Site:
    """The server, and stages that join it, each with the memory for one of the model's two units."""

    def __init__(self, server: LiveServer, folder: Path, stack: ExitStack) -> None:
        self.server, self._folder, self._stack = server, folder, stack
        self._budget = max(open_stages(open_index(DEMO_MODEL)).unit_bytes)

    def stage(self, name: str) -> Running:
        command = ["-m", "inference.stage", "--server", self.server.run.url, "--name", name]
        command += ["--budget", str(self._budget), "--state", str(self._folder / name)]
        return self._stack.enter_context(running(command, self._folder / f"{name}.log", {}))

    def rings(self) -> dict[str, Any]:
        found: list[dict[str, Any]] = self.server.stats()["rings"]
        return found[0] if found else {"is_whole": False}

    def answer(self, latency: str) -> str:
        answer = self.server.client(timeout=120).completions.create(
            model=MODEL, prompt="Once upon a time", max_tokens=TOKENS, temperature=0,
            extra_body={"ignore_eos": True, "latency": latency},
        )  # fmt: skip
        return answer.choices[0].text

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.server.var_dir / "expertswarm.sqlite3")) as database:
            return database.execute(question).fetchall()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    settings = {"BACKBONE_OFFERS_STAGES": "1", "LEASE_SECONDS": "10", "DEMAND_SECONDS": "3"}
    settings |= {"CREDIT_WINDOW_SECONDS": "2", "SPOOL_SECONDS": "1"}
    with ExitStack() as stack:
        server = stack.enter_context(live_server(tmp_path, "--workers", "1", **settings))
        yield Site(server, tmp_path, stack)


def test_stages_of_the_market_answer_are_paid_and_are_replaced(site: Site) -> None:
    dora, erin = site.stage("Dora"), site.stage("Erin")
    dora.wait_for(lambda: site.rings()["is_whole"], 90, "the ring is whole")

    on_the_ring = site.answer("low")

    assert on_the_ring == site.answer("normal")
    dora.wait_for(lambda: site.rings()["steps"] >= TOKENS - 1, 30, "the ring's steps are told")
    credited = (
        "SELECT node_id, SUM(c.rows), SUM(amount_microcredits) FROM market_creditedrows c "
        "JOIN market_node USING (node_id) WHERE role = 'stage' GROUP BY node_id"
    )
    dora.wait_for(lambda: len(site.rows(credited)) == 2, 30, "both were credited")
    assert all(rows > 0 and amount > 0 for _, rows, amount in site.rows(credited))
    dora.wait_for(lambda: site.rings()["stage_audits"].get("passed", 0) >= 2, 30, "the prompt was audited")
    assert site.rows("SELECT MIN(trust) FROM market_node WHERE role = 'stage' AND quarantined") == [(None,)]

    dora.process.kill()
    erin.wait_for(lambda: not site.rings()["is_whole"], 30, "the loss is seen")
    frank = site.stage("Frank")
    frank.wait_for(lambda: site.rings()["is_whole"], 90, "somebody took the lost unit over")
    assert site.answer("low") == on_the_ring
