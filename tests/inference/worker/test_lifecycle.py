"""The worker's rounds against a market over real HTTP; the connection to the relay is a recorder."""

import asyncio
import contextlib
import logging
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from inference.worker import lifecycle, market_client
from inference.worker.errors import BudgetTooSmall, NotAccepted, StateUnusable, WorkerError
from inference.worker.holdings import Holding, Holdings
from inference.worker.identity import load_identity
from inference.worker.kernels import choose_kernel
from inference.worker.lifecycle import Worker
from inference.worker.market_client import MarketClient
from inference.worker.options import parse_options
from tests.inference.worker.town import Town, demo_index, demo_plan, open_town

BUDGET_BYTES = 2_000_000


class RecordingLink:
    """Remembers what the lifecycle told it; drops slices like the real one, without a thread."""

    def __init__(self, holdings: Holdings) -> None:
        self.holdings = holdings
        self.updates: list[tuple[str, str]] = []
        self.calls: list[str] = []
        self.trouble: WorkerError | None = None

    def check(self) -> None:
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble

    def update(self, token: str) -> None:
        self.updates.append((token, str(self.holdings)))

    def drop(self, holding: Holding) -> None:
        self.holdings.remove(holding.claim.claim_id).kernel.close()

    async def drain(self, timeout_seconds: float) -> None:
        self.calls.append("drain")

    async def close(self) -> None:
        self.calls.append("close")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(market_client, "FIRST_PAUSE_SECONDS", 0.001)


@pytest.fixture
def town() -> Iterator[Town]:
    with open_town(Town(offer=[(3, 8, 15)])) as town:
        yield town


class Machine:
    """One machine that can run the worker several times."""

    def __init__(self, town: Town, folder: Path) -> None:
        self.town = town
        self.folder = folder
        self.kernel = choose_kernel("numpy", 1)

    @contextlib.asynccontextmanager
    async def started(self, *arguments: str) -> AsyncIterator[tuple[Worker, RecordingLink]]:
        options = parse_options(["--server", self.town.url, "--name", "phone", *(arguments or self.budget())])
        holdings = Holdings()
        link = RecordingLink(holdings)
        async with MarketClient(self.town.url) as market:
            yield Worker(options, self.folder, self.kernel, market, holdings, link), link
        for holding in list(holdings):
            holding.kernel.close()

    def budget(self) -> tuple[str, str]:
        return "--budget", str(BUDGET_BYTES)

    def slices(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "slices").glob("*/*"))


@pytest.fixture
def machine(town: Town, tmp_path: Path) -> Machine:
    return Machine(town, tmp_path)


