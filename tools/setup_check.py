"""Proves that the installed llama-cpp-python runs on this processor: one ggml matrix product, one decoded token.

The wheel is compiled for the processor that built it and pip caches it, so on another machine it may die of an illegal
instruction. Each proof therefore runs in a child process. Exit status: 0 works, 3 a child was killed by a signal
(compile again), 1 anything else. Run by `tools/setup.sh`; needs the packages of requirements.txt, nothing of this tree.
"""

import ctypes
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

DEMO_MODEL = Path(__file__).resolve().parent.parent / "models" / "qwen35moe-demo-q4_k_m.gguf"
CHILD_SECONDS = 120
DIED_BY_SIGNAL = 3

# Values of enum ggml_type (ggml.h): the weights of the demo model's experts, and plain floats.
GGML_TYPE_F32 = 0
GGML_TYPE_Q4_K = 12
# Inputs 512 wide: two Q4_K blocks of 256 per row. 32 weight rows, 3 input rows.
N_IN, N_OUT, N_ROWS = 512, 32, 3
ARENA_BYTES = 16 << 20


class GgmlInitParams(ctypes.Structure):
    """struct ggml_init_params of ggml.h."""

    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def load_library(name: str) -> ctypes.CDLL:
    """The very file that llama_cpp loaded: the wheel holds copies under other names, each with a state of its own."""
    import llama_cpp

    return ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / f"{name}.so.0"), mode=ctypes.RTLD_GLOBAL)


def prove_matrix_product() -> None:
    """Multiplies a Q4_K matrix with float rows in ggml's CPU kernels and compares with numpy; raises ValueError."""
    base, cpu = load_library("libggml-base"), load_library("libggml-cpu")
    pointer, int64 = ctypes.c_void_p, ctypes.c_int64
    base.ggml_init.restype, base.ggml_init.argtypes = pointer, [GgmlInitParams]
    base.ggml_new_tensor_2d.restype, base.ggml_new_tensor_2d.argtypes = pointer, [pointer, ctypes.c_int, int64, int64]
    base.ggml_mul_mat.restype, base.ggml_mul_mat.argtypes = pointer, [pointer, pointer, pointer]
    base.ggml_get_data.restype, base.ggml_get_data.argtypes = pointer, [pointer]
    base.ggml_new_graph.restype, base.ggml_new_graph.argtypes = pointer, [pointer]
    base.ggml_build_forward_expand.restype, base.ggml_build_forward_expand.argtypes = None, [pointer, pointer]
    base.ggml_quantize_chunk.restype = ctypes.c_size_t
    base.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, int64, int64, int64, pointer]
    cpu.ggml_cpu_init.restype, cpu.ggml_cpu_init.argtypes = None, []
    cpu.ggml_graph_compute_with_ctx.restype = ctypes.c_int
    cpu.ggml_graph_compute_with_ctx.argtypes = [pointer, pointer, ctypes.c_int]

    random = np.random.default_rng(7)
    weights = random.standard_normal((N_OUT, N_IN), dtype=np.float32)
    rows = random.standard_normal((N_ROWS, N_IN), dtype=np.float32)
    cpu.ggml_cpu_init()
    context = base.ggml_init(GgmlInitParams(ARENA_BYTES, None, False))
    weight_tensor = base.ggml_new_tensor_2d(context, GGML_TYPE_Q4_K, N_IN, N_OUT)
    row_tensor = base.ggml_new_tensor_2d(context, GGML_TYPE_F32, N_IN, N_ROWS)
    base.ggml_quantize_chunk(
        GGML_TYPE_Q4_K, weights.ctypes.data, base.ggml_get_data(weight_tensor), 0, N_OUT, N_IN, None
    )
    ctypes.memmove(base.ggml_get_data(row_tensor), rows.ctypes.data, rows.nbytes)
    product = base.ggml_mul_mat(context, weight_tensor, row_tensor)
    graph = base.ggml_new_graph(context)
    base.ggml_build_forward_expand(graph, product)
    if cpu.ggml_graph_compute_with_ctx(context, graph, 1) != 0:
        raise ValueError("ggml refused to compute a matrix product")
    found = np.empty((N_ROWS, N_OUT), dtype=np.float32)
    ctypes.memmove(found.ctypes.data, base.ggml_get_data(product), found.nbytes)

    # Four bits per weight: measured relative error 0.07 for normal weights; a broken kernel gives about 1.
    error = float(np.linalg.norm(found - rows @ weights.T) / np.linalg.norm(rows @ weights.T))
    if not error < 0.15:
        raise ValueError(f"ggml's matrix product is wrong: relative error {error:.3g}")


def prove_token() -> None:
    """Loads the demo model as the backbone does, decodes one token and asks for finite logits; raises ValueError."""
    import llama_cpp

    llama_cpp.llama_backend_init()
    model_parameters = llama_cpp.llama_model_default_params()
    model_parameters.n_gpu_layers = 0
    # The backbone never uses the repacked kernels: they change the float order, and some virtual machines die of AMX.
    model_parameters.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(str(DEMO_MODEL).encode(), model_parameters)
    if not model:
        raise ValueError(f"llama.cpp could not load {DEMO_MODEL}")
    context_parameters = llama_cpp.llama_context_default_params()
    context_parameters.n_ctx = 64
    context_parameters.n_threads = context_parameters.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(model, context_parameters)
    tokens = (llama_cpp.llama_token * 1)(1)
    if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, 1)) != 0:
        raise ValueError("llama.cpp refused to decode a token")
    vocabulary_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, 0), shape=(vocabulary_size,))
    if not np.isfinite(logits).all():
        raise ValueError("the demo model's logits are not finite")


PROOFS = {"matrix-product": prove_matrix_product, "token": prove_token}


def outcome(returncode: int) -> int:
    """This program's exit status for a child's return code: negative means that a signal ended it."""
    if returncode < 0:
        return DIED_BY_SIGNAL
    return 0 if returncode == 0 else 1


def prove_in_child(name: str) -> int:
    """Runs one proof in a process of its own; shows what it wrote only when it failed; returns the exit status."""
    command = [sys.executable, __file__, name]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        print(f"setup_check: {name} took longer than {CHILD_SECONDS} s", file=sys.stderr)
        return 1
    status = outcome(result.returncode)
    if status:
        print(result.stdout + result.stderr, file=sys.stderr)
    if status == DIED_BY_SIGNAL:
        print(f"setup_check: {name} was ended by {signal.Signals(-result.returncode).name}", file=sys.stderr)
    return status


def main(arguments: list[str]) -> int:
    if arguments:
        PROOFS[arguments[0]]()
        return 0
    for name in PROOFS:
        status = prove_in_child(name)
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
