"""Stages that join a real server: register, claim, download, serve steps through the relay, give back."""

import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from inference.gguf_index import open_index
from inference.kernel import kernel_class_name
from inference.llama import Batch, Context, ContextSettings, Model
from inference.ring.context import RingContext
from inference.ring.leased import LeasedStages
from inference.ring.relay_line import LeasedStage
from inference.ring.steps import StageDescription
from inference.stage_file import open_stages
from inference.stages import stage_cuts
from relay.backbone_link import BackboneLink
from tests.e2e.processes import Running, running
from tests.inference.models import DEMO_MODEL
from tests.relay.live_relay import wait_until
from tests.relay.live_server import TOKEN, Server

pytestmark = pytest.mark.e2e
SETTINGS = ContextSettings(sequence_tokens=64, sequences=1, batch_tokens=16, threads=1, outputs=16)
PUBLISH = (
    "import django; django.setup(); from inference.builds import current_index; "
    "from inference.stage_file import open_stages; from inference.stage_reports import publish_stages; "
    "publish_stages(open_stages(current_index()))"
)


class Site:
    """A server with the demo model's stages on offer, and stages that were started on this machine."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.source = open_stages(open_index(DEMO_MODEL))
        self.cuts = stage_cuts(self.source.index)
        self.server = Server(folder)
        self.server.environment["MODEL_PATH"] = str(DEMO_MODEL)
        with running(["-c", PUBLISH], folder / "publish.log", self.server.environment) as publishing:
            assert publishing.process.wait(60) == 0, publishing.output
        self.server.start()
        stack.callback(self.server.close)
        self.link = BackboneLink(
            [self.server.url], token=TOKEN, build=self.cuts.model, kernel_class="ggml", stages=self.cuts.build
        )
        self.link.start()
        stack.callback(self.link.stop)

    def stage(self, name: str, budget: int) -> Running:
        command = ["-m", "inference.stage", "--server", f"http://127.0.0.1:{self.server.port}", "--name", name]
        command += ["--budget", str(budget), "--state", str(self._folder / name)]
        return self._stack.enter_context(running(command, self._folder / f"{name}.log", {}))

    def leased(self) -> list[LeasedStage]:
        """The stages that say they hold something, unverified."""
        return [
            LeasedStage(
                key, session.node_id, session.kernel_class, held.claim_id, held.fence, held.first, held.last,
                StageDescription(
                    self.cuts.model, *self.cuts.layers_of(held.first, held.last), self.cuts.trunk_layers,
                    self.source.index.n_embd, self.source.vocabulary_size,
                ),
            )
            for key, session in self.link.stage_sessions.items()
            for held in session.replicas
        ]  # fmt: skip

    def rows(self, question: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self._folder / "market.sqlite3")) as database:
            return database.execute(question).fetchall()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


def decoded(context: Context | RingContext) -> np.ndarray:
    batch = Batch(SETTINGS.batch_tokens)
    batch.size = 9
    batch.tokens[:9], batch.positions[:9], batch.sequences[:9] = np.arange(40, 49), np.arange(9), 0
    batch.wants_logits[:9] = 1
    assert context.decode(batch) == 0
    return np.array(context.logits(9))


def test_two_stages_join_through_the_market_and_give_the_bits_of_plain_llama(site: Site) -> None:
    one_unit = max(site.source.unit_bytes)
    stages = [site.stage(name, one_unit) for name in ("Dora", "Erin")]
    stages[0].wait_for(lambda: len(site.leased()) == 2, 60, "both stages hold a unit")

    directory = LeasedStages(site.link, fingerprint=site.cuts.model, layers=site.cuts.trunk_layers)
    directory.set_stages(site.leased())
    with RingContext(directory.open_line, SETTINGS, site.source.vocabulary_size) as ring:
        found = decoded(ring)

    with Model(DEMO_MODEL) as model, Context(model, SETTINGS) as plain:
        np.testing.assert_array_equal(found, decoded(plain))
    assert site.rows("SELECT DISTINCT role FROM market_node WHERE role = 'stage'") == [("stage",)]
    claims = site.rows("SELECT layer, first, last, state FROM market_claim WHERE layer = 0 ORDER BY first")
    assert claims == [(0, 0, 1, "pending"), (0, 1, 2, "pending")]
    assert {stage.kernel_class for stage in site.leased()} == {kernel_class_name()}


def test_a_stage_that_is_stopped_gives_its_units_back(site: Site) -> None:
    dora = site.stage("Dora", 1 << 30)
    dora.wait_for(lambda: [(one.first_unit, one.last_unit) for one in site.leased()] == [(0, 2)], 60, "it holds all")

    assert dora.end(signal.SIGTERM, 20) == 0

    wait_until(lambda: not site.link.stage_sessions)
    open_claims = site.rows("SELECT count(*) FROM market_claim WHERE state IN ('pending', 'live') AND layer = 0")
    assert open_claims == [(0,)]
    assert "gave back units 0-1" in dora.output
    assert "serving units 0-1" in dora.output


def test_a_download_that_was_cut_off_goes_on_where_it_ended(site: Site) -> None:
    first = site.stage("Dora", 1 << 30)
    partial = next(iter(first.log.parent.glob("Dora")), first.log.parent / "Dora")
    first.wait_for(lambda: any(partial.rglob("*.part")), 60, "the download has begun")
    time.sleep(0.2)
    first.process.kill()
    first.process.wait(10)

    again = site.stage("Dora", 1 << 30)
    again.wait_for(lambda: bool(site.leased()), 60, "it holds all")

    assert "slice of" in again.output
    assert len(site.rows("SELECT node_id FROM market_node WHERE role = 'stage'")) == 1


def test_a_memory_budget_below_one_unit_is_told(site: Site) -> None:
    dora = site.stage("Dora", 1000)

    assert dora.process.wait(60) == 1

    assert "1000 bytes hold no unit" in dora.output
    assert "see --budget" in dora.output
