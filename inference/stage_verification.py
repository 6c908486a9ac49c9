"""From "a stage says it holds these units" to "rings may use it": digest, challenge, verdict.

A challenge is a ring of its own with one step of random tokens: what a prompt looks like. The backbone knows the hidden
states that go in and must come out from its own model (`inference.stage_oracle`). Stages are challenged once by every
backbone that wants to use them, whatever the market says of them already.
"""

import logging
import secrets
from collections.abc import Callable, Collection, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from inference.challenge import ROW_ERROR_LIMIT, row_errors
from inference.llama import ContextSettings
from inference.ring.errors import BadStep, RingError
from inference.ring.relay_line import LeasedStage, RelayLine, StepTransport
from inference.ring.steps import StageDescription, Step
from inference.slices import slice_manifest
from inference.stage_file import StageSource
from inference.stage_oracle import Expected, FreshBatch, OracleFailed, StageOracle
from inference.stages import STAGE_LAYER
from inference.verification import ReplicaKey, Roster, RosterVerifier, Verdict, Verification
from relay.records import Replica as HeldReplica
from relay.records import RosterSession

logger = logging.getLogger(__name__)

CHALLENGE_SECONDS = 60.0
CHALLENGE_ROWS = 12
WANTED_ROWS = 2
# Of a stage that computes with another program: a router that is undecided between two experts may choose the other one
# there, and then the row differs. So not every row must be near.
NEAR_SHARE = 0.75
SETTINGS = ContextSettings(sequence_tokens=256, sequences=1, batch_tokens=32, threads=1, outputs=WANTED_ROWS)


def random_batch(vocabulary_size: int) -> FreshBatch:
    """One sequence of tokens that nobody can foresee."""
    dice = np.random.default_rng(secrets.randbits(128))
    wants = np.zeros(CHALLENGE_ROWS, np.int8)
    wants[-WANTED_ROWS:] = 1
    return FreshBatch(
        SETTINGS,
        dice.integers(0, vocabulary_size, CHALLENGE_ROWS).astype(np.int32),
        np.arange(CHALLENGE_ROWS, dtype=np.int32),
        np.zeros(CHALLENGE_ROWS, np.int32),
        wants,
    )


def step_for(stage: StageDescription, batch: FreshBatch, expected: Expected) -> Step:
    """The batch as it reaches this stage."""
    hidden = None if stage.first == 0 else expected.hidden[stage.first]
    tokens = batch.tokens if stage.first == 0 else None
    return Step((), batch.positions, batch.sequences, batch.wants_logits, tokens=tokens, hidden=hidden)


def output_of(stage: StageDescription, expected: Expected) -> npt.NDArray[np.float32]:
    """What must come out of this stage."""
    return expected.logits if stage.last == stage.layers else expected.hidden[stage.last]


def wrong_rows(
    answer: npt.NDArray[np.float32], expected: npt.NDArray[np.float32], *, same_class: bool
) -> tuple[int, float]:
    """How many rows are wrong, and the largest normalised squared error; (0, error) when the answer may pass.

    Of the same kernel class every row must have the same bits, of another one NEAR_SHARE of the rows must be near.
    """
    if answer.shape != expected.shape:
        return max(1, len(expected)), float("inf")
    errors = row_errors(answer, expected)
    worst = float(errors.max(initial=0.0))
    if same_class:
        return int((answer.view(np.uint32) != expected.view(np.uint32)).any(axis=1).sum()), worst
    far = int((errors > ROW_ERROR_LIMIT).sum())
    return (far if far > (1 - NEAR_SHARE) * len(errors) else 0), worst


class StageVerifier(RosterVerifier):
    """on_stages: called with all usable stages, whenever they may have changed."""

    def __init__(
        self,
        source: StageSource,
        oracle: StageOracle,
        transport: StepTransport,
        on_stages: Callable[[Sequence[LeasedStage]], None],
        on_verdict: Callable[[Verification], None],
        name: str = "backbone",
    ) -> None:
        super().__init__(on_verdict, name)
        self._source, self._oracle, self._transport = source, oracle, transport
        self._on_stages = on_stages
        self._banned: set[str] = set()
        # By range: digest -> whether the experts are in the file.
        self._known_digests: dict[tuple[int, int], dict[str, bool]] = {}

    def ban(self, node_id: str) -> None:
        """Nothing of this node is used any more. From any thread."""
        self._banned.add(node_id)
        with self._changed:
            self._dirty = True
            self._changed.notify()

    # --- what the base asks -------------------------------------------------------------------------------------------
    def _publish(self, roster: Roster) -> None:
        usable = [
            self._stage(key, session, held)
            for key, session in roster.items()
            for held in session.replicas
            if self._is_usable(held, ReplicaKey(key, held.claim_id, held.fence)) and session.node_id not in self._banned
        ]
        self._on_stages(usable)

    def _is_settled(self, held: HeldReplica, replica: ReplicaKey) -> bool:
        return replica in self._passed or replica in self._failed

    def _is_usable(self, held: HeldReplica, replica: ReplicaKey) -> bool:
        return replica in self._passed

    def _fits(self, held: HeldReplica) -> bool:
        return held.layer == STAGE_LAYER and held.last <= self._source.cuts.units

    def _digests(self, held: HeldReplica) -> Collection[str]:
        where = (held.first, held.last)
        if where not in self._known_digests:
            plans = {kind: self._source.plan(*where, without_experts=not kind) for kind in (True, False)}
            self._known_digests[where] = {slice_manifest(plan).sha256: kind for kind, plan in plans.items()}
        return self._known_digests[where]

    def _challenge(self, key: Hashable, session: RosterSession, held: HeldReplica) -> Verdict:
        stage = self._stage(key, session, held)
        try:
            batch = random_batch(self._source.vocabulary_size)
            expected = self._oracle.compute(batch)
            line = RelayLine(self._transport, [stage], batch.settings, step_seconds=CHALLENGE_SECONDS)
            try:
                answer = line.exchange(step_for(stage.description, batch, expected))
            finally:
                line.close()
        except BadStep as error:
            logger.info("claim %d: the challenge was answered wrongly: %s", held.claim_id, error)
            return Verdict.WRONG_ANSWER
        except (RingError, OracleFailed) as error:
            logger.info("claim %d: the challenge was not answered: %s", held.claim_id, error)
            return Verdict.NO_ANSWER
        if answer.code != 0:
            return Verdict.NO_ANSWER
        same_class = session.kernel_class == self._kernel_class
        wrong, _ = wrong_rows(answer.values, output_of(stage.description, expected), same_class=same_class)
        return Verdict.WRONG_ANSWER if wrong else Verdict.PASSED

    # --- inside -------------------------------------------------------------------------------------------------------
    def _stage(self, key: Hashable, session: RosterSession, held: HeldReplica) -> LeasedStage:
        cuts, index = self._source.cuts, self._source.index
        first, last = cuts.layers_of(held.first, held.last)
        # Between the ends a stage has a vocabulary of one token (inference.stage_file).
        vocabulary = 1 if first > 0 and last < cuts.trunk_layers else self._source.vocabulary_size
        has_experts = self._known_digests[held.first, held.last].get(held.sha256, True)
        description = StageDescription(
            cuts.model, first, last, cuts.trunk_layers, index.n_embd, vocabulary, has_experts
        )
        return LeasedStage(
            key, session.node_id, session.kernel_class, held.claim_id, held.fence, held.first, held.last, description
        )
