"""A backbone's ears in the market: its reports become market commands here, and its settings come from here.

What concerns money never rides on a queue: `NodeHost` calls these functions itself and keeps a spool until they return.
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import redis
from django.conf import settings
from django.db import DatabaseError, close_old_connections

from inference.audit import Finding, NodeClass
from inference.bookkeeper import CreditRefused, NotAcknowledged
from inference.credit_spool import CreditWindow
from inference.dispatch_policy import DispatchPolicy
from inference.errors import InferenceError
from inference.gguf_index import ModelIndex
from inference.host_settings import HostSettings, MarketPort
from inference.ring.wire import SHORTEST_SECRET
from inference.verification import Verdict, Verification
from market import commands, queries
from market.builds import BuildDescription
from market.errors import Busy, Conflict, MarketError
from relay.frames import ResultDtype

logger = logging.getLogger(__name__)

SHORTEST_WINDOW_SECONDS = 0.001
RESULTS = {"exact": ResultDtype.F32, "sums-f32": ResultDtype.PARTIAL_F32, "sums-f16": ResultDtype.PARTIAL_F16}


def host_settings() -> HostSettings:
    """The backbone's values from config/settings.py; raises InferenceError when its credential is missing."""
    return HostSettings(
        model_path=settings.MODEL_PATH,
        var_dir=settings.VAR_DIR,
        redis_url=settings.REDIS_URL,
        relay_urls=tuple(settings.RELAY_URLS),
        relay_fallback=relay_url(settings.PUBLIC_URL),
        backbone_token=backbone_token(),
        lanes=settings.BACKBONE_LANES,
        sequences=settings.BACKBONE_SEQUENCES,
        context_tokens=settings.BACKBONE_CONTEXT_TOKENS,
        threads=settings.BACKBONE_THREADS,
        gpu_layers=settings.BACKBONE_GPU_LAYERS,
        trace_dir=Path(settings.BACKBONE_TRACE_DIR) if settings.BACKBONE_TRACE_DIR else None,
        window_seconds=settings.CREDIT_WINDOW_SECONDS,
        spool_seconds=settings.SPOOL_SECONDS,
        demand_seconds=settings.DEMAND_SECONDS,
        policy=replace(
            policy(settings.DISPATCH_RESULTS, settings.DISPATCH_DEADLINE_SECONDS, settings.SLOW_STEP_SECONDS),
            trusted_passes=settings.TRUSTED_PASSES,
        ),
        trace_bytes=settings.BACKBONE_TRACE_BYTES,
        prefill_tokens=settings.BACKBONE_PREFILL_TOKENS,
        kept_sequences=settings.BACKBONE_KEPT_SEQUENCES,
        hot_set_bytes=settings.HOT_SET_BYTES,
        hot_set_seconds=settings.HOT_SET_MILLISECONDS / 1000 or None,
        stages=tuple(settings.STAGES),
        stage_secret=stage_secret() if settings.STAGES else b"",
        ring_lanes=settings.RING_LANES,
        ring_sequences=settings.RING_SEQUENCES,
        ring_threads=settings.RING_THREADS,
        ring_patience_seconds=settings.RING_PATIENCE_SECONDS,
        ring_step_seconds=settings.RING_STEP_SECONDS,
        offers_stages=settings.BACKBONE_OFFERS_STAGES,
    )


def policy(results: str, deadline_seconds: float, slow_step_seconds: float) -> DispatchPolicy:
    """The dispatcher's limits; raises InferenceError for results that do not exist."""
    try:
        return DispatchPolicy(
            deadline_seconds=deadline_seconds, result_dtype=RESULTS[results], slow_step_seconds=slow_step_seconds
        )
    except KeyError:
        raise InferenceError(f"DISPATCH_RESULTS must be one of {', '.join(RESULTS)}, not {results!r}") from None


def relay_url(public_url: str) -> str:
    """http://host:port -> ws://host:port/relay/, https -> wss."""
    return "ws" + public_url.removeprefix("http").rstrip("/") + "/relay/"


def backbone_token() -> str:
    """The credential of relay role B; raises InferenceError when there is none."""
    if settings.BACKBONE_TOKEN:
        return str(settings.BACKBONE_TOKEN)
    path = settings.VAR_DIR / "backbone.token"
    try:
        return str(path.read_text().strip())
    except OSError as error:
        raise InferenceError(
            f"no backbone credential: set BACKBONE_TOKEN or start with `manage.py up`, which writes {path} ({error})"
        ) from error


def stage_secret() -> bytes:
    """What the stages and this backbone share; raises InferenceError when there is none, or a short one."""
    path = settings.VAR_DIR / "stage.secret"
    try:
        secret: bytes = settings.STAGE_SECRET.encode() or path.read_bytes().strip()
    except OSError as error:
        raise InferenceError(
            f"STAGES is set, but no secret: set STAGE_SECRET or write it to {path} ({error})"
        ) from error
    if len(secret) < SHORTEST_SECRET:
        raise InferenceError(f"the secret of the stages must have at least {SHORTEST_SECRET} characters")
    return secret


