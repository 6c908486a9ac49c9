"""Manifests of slices, digested once: a slice is read through for its first reader, later ones share the answer.

Digesting a big slice takes a second of one core, so it is done by threads of its own and never twice at once for the
same slice. The cache lives in one process; nothing is stored beyond it, because a fingerprint covers only samples of
the data and must not vouch for a file that changed between two runs.
"""

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from inference.slices import SliceManifest, SlicePlan, slice_manifest

THREADS = 2
ENTRIES = 1024

Key = tuple[str, int, int, int, bool]


class ManifestCache:
    """The last `entries` manifests; safe to use from any thread."""

    def __init__(self, entries: int = ENTRIES) -> None:
        self._entries = entries
        self._lock = Lock()
        self._futures: OrderedDict[Key, Future[SliceManifest]] = OrderedDict()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="manifest")

    def get(self, plan: SlicePlan) -> Future[SliceManifest]:
        """The manifest, or the promise of it; a failure (GGUFError) is told to those who wait and not remembered."""
        key = (plan.build, plan.layer, plan.first, plan.last, plan.without_experts)
        with self._lock:
            future = self._futures.get(key)
            if future is None or (future.done() and (future.cancelled() or future.exception() is not None)):
                future = self._futures[key] = self._threads.submit(slice_manifest, plan)
            self._futures.move_to_end(key)
            while len(self._futures) > self._entries:
                self._futures.popitem(last=False)
            return future