async def test_a_new_worker_registers_claims_downloads_and_serves(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with machine.started() as (worker, link):
        pause_seconds = await worker.step()

    town = machine.town
    assert town.registered == [{"name": "phone", "kernel_class": "numpy", "budget_bytes": BUDGET_BYTES}]
    assert [claim_id for claim_id, _ in town.delivered] == [1]
    assert link.updates == [("token-1", "layer 3, experts 8-14")] * 3
    assert machine.slices() == ["layer-3-experts-8-15.gguf"]
    assert 0 < pause_seconds <= 30
    assert "serving layer 3, experts 8-14" in caplog.messages
    assert "token-1" not in caplog.text


async def test_a_known_worker_uses_its_token_and_its_slices_again(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with machine.started() as (worker, _):
        await worker.step()
    caplog.clear()

    async with machine.started() as (worker, link):
        await worker.step()

    assert len(machine.town.registered) == 1
    assert link.updates[-1] == ("token-1", "layer 3, experts 8-14")
    assert any("0 bytes received" in message for message in caplog.messages)


async def test_the_rest_of_the_budget_is_claimed_later(machine: Machine) -> None:
    async with machine.started() as (worker, link):
        await worker.step()
        machine.town.offer.append((5, 0, 4))
        await worker.step()

    assert link.updates[-1] == ("token-1", "layer 3, experts 8-14; layer 5, experts 0-3")
    demo = demo_index()
    free = BUDGET_BYTES - 7 * demo.layers[3].expert_bytes
    assert machine.town.demanded[-1]["budget_bytes"] == str(free)
    assert machine.town.demanded[-1]["build"] == demo.fingerprint
    assert "Q4_K" in machine.town.demanded[-1]["types"].split(",")


async def test_a_lost_claim_drops_the_slice_and_another_one_is_claimed(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with machine.started() as (worker, link):
        await worker.step()
        machine.town.claims.clear()
        machine.town.offer.append((5, 0, 4))
        await worker.step()

    assert link.updates[-1] == ("token-1", "layer 5, experts 0-3")
    assert machine.slices() == ["layer-5-experts-0-4.gguf"]
    assert any("no longer claimed" in message for message in caplog.messages)


async def test_a_verified_slice_is_told_once(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with machine.started() as (worker, _):
        await worker.step()
        machine.town.claims[1]["state"] = "live"
        await worker.step()
        await worker.step()

    assert caplog.messages.count("layer 3, experts 8-14: verified by the server, earning") == 1


async def test_no_work_is_told_with_the_servers_reason_and_once(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    machine.town.offer.clear()
    async with machine.started() as (worker, link):
        await worker.step()
        await worker.step()

    assert caplog.messages.count("no work because every expert is covered") == 1
    assert set(link.updates) == {("token-1", "nothing")}


async def test_a_budget_below_one_expert_ends_the_program(machine: Machine) -> None:
    machine.town.offer.clear()
    machine.town.reason = ("budget_too_small", "one expert takes 110592 bytes")
    async with machine.started() as (worker, link):
        with pytest.raises(BudgetTooSmall, match="110592 bytes"):
            await worker.run(asyncio.Event())

    assert link.calls == ["drain", "close"]


@pytest.mark.parametrize("answer", [(422, "bad_request", "name: at most 60 characters"), (404, "not_found", "what?")])
async def test_a_server_that_does_not_register_it_ends_the_program(
    machine: Machine, answer: tuple[int, str, str]
) -> None:
    machine.town.no_nodes = answer
    async with machine.started() as (worker, _):
        with pytest.raises(NotAccepted, match=f"does not register this worker: {re.escape(answer[2])}"):
            await worker.run(asyncio.Event())


async def test_a_token_from_the_page_is_adopted_and_kept(machine: Machine) -> None:
    machine.town.tokens.add("-from-the-page")

    async with machine.started("--budget", "1MB", "--token=-from-the-page") as (worker, link):
        await worker.step()
    async with machine.started("--budget", "1MB") as (worker, again):
        await worker.step()

    assert machine.town.registered == []
    kept = load_identity(machine.folder)
    assert kept is not None
    assert (kept.node_id, kept.token) == ("node of -from-the-page", "-from-the-page")
    assert link.updates[-1][0] == again.updates[-1][0] == "-from-the-page"


async def test_a_token_that_the_server_does_not_know_ends_the_program(machine: Machine) -> None:
    async with machine.started("--token", "made-up") as (worker, _):
        with pytest.raises(NotAccepted, match="--token"):
            await worker.round()

    assert load_identity(machine.folder) is None
    assert machine.town.registered == []


async def test_a_server_that_is_down_is_asked_again_for_the_token(machine: Machine) -> None:
    machine.town.tokens.add("t")
    machine.town.down = True

    async with machine.started("--token", "t") as (worker, _):
        await worker.round()
        machine.town.down = False
        await worker.round()

    assert load_identity(machine.folder) is not None


async def test_a_folder_keeps_its_node_when_another_ones_token_comes(machine: Machine) -> None:
    async with machine.started() as (worker, _):
        await worker.step()

    with pytest.raises(StateUnusable, match="--state"):
        async with machine.started("--token", "another"):
            pass


async def test_a_server_with_too_many_newcomers_is_asked_again(machine: Machine) -> None:
    machine.town.no_nodes = (429, "too_many_requests", "in a minute")
    async with machine.started() as (worker, link):
        await worker.round()
        machine.town.no_nodes = None
        await worker.round()

    assert link.updates[-1] == ("token-1", "layer 3, experts 8-14")


async def test_a_forgotten_token_leads_to_a_new_node(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with machine.started() as (worker, link):
        await worker.round()
        machine.town.tokens.clear()
        machine.town.claims.clear()
        machine.town.offer.append((3, 8, 15))
        first_pause = await worker.round()
        await worker.round()

    assert first_pause == 0
    assert len(machine.town.registered) == 2
    assert link.updates[-1] == ("token-2", "layer 3, experts 8-14")
    assert load_identity(machine.folder).token == "token-2"  # type: ignore[union-attr]
    assert any("registering as a new node" in message for message in caplog.messages)


async def test_a_server_that_is_down_is_told_and_tried_again(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    async with machine.started() as (worker, link):
        machine.town.down = True
        pauses = [await worker.round() for _ in range(3)]
        machine.town.down = False
        await worker.round()

    assert pauses[0] < pauses[2] <= 8
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 3
    assert all("trying again in" in warning for warning in warnings)
    assert link.updates[-1] == ("token-1", "layer 3, experts 8-14")


async def test_slices_that_cannot_be_had_now_are_fetched_later(machine: Machine) -> None:
    async with machine.started() as (worker, link):
        machine.town.no_slices = True
        await worker.round()
        machine.town.no_slices = False
        await worker.round()

    assert link.updates[-1] == ("token-1", "layer 3, experts 8-14")
    assert machine.town.released == []


async def test_a_full_disk_gives_the_claim_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    async with machine.started() as (worker, _):
        await worker.round()

    assert machine.town.released == [1]
    assert any("make room" in message for message in caplog.messages)


async def test_a_smaller_budget_gives_claims_back(machine: Machine) -> None:
    async with machine.started() as (worker, _):
        await worker.step()

    async with machine.started("--budget", "100kB") as (worker, link):
        await worker.step()

    assert machine.town.released == [1]
    assert machine.slices() == []
    assert set(link.updates) == {("token-1", "nothing")}


async def test_a_number_of_experts_becomes_bytes_of_this_model(machine: Machine) -> None:
    async with machine.started("--experts", "9") as (worker, _):
        await worker.step()

    assert machine.town.registered[0].get("budget_bytes") is None
    assert machine.town.demanded[-1]["budget_bytes"] == str(9 * demo_index().layers[3].expert_bytes)


async def test_a_number_of_experts_waits_until_the_server_has_some(machine: Machine) -> None:
    machine.town.offer.clear()
    async with machine.started("--experts", "9") as (worker, _):
        await worker.step()
        machine.town.offer.append((3, 8, 15))
        await worker.step()

    assert len(machine.town.delivered) == 1


async def test_stopping_gives_every_claim_back(machine: Machine) -> None:
    stop = asyncio.Event()
    async with machine.started() as (worker, link):
        running = asyncio.create_task(worker.run(stop))
        while not machine.town.delivered:
            await asyncio.sleep(0.01)
        machine.town.grant(5, 0, 4)  # one that the worker has not heard of
        stop.set()
        await asyncio.wait_for(running, 5)

    assert sorted(machine.town.released) == [1, 2]
    assert link.calls == ["drain", "close"]


async def test_stopping_while_the_server_is_down_ends_all_the_same(
    machine: Machine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "RELEASE_SECONDS", 0.2)
    stop = asyncio.Event()
    async with machine.started() as (worker, link):
        await worker.step()
        machine.town.down = True
        stop.set()
        await asyncio.wait_for(worker.run(stop), 5)

    assert link.calls == ["drain", "close"]
    assert any("did not take the claims back" in message for message in caplog.messages)


async def test_the_relays_word_counts_like_the_servers(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    async with machine.started() as (worker, link):
        link.trouble = WorkerError("the relay is full")
        await worker.round()

    assert any("the relay is full; trying again" in message for message in caplog.messages)


async def test_slices_of_no_use_are_pruned(machine: Machine) -> None:
    stale = machine.folder / "slices" / "old-build" / "layer-1-experts-0-2.gguf"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(demo_plan(1, 0, 2).read(0, 100))
    async with machine.started() as (worker, _):
        await worker.step()

    assert not stale.exists()
