"""One hostile run: readers of bytes alone, then a real server with strangers, thieves, floods, mad operators."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx

from inference.chaos.judge import Verdict
from inference.chaos.processes import Server, log_errors
from inference.hostile.confined import Findings, Reader, confined
from inference.hostile.frames import Frames
from inference.hostile.gguf_files import GgufFiles
from inference.hostile.memory import Memory
from inference.hostile.requests import Fuzzer, fuzz
from inference.hostile.sockets import Crowd
from inference.hostile.targets import Target, missing, targets
from inference.hostile.tenants import OPERATOR_PASSWORD, SECONDS, Tenant, open_operator, open_tenant
from inference.hostile.theft import Thief
from inference.hostile.trespass import possessions, trespass
from inference.hostile.wire import Tally

# For sessions to be put out, and memory to be given back.
SETTLE_SECONDS = 12.0
MOST_SHOWN = 5
ENVIRONMENT = {
    "DJANGO_SUPERUSER_PASSWORD": OPERATOR_PASSWORD,
    # The limits are tested elsewhere; here they would keep nearly every request from what lies behind them.
    "API_REQUESTS_PER_MINUTE": "0",
    "DEMO_REQUESTS_PER_MINUTE": "100000",
    "DEMO_TOKENS_PER_HOUR": "100000000",
    "REGISTRATIONS_PER_MINUTE": "100000",
    "DEVICE_REQUESTS_PER_MINUTE": "100000",
    "ACCOUNT_CHANGES_PER_MINUTE": "100000",
    "LEASE_SECONDS": "3600",
    "BACKBONE_CONTEXT_TOKENS": "128",
}

Report = Callable[[float, str], None]


@dataclass(frozen=True)
class Settings:
    """Counts of inputs and sockets; every_attempt: 1: each trespass, n: every nth; settle_seconds: after the
    last request; keep: a new folder for logs."""

    seed: int
    frames: int = 60_000
    files: int = 20_000
    requests: int = 20_000
    idle: int = 1000
    flooding: int = 300
    flood_seconds: float = 30.0
    every_attempt: int = 1
    settle_seconds: float = SETTLE_SECONDS
    keep: Path | None = None


QUICK: dict[str, Any] = {
    "frames": 600,
    "files": 300,
    "requests": 400,
    "idle": 40,
    "flooding": 18,
    "flood_seconds": 4.0,
    "every_attempt": 23,
    "settle_seconds": 0.0,
}


def run(settings: Settings, report: Report) -> Verdict:
    """Raises ChaosFailed when the server, or one of its accounts, cannot even begin."""
    verdict = Verdict()
    verdict.add("seed", settings.seed)
    began = monotonic()
    for name, reader, count in (("frames", Frames, settings.frames), ("gguf", GgufFiles, settings.files)):
        _read(verdict, name, reader, settings.seed, count, report)
    if settings.keep is not None:
        settings.keep.mkdir(parents=True)
        _serve(verdict, settings, settings.keep, report)
    else:
        with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
            _serve(verdict, settings, Path(folder), report)
    verdict.add("malformed_inputs", sum(verdict.figures[kind]["cases"] for kind in ("frames", "gguf", "requests")))
    verdict.add("seconds", round(monotonic() - began, 1))
    return verdict


def _read(verdict: Verdict, name: str, reader: Callable[[], Reader], seed: int, count: int, report: Report) -> None:
    found = Findings()
    for batch in confined(reader, seed, count):
        found.add(batch)
        report(found.cases / max(count, 1), f"{found.cases} of {count} {name}")
    verdict.add(
        name,
        {
            "cases": found.cases,
            "refused": found.refused,
            "slowest_seconds": round(found.slowest_seconds, 3),
            "memory_grown_bytes": found.peak_bytes - found.first_bytes,
        },
        _shown(found.faults),
    )


def _serve(verdict: Verdict, settings: Settings, folder: Path, report: Report) -> None:
    report(0.0, "starting a server")
    with Server(folder, ENVIRONMENT) as server:
        memory = Memory(server)
        memory.look("ready")
        victim, owner, thief = (open_tenant(server, name) for name in ("alice-liddell", "bob-owner", "mallory-thief"))
        operator = open_operator(server)
        found = _targets(verdict, server)
        backbone_token = (folder / "backbone.token").read_text().strip()
        with _unchanged(verdict, server, victim):
            _trespass(verdict, settings, server, found, thief, victim, report)
            _steal(verdict, server, owner, victim, backbone_token, report)
            memory.look("after trespass and theft")
            _crowd(verdict, settings, server, victim, report)
            memory.look("after the flood")
            _fuzz(verdict, settings, server, found, [thief], "requests", 0, settings.requests * 3 // 4, report)
        _fuzz(
            verdict,
            settings,
            server,
            found,
            [operator],
            "operator",
            settings.requests * 3 // 4,
            settings.requests,
            report,
        )
        _add_up_requests(verdict)
        report(1.0, "waiting for what was left behind")
        sleep(settings.settle_seconds)
        memory.look("at the end")
        memory.judge(verdict)
        _still_works(verdict, server, victim)
        server.stop()
        problem = "" if server.exit_status == 0 else f"the server ended with {server.exit_status}"
        verdict.add("exit_status", server.exit_status, problem)
        errors = log_errors(folder / "logs")
        verdict.add("tracebacks", errors, f"tracebacks in the logs: {errors}" if errors else "")
        told = _secrets_in(folder / "logs", victim)
        verdict.add("secrets_in_logs", told, f"the logs tell {told}" if told else "")


def _secrets_in(logs: Path, victim: Tenant) -> list[str]:
    """What the logs tell of an account that nobody but it may know; ids of things may stand there."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted(logs.glob("*.log")))
    kept = {**victim.secrets, "password": victim.password}
    wanted = ("device token", "API key", "session", "payee", "generated text", "password")
    return [what for what in wanted if kept.get(what) and kept[what] in text]


