"""Builds the browser worker's kernel, with and without threads: `python -m frontend.browser_worker.build`, `make wasm`.

zig's C compiler comes from PyPI (`ziglang`, pinned in requirements-dev.txt); one version of it gives the same bytes
everywhere, so the built files are committed and a test compares them.
"""

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "kernel"
FOLDER = Path(__file__).resolve().parents[1] / "static" / "worker"
CPU = "-mcpu=mvp+simd128+bulk_memory+sign_ext+nontrapping_fptoint"
# What is built, and with which flags beside the common ones. Threads share a memory that JavaScript makes; each sets
# its own stack pointer.
BUILDS = {
    "kernel.wasm": [CPU],
    "kernel_threads.wasm": [
        CPU + "+atomics+mutable_globals",
        "-DTHREADS",
        "-Wl,--import-memory",
        "-Wl,--shared-memory",
        "-Wl,--max-memory=4294901760",
        "-Wl,--export=__stack_pointer",
    ],
}
FLAGS = [
    "--target=wasm32-freestanding",
    "-std=c17",
    "-O3",
    "-ffp-contract=off",  # the same roundings whatever the compiler could fuse
    "-fno-sanitize=undefined",
    "-fvisibility=hidden",
    "-nostdlib",
    "-mllvm",
    "-disable-lsr",  # strength reduction spoils the constant offsets of loads: an addition more for each
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-int-to-pointer-cast",
    "-Wno-pointer-to-int-cast",
    "-Wl,--no-entry",
    "-Wl,--strip-all",
    "-Wl,--export=__heap_base",
    "-Wl,-z,stack-size=65536",
]


class BuildFailed(RuntimeError):
    """The compiler is missing or refused the sources."""


def build(folder: Path) -> list[Path]:
    """Compiles all of BUILDS into `folder`. Raises BuildFailed."""
    try:
        importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError as error:
        raise BuildFailed("ziglang is missing: `make setup` installs requirements-dev.txt") from error
    return [_compile(folder / name, flags) for name, flags in BUILDS.items()]


def _compile(output: Path, flags: list[str]) -> Path:
    sources = sorted(path.name for path in SOURCES.glob("*.c"))
    with tempfile.TemporaryDirectory(prefix="expertswarm-wasm-") as cache:
        folders = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        # Names relative to SOURCES: no path of this machine can get into the file.
        result = subprocess.run(
            [sys.executable, "-m", "ziglang", "cc", *FLAGS, *flags, *sources, "-o", str(output.resolve())],
            cwd=SOURCES,
            env={**os.environ, **folders},
            capture_output=True,
            text=True,
            check=False,
        )
    if result.returncode:
        raise BuildFailed(result.stderr)
    return output


if __name__ == "__main__":
    for built in build(FOLDER):
        print(f"{built}: {built.stat().st_size} bytes")
