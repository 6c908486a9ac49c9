"""Keeps glibc from giving every freed message back to the system, only to fetch the same pages again.

A message of some 100 kB lives for a millisecond. By default glibc maps buffers of that size anew each time, and the
system clears every page of them: half of the time that a relay spends on a message of 512 kB.
"""

import ctypes
import sys

# malloc.h; a value that is set also ends glibc's own adjustment of both thresholds.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
KEPT_BYTES = 16 << 20
MAPPED_BYTES = 4 << 20
TOP_PAD_BYTES = 2 << 20


def keep_freed_memory() -> bool:
    """Up to KEPT_BYTES that were freed stay with this process; False where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    wishes = {M_TRIM_THRESHOLD: KEPT_BYTES, M_MMAP_THRESHOLD: MAPPED_BYTES, M_TOP_PAD: TOP_PAD_BYTES}
    # musl has the name and refuses.
    return all(mallopt(number, value) == 1 for number, value in wishes.items())
