"""Builds the browser worker's kernel: `python -m frontend.browser_worker.build [OUTPUT]`, or `make wasm`.

zig's C compiler comes from PyPI (`ziglang`, pinned in requirements-dev.txt); one version of it gives the same bytes
everywhere, so the built file is committed and a test compares it.
"""

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "kernel"
WASM = Path(__file__).resolve().parents[1] / "static" / "worker" / "kernel.wasm"
FLAGS = [
    "--target=wasm32-freestanding",
    "-mcpu=mvp+simd128+bulk_memory+sign_ext+nontrapping_fptoint",
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


def build(output: Path) -> None:
    """Compiles the kernel into `output`. Raises BuildFailed."""
    try:
        importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError as error:
        raise BuildFailed("ziglang is missing: `make setup` installs requirements-dev.txt") from error
    sources = sorted(path.name for path in SOURCES.glob("*.c"))
    with tempfile.TemporaryDirectory(prefix="expertswarm-wasm-") as cache:
        folders = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        # Names relative to SOURCES: no path of this machine can get into the file.
        result = subprocess.run(
            [sys.executable, "-m", "ziglang", "cc", *FLAGS, *sources, "-o", str(output.resolve())],
            cwd=SOURCES,
            env={**os.environ, **folders},
            capture_output=True,
            text=True,
            check=False,
        )
    if result.returncode:
        raise BuildFailed(result.stderr)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else WASM
    target.parent.mkdir(parents=True, exist_ok=True)
    build(target)
    print(f"{target}: {target.stat().st_size} bytes")