def _targets(verdict: Verdict, server: Server) -> list[Target]:
    openapi = httpx.get(f"{server.run.url}/api/openapi.json", timeout=SECONDS).json()
    found = targets(openapi)
    lost = missing(openapi, found)
    verdict.add("endpoints", len(found), f"not in the URL list: {lost}" if lost else "")
    return found


def _trespass(
    verdict: Verdict, settings: Settings, server: Server, found: list[Target], thief: Tenant, victim: Tenant,
    report: Report,
) -> None:  # fmt: skip
    before = possessions(server.run.url, thief)
    some = found[:: settings.every_attempt]
    expected = len(some) * len(some[0].methods) * 4
    result = asyncio.run(
        trespass(
            server.run.port, some, thief, victim,
            lambda count: report(count / expected, f"{count} trespasses"),
        )
    )  # fmt: skip
    verdict.add("trespass", _figures(result.tally, leaks=len(result.leaks)), _shown(result.leaks))
    verdict.problems.extend(result.tally.problems[:MOST_SHOWN])
    if possessions(server.run.url, thief)["device"] != before["device"]:
        verdict.problems.append("the thief's own credentials did not last: the attempts prove nothing")


def _steal(
    verdict: Verdict, server: Server, owner: Tenant, victim: Tenant, backbone_token: str, report: Report
) -> None:
    thefts = []
    for theft in Thief(server, owner, victim, backbone_token).run():
        thefts.append(theft)
        report(len(thefts) / 46, theft.what)
    problems = [theft.problem for theft in thefts if theft.problem]
    verdict.add("thefts", {"tried": len(thefts), "worked": len(problems)}, _shown(problems))


def _crowd(verdict: Verdict, settings: Settings, server: Server, honest: Tenant, report: Report) -> None:
    build = str(honest.claims[0]["build"])
    crowd = Crowd(server.run.port, server.run.url, build, honest, settings.seed)
    report(0.0, "opening sockets")
    found = asyncio.run(
        crowd.run(
            settings.idle, settings.flooding, settings.flood_seconds,
            lambda share: report(share, f"{crowd.found.messages} messages of flooding sockets"),
        )
    )  # fmt: skip
    answers = sorted(found.answers)
    verdict.add(
        "sockets",
        {
            "opened": dict(found.opened),
            "flooding_messages": found.messages,
            "closes": dict(sorted(found.closes.items())),
            "honest_requests": len(answers),
            "honest_median_seconds": round(answers[len(answers) // 2], 3),
            "honest_slowest_seconds": round(answers[-1], 3),
        },
        _shown(found.problems),
    )


def _fuzz(
    verdict: Verdict, settings: Settings, server: Server, found: list[Target], tenants: list[Tenant], name: str,
    first: int, last: int, report: Report,
) -> None:  # fmt: skip
    fuzzer = Fuzzer(found, tenants, server_model(server), settings.seed)
    tally = asyncio.run(
        fuzz(
            server.run.port, fuzzer, first, last,
            lambda count: report(count / (last - first), f"{count} malformed requests ({name})"),
        )
    )  # fmt: skip
    verdict.add(f"http_{name}", _figures(tally), _shown(tally.problems))


def _add_up_requests(verdict: Verdict) -> None:
    parts = [verdict.figures.pop(f"http_{name}") for name in ("requests", "operator")]
    verdict.add(
        "requests", {"cases": sum(part["cases"] for part in parts), "strangers": parts[0], "operator": parts[1]}
    )


def server_model(server: Server) -> str:
    bearer = {"Authorization": f"Bearer {server.run.api_key}"}
    answer = httpx.get(f"{server.run.url}/v1/models", headers=bearer, timeout=SECONDS)
    return str(answer.json()["data"][0]["id"])


def _figures(tally: Tally, **more: Any) -> dict[str, Any]:
    return {
        "cases": tally.count,
        "statuses": dict(sorted(tally.statuses.items())),
        "slowest_seconds": round(tally.slowest_seconds, 2),
        **more,
    }


@contextmanager
def _unchanged(verdict: Verdict, server: Server, victim: Tenant) -> Iterator[None]:
    """Nothing of the victim's changed meanwhile."""
    before = possessions(server.run.url, victim)
    yield
    after = possessions(server.run.url, victim)
    changed = [name for name in before if before[name] != after[name]]
    told = [f"the victim's {name} changed: {before[name]} -> {after[name]}" for name in changed]
    verdict.add("victim_changed", changed, _shown(told))


def _still_works(verdict: Verdict, server: Server, victim: Tenant) -> None:
    """After all of it, a generation gives the same text as before."""
    body = {
        "model": server_model(server),
        "prompt": f"My name is {victim.name} and",
        "max_tokens": 16,
        "temperature": 0,
        "ignore_eos": True,
    }
    bearer = {"Authorization": f"Bearer {victim.api_key}"}
    answer = httpx.post(f"{server.run.url}/v1/completions", json=body, headers=bearer, timeout=SECONDS)
    verdict.add("works_afterwards", answer.status_code == 200, "" if answer.status_code == 200 else answer.text[:300])


def _shown(problems: list[str]) -> str:
    more = f" (and {len(problems) - MOST_SHOWN} more)" if len(problems) > MOST_SHOWN else ""
    return "; ".join(problems[:MOST_SHOWN]) + more
