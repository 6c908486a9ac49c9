"""One chaotic run: server, crew, clients and blows; then calm, stop, and the checks."""

import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from config.supervisor.run_file import ServerNotRunning
from inference import backbone_status
from inference.chaos import judge
from inference.chaos.blows import Blow, TimedBlow, timetable
from inference.chaos.judge import Verdict, Watched
from inference.chaos.load import Load
from inference.chaos.processes import PATIENCE, Crew, Server, log_errors, resident_bytes
from inference.chaos.stage_crew import StageCrew, model_for
from inference.chaos.target import Target

SPOOL_SECONDS = 2.0
# A backbone that was killed has to be noticed, started again, and to resume what it had begun.
PATIENCE_SECONDS = 180.0
SETTLE_SECONDS = 4.0
FIRST_WORKERS = 3
HANG_SECONDS = (1.0, 6.0)
CALM_REQUESTS = 16

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """seconds: how long blows fall; one_per_lane: one sequence per lane, so that texts can be compared too;
    keep: a new folder for logs and traces, kept; patient_liars: they earn trust first, so some lies are used before
    they are found, and logits may differ; stages: processes that hold a model's layers for rings, 0: none."""

    seconds: float
    seed: int
    clients: int = 16
    one_per_lane: bool = False
    keep: Path | None = None
    patient_liars: bool = False
    stages: int = 0


def run(settings: Settings, say: Say) -> Verdict:
    """A server of its own. Raises ChaosFailed when it does not even start."""
    if settings.keep is not None:
        settings.keep.mkdir(parents=True)
        return _run_in(settings.keep, settings, say)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        return _run_in(Path(folder), settings, say)


def _run_in(folder: Path, settings: Settings, say: Say) -> Verdict:
    environment = _environment(settings)
    if not settings.stages:
        return run_against(Server(folder, environment), settings, say)
    say(f"starting {settings.stages} stages ...")
    model, lanes = model_for(folder, settings.stages), int(environment["BACKBONE_LANES"])
    with StageCrew(model, settings.stages, folder / "stages", settings.seed, lanes) as stages:
        environment |= stages.environment(settings.clients)
        return run_against(Server(folder, environment | {"MODEL_PATH": str(model)}), settings, say, stages)


def run_against(target: Target, settings: Settings, say: Say, stages: StageCrew | None = None) -> Verdict:
    """The same against any server; it is stopped at the end. SPOOL_SECONDS must be its setting too."""
    folder = target.var_dir
    verdict, watched = Verdict(), Watched()
    verdict.add("seed", settings.seed)
    verdict.add("seconds", settings.seconds)
    verdict.add("one_per_lane", settings.one_per_lane)
    say("starting a server ...")
    with target as server:
        watch = Watch(server, watched)
        verdict.add("patient_liars", settings.patient_liars)
        with Crew(server.run.url, folder / "crew", settings.seed, PATIENCE if settings.patient_liars else 0) as crew:
            for _ in range(FIRST_WORKERS):
                crew.join()
            load = Load(server.run.url, server.run.api_key, settings.clients, server.tls, with_rings=stages is not None)
            watch.start()
            load.start()
            blows = _strike(settings, server, Struck(crew, stages), watch, say)
            if stages is not None:
                stages.calm()
            say("the blows are over; every request must end now ...")
            stuck = load.stop(PATIENCE_SECONDS)
            lied = crew.liars_that_lied
        verdict.add("blows", blows)
        _judge_load(verdict, load, stuck)
        if settings.one_per_lane:
            _judge_texts(verdict, load, say)
        time.sleep(SETTLE_SECONDS)
        watch.stop()
        say("stopping the server ...")
        server.stop()
        problem = "" if server.exit_status == 0 else f"the server ended with {server.exit_status}"
        verdict.add("exit_status", server.exit_status, problem)
        verdict.add("leaked_processes", len(server.leaked), f"left behind: {server.leaked}" if server.leaked else "")
        say("replaying every batch through plain llama.cpp ...")
        traces = sorted((folder / "traces").glob("*/lane-*.jsonl"))
        judge.judge_traces(verdict, traces, exact=not settings.patient_liars)
        events = server.events()
        judge.judge_books(verdict, server, events)
        judge.judge_liars(verdict, lied)
        judge.judge_credit(verdict, watched, events, SPOOL_SECONDS)
        judge.judge_memory(verdict, watched)
        if stages is not None:
            judge.judge_rings(verdict, watched, blows.get(Blow.KILL_STAGE, 0))
        verdict.add("tracebacks", log_errors(folder / "logs"))
        if verdict.problems:
            _keep_logs(folder, say)
    return verdict


def _environment(settings: Settings) -> dict[str, str]:
    lanes = settings.clients if settings.one_per_lane else 2
    return {
        "BACKBONE_LANES": str(lanes),
        "BACKBONE_SEQUENCES": str(settings.clients),
        "BACKBONE_CONTEXT_TOKENS": "256",
        "CREDIT_WINDOW_SECONDS": "5",
        "SPOOL_SECONDS": str(SPOOL_SECONDS),
        "LEASE_SECONDS": "20",
        "RELAY_PING_SECONDS": "3",
        "RELAY_RECHECK_SECONDS": "5",
        "TARGET_REPLICAS": "2",
    }


