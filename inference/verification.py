"""From "a worker says it holds this" to "the dispatcher may use it": slice digest, challenge, verdict.

A replica that the market already calls live is used at once; a pending one must name the slice's digest and answer
unpredictable rows through the relay. One background thread does this, one replica at a time, so that a crowd of joining
workers cannot take the cores from the lanes.

It knows the roster, the model file and a transport; verdicts leave through a callback (`inference.tasks` turns them
into market commands).
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from inference.challenge import ExpertOracle, challenge_rows, passes
from inference.dispatch import Transport
from inference.gguf_index import ModelIndex
from inference.kernel import kernel_class_name
from inference.replica_table import Replica, ReplicaTable
from inference.rows import RowType
from inference.slices import plan_slice, slice_manifest
from relay.records import Replica as HeldReplica
from relay.records import RosterSession
from relay.work import Dispatch, Failed, Outcome, Result

logger = logging.getLogger(__name__)

CHALLENGE_SECONDS = 30.0
RETRY_SECONDS = 5.0

Roster = Mapping[Hashable, RosterSession]


class Verdict(StrEnum):
    """What came of a verification."""

    PASSED = "passed"
    WRONG_DIGEST = "wrong_digest"
    WRONG_ANSWER = "wrong_answer"
    NO_ANSWER = "no_answer"


class ReplicaKey(NamedTuple):
    """One replica under one lease in one session."""

    session: Hashable
    claim_id: int
    fence: int


class Verification(NamedTuple):
    """A verdict about a replica, for the market. sha256: the digest that it has; backbone: who says so."""

    backbone: str
    node_id: str
    claim_id: int
    fence: int
    sha256: str
    verdict: Verdict


class RosterVerifier(ABC):
    """Verifies what sessions of a roster hold, one replica after another, in a thread of its own.

    on_verdict: called once per verdict, may raise to have it tried again. Subclasses say what is usable, which digests
    are right and how a replica is challenged; the thread is theirs alone.
    """

    def __init__(self, on_verdict: Callable[[Verification], None], name: str) -> None:
        self._name = name
        self._on_verdict = on_verdict
        self._kernel_class = kernel_class_name()
        self._passed: set[ReplicaKey] = set()
        self._failed: set[ReplicaKey] = set()
        self._roster: Roster = {}
        self._changed = threading.Condition()
        self._dirty = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"{type(self).__name__.lower()}", daemon=True)

    @abstractmethod
    def _publish(self, roster: Roster) -> None:
        """Tells whoever uses replicas which ones may be used."""

    @abstractmethod
    def _fits(self, held: HeldReplica) -> bool:
        """Whether the model has such a range on offer."""

    @abstractmethod
    def _digests(self, held: HeldReplica) -> Collection[str]:
        """The right digests of what was downloaded for this range."""

    @abstractmethod
    def _challenge(self, key: Hashable, session: RosterSession, held: HeldReplica) -> Verdict:
        """PASSED, WRONG_ANSWER or NO_ANSWER."""

    def _is_settled(self, held: HeldReplica, replica: ReplicaKey) -> bool:
        """Whether there is nothing to verify: the market calls it live, or there is a verdict."""
        return held.state == "live" or replica in self._passed or replica in self._failed

    def _is_usable(self, held: HeldReplica, replica: ReplicaKey) -> bool:
        return self._fits(held) and replica not in self._failed and (held.state == "live" or replica in self._passed)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def set_roster(self, roster: Roster) -> None:
        """Takes the newest roster; called by the transport, returns at once."""
        with self._changed:
            self._roster, self._dirty = roster, True
            self._changed.notify()

    def _run(self) -> None:
        retry = False
        while True:
            with self._changed:
                if not self._dirty:
                    self._changed.wait(RETRY_SECONDS if retry else None)
                if self._stopping:
                    return
                roster, self._dirty = self._roster, False
            try:
                retry = self.step(roster)
            except Exception:
                logger.exception("verifying replicas failed; trying again in %.0f s", RETRY_SECONDS)
                retry = True

    def step(self, roster: Roster) -> bool:
        """Publishes the table of what is usable, then verifies one pending replica after another.

        Returns whether something is left to be tried again. Stops early when a newer roster has come.
        """
        known = {
            ReplicaKey(key, held.claim_id, held.fence) for key, session in roster.items() for held in session.replicas
        }
        self._passed &= known
        self._failed &= known
        self._publish(roster)
        retry = False
        for key, session in roster.items():
            for held in session.replicas:
                replica = ReplicaKey(key, held.claim_id, held.fence)
                if self._is_settled(held, replica):
                    continue
                retry |= not self._verify(key, session, held, replica)
                if replica in self._passed:
                    self._publish(roster)
                if self._dirty or self._stopping:
                    return retry
        return retry

    def _verify(self, key: Hashable, session: RosterSession, held: HeldReplica, replica: ReplicaKey) -> bool:
        """Whether there is a final verdict."""
        if not self._fits(held):
            logger.warning("node %s holds layer %d, which this model does not offer", session.node_id, held.layer)
            self._failed.add(replica)
            return True
        digests = self._digests(held)
        verdict = Verdict.WRONG_DIGEST if held.sha256 not in digests else self._challenge(key, session, held)
        if verdict is Verdict.NO_ANSWER:
            return False
        self._on_verdict(Verification(self._name, session.node_id, held.claim_id, held.fence, held.sha256, verdict))
        (self._passed if verdict is Verdict.PASSED else self._failed).add(replica)
        logger.info(
            "node %s, layer %d, experts %d-%d: %s", session.node_id, held.layer, held.first, held.last - 1, verdict
        )
        return True


class Verifier(RosterVerifier):
    """Keeps the dispatcher's table true to the roster. on_table: called with every new table."""

    def __init__(
        self,
        index: ModelIndex,
        oracle: ExpertOracle,
        transport: Transport,
        on_table: Callable[[ReplicaTable], None],
        on_verdict: Callable[[Verification], None],
        name: str = "backbone",
    ) -> None:
        super().__init__(on_verdict, name)
        self._index = index
        self._oracle = oracle
        self._transport = transport
        self._on_table = on_table
        self._known_digests: dict[tuple[int, int, int], str] = {}

    def _publish(self, roster: Roster) -> None:
        usable = [
            Replica(
                key,
                session.node_id,
                held.claim_id,
                held.fence,
                held.layer,
                held.first,
                held.last,
                session.kernel_class,
                gives_sums="sums" in _listed(session, "results"),
                takes_q8_0="q8_0" in _listed(session, "rows"),
            )
            for key, session in roster.items()
            for held in session.replicas
            if self._is_usable(held, ReplicaKey(key, held.claim_id, held.fence))
        ]
        self._on_table(ReplicaTable(usable, experts_per_layer=self._index.experts_per_layer))

    def _fits(self, held: HeldReplica) -> bool:
        return held.layer in self._index.offered_layers and held.last <= self._index.experts_per_layer

    def _digests(self, held: HeldReplica) -> Collection[str]:
        where = (held.layer, held.first, held.last)
        if where not in self._known_digests:
            self._known_digests[where] = slice_manifest(plan_slice(self._index, *where)).sha256
        return (self._known_digests[where],)

    def _challenge(self, key: Hashable, session: RosterSession, held: HeldReplica) -> Verdict:
        rows, pairs = challenge_rows(held.first, held.last, self._index.n_embd)
        answered = threading.Event()
        outcomes: list[Outcome] = []

        def on_done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            answered.set()

        request = Dispatch(
            session=key,
            layer=held.layer,
            fence=held.fence,
            claim_id=held.claim_id,
            row_dtype=int(RowType.F32),
            rows=rows,
            pairs=pairs,
            kind="challenge",
        )
        requests = self._transport.submit_many([(request, on_done)])
        if not answered.wait(CHALLENGE_SECONDS):
            self._transport.cancel(requests)
            return Verdict.NO_ANSWER
        outcome = outcomes[0]
        if isinstance(outcome, Failed):
            logger.info("claim %d: the challenge came back as %s", held.claim_id, outcome.code)
            return Verdict.NO_ANSWER
        assert isinstance(outcome, Result)
        expected = self._oracle.compute(held.layer, rows, pairs[:, 1].astype(np.int32))
        same_class = session.kernel_class == self._kernel_class
        right = passes(outcome.values.astype(np.float32, copy=False), expected, same_class=same_class)
        return Verdict.PASSED if right else Verdict.WRONG_ANSWER


def _listed(session: RosterSession, name: str) -> Collection[str]:
    """What the worker says it can do beside what all can; strangers may say anything."""
    listed = session.capabilities.get(name, ())
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else ()
