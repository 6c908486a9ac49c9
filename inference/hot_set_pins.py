"""Keeps the hot set's bytes in RAM: the model's files mapped a second time, the ranges of its experts locked.

The pages of a file are shared by all mappings, so what is locked here llama.cpp finds in RAM. Locking needs a limit
(`ulimit -l`) above the bytes; where it is not allowed, the kernel is asked to read the ranges ahead and may drop them
again: reported, not fatal. Knows files and byte ranges; nothing of layers' loads or plans.
"""

import ctypes
import mmap
import os
import resource
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference.gguf_index import ModelIndex

Flags = npt.NDArray[np.bool_]

PAGE = mmap.PAGESIZE
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def memory_bytes() -> int:
    """RAM that this process may use: the machine's, or its control group's limit if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = CGROUP_LIMIT.read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


class Pins:
    """One per process; used by one thread. `error`: why not everything is locked, empty while it is."""

    def __init__(self, index: ModelIndex) -> None:
        self._index = index
        self._maps: dict[Path, mmap.mmap] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        for name in ("mlock", "munlock"):
            getattr(self._libc, name).argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._locked: set[tuple[int, int]] = set()
        self.error = ""

    @property
    def bytes(self) -> int:
        """Of the experts that are locked."""
        return sum(self._index.layers[layer].expert_bytes for layer, _ in self._locked)

    def keep(self, flags: Flags) -> None:
        """Locks the experts of `flags` (layers, experts) and releases all others."""
        wanted = {(int(layer), int(expert)) for layer, expert in np.argwhere(flags)}
        leaving = self._locked - wanted
        for layer, expert in leaving:
            self._release(layer, expert)
        # Neighbours share a page, and locks do not count: what stays is locked again. It is in RAM, so this is quick.
        again = {(layer, expert + step) for layer, expert in leaving for step in (-1, 1)} & self._locked & wanted
        self._locked &= wanted
        self.error = ""
        for layer, expert in sorted(again | (wanted - self._locked)):
            if self._lock(layer, expert):
                self._locked.add((layer, expert))
            else:
                self._locked.discard((layer, expert))

    def close(self) -> None:
        """Unmapping releases every lock."""
        self._locked.clear()
        for mapped in self._maps.values():
            mapped.close()
        self._maps.clear()

    def _lock(self, layer: int, expert: int) -> bool:
        done = True
        for mapped, start, size in self._ranges(layer, expert):
            if not self.error and not self._call("mlock", mapped, start, size):
                code = ctypes.get_errno()
                self.error = f"{os.strerror(code)}: raise `ulimit -l` or give CAP_IPC_LOCK"
            if self.error:  # no second try in this round: the limit stands
                mapped.madvise(mmap.MADV_WILLNEED, start, min(size, len(mapped) - start))
                done = False
        return done

    def _release(self, layer: int, expert: int) -> None:
        for mapped, start, size in self._ranges(layer, expert):
            self._call("munlock", mapped, start, size)

    def _call(self, name: str, mapped: mmap.mmap, start: int, size: int) -> bool:
        view = np.frombuffer(mapped, np.uint8)
        return int(getattr(self._libc, name)(view.ctypes.data + start, size)) == 0

    def _ranges(self, layer: int, expert: int) -> list[tuple[mmap.mmap, int, int]]:
        """(mapping, first byte, size) of each tensor's part, in whole pages."""
        found = []
        for tensor in self._index.layers[layer].tensors:
            start = tensor.offset + expert * tensor.expert_bytes
            page = start - start % PAGE
            found.append((self._map(tensor.file), page, start + tensor.expert_bytes - page))
        return found

    def _map(self, path: Path) -> mmap.mmap:
        found = self._maps.get(path)
        if found is None:
            raise_lock_limit()
            with path.open("rb") as file:
                found = self._maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return found


def raise_lock_limit() -> None:
    """Takes all that this user may lock; a service usually starts with less."""
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