@dataclass
class Struck:
    """Who is struck beside the server."""

    crew: Crew
    stages: StageCrew | None

    def tick(self) -> None:
        self.crew.tick()
        if self.stages is not None:
            self.stages.tick()


def _strike(settings: Settings, server: Target, struck: Struck, watch: "Watch", say: Say) -> dict[str, int]:
    """Lets every blow fall at its time; how many of each kind."""
    began, counts = time.monotonic(), Counter[str]()
    waiting = list(timetable(settings.seconds, settings.seed, with_stages=struck.stages is not None))
    while time.monotonic() < began + settings.seconds:
        struck.tick()
        if waiting and time.monotonic() >= began + waiting[0].at:
            timed = waiting.pop(0)
            say(f"{timed.at:6.1f} s  {timed.blow}")
            with suppress(ServerNotRunning):
                _fall(timed, server, struck, watch)
                counts[timed.blow] += 1
        time.sleep(0.1)
    return dict(counts)


def _fall(timed: TimedBlow, server: Target, struck: Struck, watch: "Watch") -> None:
    crew, hang_seconds = struck.crew, HANG_SECONDS[0] + timed.detail * (HANG_SECONDS[1] - HANG_SECONDS[0])
    match timed.blow:
        case Blow.JOIN:
            crew.join()
        case Blow.LEAVE:
            crew.leave()
        case Blow.KILL:
            crew.kill()
        case Blow.HANG:
            crew.hang(hang_seconds)
        case Blow.LIE:
            crew.lie(timed.detail)
        case Blow.RESTART_WEB:
            server.hit("web", signal.SIGKILL)
        case Blow.RESTART_REDIS:
            server.hit("redis", signal.SIGTERM)
        case Blow.KILL_BACKBONE:
            watch.backbone_killed()
            server.hit("backbone", signal.SIGKILL)
        case Blow.KILL_STAGE:
            if struck.stages is not None:
                struck.stages.strike_dead()
        case Blow.HANG_STAGE:
            if struck.stages is not None:
                struck.stages.hang(hang_seconds)


class Watch:
    """Looks at the server every second: what each backbone says it used, how much memory each process has."""

    def __init__(self, server: Target, watched: Watched) -> None:
        self._server, self._watched = server, watched
        self._redis = redis.Redis.from_url(server.run.redis_url, socket_timeout=2.0)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._redis.close()

    def backbone_killed(self) -> None:
        """All boots seen so far are those of the process that is about to die."""
        for boot in self._watched.rows:
            self._watched.killed.setdefault(boot, time.time())

    def _run(self) -> None:
        while not self._stopping.wait(1.0):
            with suppress(redis.RedisError, ServerNotRunning):
                self._look()
        with suppress(redis.RedisError):
            self._look_at_backbones()

    def _look(self) -> None:
        for name, pid in self._server.run.pids.items():
            size = resident_bytes(pid)
            if size:
                self._watched.memory[name, pid].append((time.time(), size))
        self._look_at_backbones()

    def _look_at_backbones(self) -> None:
        for status in backbone_status.all_statuses(self._redis):
            self._watched.rows[status["boot"]].append((float(status["at"]), int(status["rows"].get("remote", 0))))
            if status["rings"] is not None:
                self._watched.rings[status["boot"]] = status["rings"]


def _judge_load(verdict: Verdict, load: Load, stuck: int) -> None:
    tally = load.tally
    verdict.add("requests_finished", tally.finished, "" if tally.finished else "no request finished")
    verdict.add("requests_left_by_clients", tally.left)
    verdict.add("requests_resumed", tally.resumed)
    failed = tally.failures
    verdict.add("requests_failed", len(failed), f"failed requests: {failed[:3]}" if failed else "")
    verdict.add("requests_stuck", stuck, f"{stuck} requests never ended" if stuck else "")
    verdict.add("slowest_request_seconds", round(tally.slowest_seconds, 1))


def _judge_texts(verdict: Verdict, load: Load, say: Say) -> None:
    """With one sequence per lane the batches are always the same, so churn must not change a letter."""
    numbers = sorted(load.tally.texts)[:CALM_REQUESTS]
    say(f"asking {len(numbers)} requests again, calmly ...")
    calm = load.texts(numbers)
    different = [number for number in numbers if load.tally.texts[number] != {calm[number]}]
    verdict.add("texts_compared", sum(len(load.tally.texts[number]) for number in numbers))
    verdict.add("texts_different", len(different), f"texts of requests {different} differ" if different else "")


def _keep_logs(folder: Path, say: Say) -> None:
    """The end of every log, so that a failed run can be understood."""
    for path in [*folder.glob("up.log"), *sorted((folder / "logs").glob("*.log"))]:
        say(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}")
