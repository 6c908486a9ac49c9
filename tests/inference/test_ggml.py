"""inference/ggml.py: which libraries the bindings take."""

import subprocess
import sys

from tests.model_files import DEMO_MODEL

ROOT = DEMO_MODEL.parent.parent
# In a process of its own: a second copy of ggml would stay loaded.
SECOND_COPY = """
import shutil, sys, tempfile
from pathlib import Path
from inference import ggml
from inference.errors import InferenceError

llama = ggml.llama_library()
ggml.check_shared(llama, ggml.load())
with tempfile.TemporaryDirectory() as name:
    copy = Path(name) / "lib"
    shutil.copytree(Path(llama._name).parent, copy)
    try:
        ggml.check_shared(llama, ggml.Ggml(copy))
    except InferenceError as error:
        print(error.code, "another copy of ggml" in str(error))
"""


def test_a_second_copy_of_ggml_is_refused_because_llama_cpp_would_never_see_our_backend() -> None:
    run = subprocess.run([sys.executable, "-c", SECOND_COPY], cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["incompatible_ggml", "True"]
