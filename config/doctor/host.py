"""Looks at this machine: settings, file limits, folders, the model file and the memory that it needs."""

import os
import resource
import shutil
from collections.abc import Iterator

from django.conf import settings
from django.core import checks

from config.doctor.deployment import Deployment
from config.doctor.findings import Finding, error, fine, warning
from inference.errors import InferenceError
from inference.gguf_index import open_index
from inference.gguf_split import read_parts
from relay.connection import MAX_CONNECTIONS

# A relay may hold MAX_CONNECTIONS sessions, and as many HTTP connections beside them.
FILES_WANTED = 2 * MAX_CONNECTIONS
FREE_BYTES = 2 << 30
GIBIBYTE = 1 << 30


def configuration(deployment: Deployment) -> Iterator[Finding]:
    """`manage.py check --deploy`; on an embedded server only what is always wrong."""
    found = [
        message
        for message in checks.run_checks(include_deployment_checks=not deployment.is_embedded)
        if not message.is_silenced()
    ]
    for message in found:
        make = error if message.level >= checks.ERROR else warning
        hint = str(message.hint or "`manage.py check --deploy` tells more.")
        yield make(f"settings {message.id}", str(message.msg).splitlines()[0], hint)
    if not found:
        yield fine("settings", "no impossible or unsafe combination")


def file_limits(deployment: Deployment) -> Iterator[Finding]:
    wanted = FILES_WANTED if not deployment.is_embedded else 1024
    for name, pid in deployment.pids.items():
        if name.startswith("local-"):
            continue
        try:
            soft, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        except (OSError, ValueError):
            continue  # it has just ended, or is another user's
        if soft < wanted and name in {"web", "this process"}:
            todo = "Set LimitNOFILE=65536 in the unit (deploy/systemd), or `ulimit -n 65536` before the start."
            yield warning("file limit", f"{name} may open {soft} files; a full relay needs {wanted}", todo)
        elif name in {"web", "this process"}:
            yield fine("file limit", f"{name} may open {soft} files")


def folders(deployment: Deployment) -> Iterator[Finding]:
    var_dir = deployment.var_dir
    if not os.access(var_dir, os.W_OK):
        yield error("folder", f"{var_dir} cannot be written", "Correct VAR_DIR or its owner: credit is spooled there.")
        return
    if var_dir.stat().st_mode & 0o077:
        yield warning("folder", f"others may enter {var_dir}", f"Run `chmod 700 {var_dir}`: secrets lie there.")
    free = shutil.disk_usage(var_dir).free
    what = f"{free / GIBIBYTE:.1f} GiB are free at {var_dir}"
    if free < FREE_BYTES:
        yield warning("disk", what, "Make room: spools and logs lie there.")
    else:
        yield fine("disk", what)


def model(deployment: Deployment) -> Iterator[Finding]:
    """The file, and whether its bytes fit into the memory of this machine."""
    path = deployment.model
    try:
        index = open_index(path)
    except (InferenceError, OSError) as problem:
        todo = "Correct MODEL_PATH; of a split set it names the first part, with the others beside it."
        yield error("model", f"{path}: {problem}", todo)
        return
    size = sum(part.stat().st_size for part, _ in read_parts(path))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    what = f"{index.name}, {size / GIBIBYTE:.2f} GiB, build {index.fingerprint[:8]}"
    if size > memory:
        todo = "Add memory, or a faster disk: every expert must be at hand when a worker is late."
        yield warning("model", f"{what}; this machine has {memory / GIBIBYTE:.0f} GiB of memory", todo)
    else:
        yield fine("model", what)


def gpu(deployment: Deployment) -> Iterator[Finding]:
    if not settings.BACKBONE_GPU_LAYERS:
        return
    import llama_cpp

    if llama_cpp.llama_supports_gpu_offload():
        yield fine("gpu", f"llama.cpp was built for one; {settings.BACKBONE_GPU_LAYERS} layers go there")
    else:
        todo = "Build llama-cpp-python for it (docs/deploy.md), or set BACKBONE_GPU_LAYERS=0."
        yield error("gpu", "BACKBONE_GPU_LAYERS is set, but llama.cpp was built without a GPU", todo)