def market_port() -> MarketPort:
    """The market's commands as the functions that `NodeHost` calls."""
    from inference.stage_reports import observe_stage_demand, publish_stages  # they report as this module does

    return MarketPort(
        publish_build,
        record_verdict,
        credit_window,
        observe_demand,
        note_strain,
        record_finding,
        record_passes,
        trust_of,
        publish_stages,
        observe_stage_demand,
    )


def build_description(index: ModelIndex) -> BuildDescription:
    """The model as the market sees it: only layers whose experts a worker can compute."""
    layers = tuple(sorted(index.offered_layers))
    return BuildDescription(
        fingerprint=index.fingerprint,
        name=index.name,
        architecture=index.architecture,
        n_embd=index.n_embd,
        n_ff=index.n_ff,
        experts_per_layer=index.experts_per_layer,
        experts_used=index.experts_used,
        layers=layers,
        expert_bytes=tuple(index.layers[layer].expert_bytes for layer in layers),
        expert_types=tuple(tuple(tensor.type_name for tensor in index.layers[layer].tensors) for layer in layers),
    )


def publish_build(index: ModelIndex) -> None:
    """Offers the model's experts; harmless when they are on offer already. A model without any is served locally."""
    if index.offered_layers:
        commands.publish_build(build_description(index))


def record_verdict(verification: Verification) -> None:
    """A passed replica goes live in the market, a failed one is lost. Raises NotAcknowledged to be called again."""
    try:
        with market_connection():
            if verification.verdict is Verdict.PASSED:
                commands.verify_replica(
                    verification.claim_id, verification.fence, verification.sha256, backbone=verification.backbone
                )
            else:
                commands.lose_replica(verification.claim_id, verification.fence, verification.verdict)
    except MarketError as error:
        logger.info("claim %d: the verdict came too late: %s", verification.claim_id, error)


def record_finding(finding: Finding) -> None:
    """Quarantines a node whose answer was wrong. Raises NotAcknowledged to be called again."""
    when = "after its use" if finding.used else "before its use"
    reason = (
        f"audit: {finding.wrong_rows} of {finding.rows} rows of layer {finding.layer} were wrong "
        f"(rule {finding.rule}, error {finding.worst:.2g}, seen {when})"
    )
    try:
        with market_connection():
            commands.quarantine_node(finding.who.node_id, reason=reason, by="audit")
    except MarketError as error:
        logger.error("node %s failed an audit and was not quarantined: %s", finding.who.node_id, error)


def record_passes(boot: str, who: NodeClass, passes: int, window: int) -> None:
    """Right answers raise a node's trust. Raises NotAcknowledged to be called again."""
    key = f"audits/{boot}/{window}/{who.node_id}/{hashlib.sha256(who.kernel_class.encode()).hexdigest()[:8]}"
    try:
        with market_connection():
            commands.record_audits(who.node_id, who.kernel_class, passes, f"backbone-{boot[:6]}", key=key)
    except MarketError as error:
        logger.error("audits of node %s are not recorded: %s", who.node_id, error)


def trust_of(who: NodeClass) -> int:
    """Audits in a row that the node passed in this kernel class. Raises NotAcknowledged."""
    with market_connection():
        node = queries.node(who.node_id)
    return node.trust if node is not None and node.trusted_class == who.kernel_class else 0


def credit_window(window: CreditWindow) -> None:
    """Pays every node of the window, each under its own key. Raises NotAcknowledged, CreditRefused."""
    started = datetime.fromtimestamp(window.started, UTC)
    ended = datetime.fromtimestamp(max(window.ended, window.started + SHORTEST_WINDOW_SECONDS), UTC)
    refused: list[str] = []
    for node_id, rows in window.by_node().items():
        try:
            with market_connection():
                commands.credit_work(window.key(node_id), window.build, node_id, started, ended, rows)
        except MarketError as error:
            refused.append(f"{node_id}: {error.code}: {error}")
    if refused:
        raise CreditRefused("; ".join(refused))


def observe_demand(index: ModelIndex, counts: npt.NDArray[np.uint64], since: float, until: float) -> None:
    """counts: (all layers, experts); the market takes the layers on offer, in order. Raises NotAcknowledged."""
    if not index.offered_layers:
        return
    offered = counts[sorted(index.offered_layers)].astype(np.int64)
    with market_connection():
        commands.observe_demand(
            index.fingerprint, offered, datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC)
        )


def note_strain(index: ModelIndex, boot: str, strain: npt.NDArray[np.float64]) -> None:
    """strain: (all layers, experts); the market takes the layers on offer. Lost where the cache does not answer: the
    next one comes in a minute."""
    if not index.offered_layers:
        return
    try:
        commands.note_strain(index.fingerprint, boot, strain[sorted(index.offered_layers)])
    except redis.RedisError as error:
        logger.warning("the market does not hear how well workers serve: %s", error)


@contextmanager
def market_connection() -> Iterator[None]:
    """A database connection of this thread, a broken one replaced; raises NotAcknowledged when there is none now."""
    close_old_connections()
    try:
        yield
    except (DatabaseError, Busy, Conflict) as error:
        close_old_connections()
        raise NotAcknowledged(f"the market cannot take this now: {error}") from error
