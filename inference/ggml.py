"""ctypes bindings of the ggml functions and structs that we use: name, arguments and result declared once, together.

Source: ggml 0.25.3 (`include/ggml.h`, `include/ggml-cpu.h`, `src/ggml-backend-impl.h`) as shipped in llama-cpp-python
0.3.36, GGML_BACKEND_API_VERSION 2. The struct layouts hold for that version only, so `load` refuses any other.

The wheel holds *copies* of each library under several names: only the very files that llama_cpp loaded (`*.so.0`) share
their registry and their state with the libllama in use.
"""

import ctypes as C
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inference.errors import InferenceError

SUPPORTED_VERSION = "0.25.3"
BACKEND_API_VERSION = 2

TYPE_F32, TYPE_F16, TYPE_Q8_0, TYPE_Q8_K, TYPE_I32, TYPE_BF16 = 0, 1, 8, 15, 26, 30
DEVICE_TYPE_ACCEL = 3
GLU_OP_SWIGLU = 2
STATUS_SUCCESS, STATUS_FAILED = 0, -1

Pointer = C.c_void_p
Prototype = C.CFUNCTYPE


class IncompatibleGgml(InferenceError):
    """The ggml that llama-cpp-python brought is not the one these bindings were written for, or is missing."""

    code = "incompatible_ggml"


class Tensor(C.Structure):
    """struct ggml_tensor (`ggml.h`): ne = elements per dimension, nb = byte strides, innermost first."""


TensorPointer = C.POINTER(Tensor)
Tensor._fields_ = [
    ("type", C.c_int),
    ("buffer", Pointer),
    ("ne", C.c_int64 * 4),
    ("nb", C.c_size_t * 4),
    ("op", C.c_int),
    ("op_params", C.c_int32 * 16),
    ("flags", C.c_int32),
    ("src", TensorPointer * 10),
    ("view_src", TensorPointer),
    ("view_offs", C.c_size_t),
    ("data", Pointer),
    ("name", C.c_char * 64),
    ("extra", Pointer),
    ("padding", C.c_char * 8),
]


class HashSet(C.Structure):
    """struct ggml_hash_set (`ggml-impl.h`)."""

    _fields_ = (("size", C.c_size_t), ("used", Pointer), ("keys", Pointer))


class Graph(C.Structure):
    """struct ggml_cgraph (`ggml-impl.h`). uid: set anew whenever the scheduler splits or allocates; 0: never set."""

    _fields_ = (
        ("size", C.c_int),
        ("n_nodes", C.c_int),
        ("n_leafs", C.c_int),
        ("nodes", C.POINTER(TensorPointer)),
        ("grads", Pointer),
        ("grad_accs", Pointer),
        ("leafs", Pointer),
        ("use_counts", Pointer),
        ("visited", HashSet),
        ("order", C.c_int),
        ("uid", C.c_uint64),
    )


class InitParams(C.Structure):
    """struct ggml_init_params."""

    _fields_ = (("mem_size", C.c_size_t), ("mem_buffer", Pointer), ("no_alloc", C.c_bool))


class DeviceCaps(C.Structure):
    """struct ggml_backend_dev_caps."""

    _fields_ = tuple((name, C.c_bool) for name in ("async_", "host_buffer", "buffer_from_host_ptr", "events", "mmap"))


class DeviceProps(C.Structure):
    """struct ggml_backend_dev_props."""

    _fields_ = (
        ("name", C.c_char_p),
        ("description", C.c_char_p),
        ("memory_free", C.c_size_t),
        ("memory_total", C.c_size_t),
        ("type", C.c_int),
        ("device_id", C.c_char_p),
        ("caps", DeviceCaps),
    )


# A char pointer as an address: ctypes cannot keep a bytes object alive that a callback returns.
NameFunction = Prototype(Pointer, Pointer)
FreeFunction = Prototype(None, Pointer)
ComputeFunction = Prototype(C.c_int, Pointer, Pointer)
MemoryFunction = Prototype(None, Pointer, C.POINTER(C.c_size_t), C.POINTER(C.c_size_t))
TypeFunction = Prototype(C.c_int, Pointer)
PropsFunction = Prototype(None, Pointer, C.POINTER(DeviceProps))
InitFunction = Prototype(Pointer, Pointer, C.c_char_p)
BufferTypeFunction = Prototype(Pointer, Pointer)
SupportsOpFunction = Prototype(C.c_bool, Pointer, TensorPointer)
SupportsBufferFunction = Prototype(C.c_bool, Pointer, Pointer)
CountFunction = Prototype(C.c_size_t, Pointer)
GetDeviceFunction = Prototype(Pointer, Pointer, C.c_size_t)
ProcAddressFunction = Prototype(Pointer, Pointer, C.c_char_p)


class BackendInterface(C.Structure):
    """struct ggml_backend_i."""

    _fields_ = (
        ("get_name", NameFunction),
        ("free", FreeFunction),
        *(
            (name, Pointer)
            for name in (
                "set_tensor_async",
                "get_tensor_async",
                "set_tensor_2d_async",
                "get_tensor_2d_async",
                "cpy_tensor_async",
                "synchronize",
                "graph_plan_create",
                "graph_plan_free",
                "graph_plan_update",
                "graph_plan_compute",
            )
        ),
        ("graph_compute", ComputeFunction),
        *((name, Pointer) for name in ("event_record", "event_wait", "graph_optimize")),
    )


class Backend(C.Structure):
    """struct ggml_backend."""

    _fields_ = (("guid", Pointer), ("iface", BackendInterface), ("device", Pointer), ("context", Pointer))


class DeviceInterface(C.Structure):
    """struct ggml_backend_device_i."""

    _fields_ = (
        ("get_name", NameFunction),
        ("get_description", NameFunction),
        ("get_memory", MemoryFunction),
        ("get_type", TypeFunction),
        ("get_props", PropsFunction),
        ("init_backend", InitFunction),
        ("get_buffer_type", BufferTypeFunction),
        ("get_host_buffer_type", Pointer),
        ("buffer_from_host_ptr", Pointer),
        ("supports_op", SupportsOpFunction),
        ("supports_buft", SupportsBufferFunction),
        *((name, Pointer) for name in ("offload_op", "event_new", "event_free", "event_synchronize")),
    )


class Device(C.Structure):
    """struct ggml_backend_device."""

    _fields_ = (("iface", DeviceInterface), ("reg", Pointer), ("context", Pointer))


class RegistryInterface(C.Structure):
    """struct ggml_backend_reg_i."""

    _fields_ = (
        ("get_name", NameFunction),
        ("get_device_count", CountFunction),
        ("get_device", GetDeviceFunction),
        ("get_proc_address", ProcAddressFunction),
    )


class Registry(C.Structure):
    """struct ggml_backend_reg."""

    _fields_ = (("api_version", C.c_int), ("iface", RegistryInterface), ("context", Pointer))


FromFloat = Prototype(None, Pointer, Pointer, C.c_int64)


class CpuTypeTraits(C.Structure):
    """struct ggml_type_traits_cpu: vec_dot_type is the type in which a row meets weights of this type."""

    _fields_ = (("from_float", FromFloat), ("vec_dot", Pointer), ("vec_dot_type", C.c_int), ("nrows", C.c_int64))


def _declare(library: C.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, list(arguments)
    return function


class Ggml:
    """The loaded libraries; attributes are the C functions under their own names without the `ggml_` prefix."""

    def __init__(self, folder: Path) -> None:
        base, cpu, registry = (
            C.CDLL(str(folder / f"{name}.so.0"), mode=C.RTLD_GLOBAL)
            for name in ("libggml-base", "libggml-cpu", "libggml")
        )
        self.version: str = _declare(base, "ggml_version", C.c_char_p)().decode()
        check_version(self.version)
        tensor, i64 = TensorPointer, C.c_int64
        self.op_name = _declare(base, "ggml_op_name", C.c_char_p, C.c_int)
        self.type_name = _declare(base, "ggml_type_name", C.c_char_p, C.c_int)
        self.row_size: Callable[[int, int], int] = _declare(base, "ggml_row_size", C.c_size_t, C.c_int, i64)
        self.blck_size: Callable[[int], int] = _declare(base, "ggml_blck_size", i64, C.c_int)
        self.init = _declare(base, "ggml_init", Pointer, InitParams)
        self.free = _declare(base, "ggml_free", None, Pointer)
        self.new_tensor = _declare(base, "ggml_new_tensor", tensor, Pointer, C.c_int, C.c_int, C.POINTER(i64))
        self.view_3d = _declare(
            base, "ggml_view_3d", tensor, Pointer, tensor, i64, i64, i64, C.c_size_t, C.c_size_t, C.c_size_t
        )
        self.mul_mat_id = _declare(base, "ggml_mul_mat_id", tensor, Pointer, tensor, tensor, tensor)
        self.swiglu_split = _declare(base, "ggml_swiglu_split", tensor, Pointer, tensor, tensor)
        self.new_graph_custom = _declare(base, "ggml_new_graph_custom", Pointer, Pointer, C.c_size_t, C.c_bool)
        self.build_forward_expand = _declare(base, "ggml_build_forward_expand", None, Pointer, tensor)
        self.graph_overhead_custom: Callable[[int, bool], int] = _declare(
            base, "ggml_graph_overhead_custom", C.c_size_t, C.c_size_t, C.c_bool
        )
        self.tensor_overhead: Callable[[], int] = _declare(base, "ggml_tensor_overhead", C.c_size_t)
        self.quantize_chunk = _declare(
            base, "ggml_quantize_chunk", C.c_size_t, C.c_int, Pointer, Pointer, i64, i64, i64, Pointer
        )
        self.cpu_buffer_type = _declare(base, "ggml_backend_cpu_buffer_type", Pointer)
        self.buft_is_host = _declare(base, "ggml_backend_buft_is_host", C.c_bool, Pointer)
        self.cpu_buffer_from_ptr = _declare(base, "ggml_backend_cpu_buffer_from_ptr", Pointer, Pointer, C.c_size_t)
        self.buffer_free = _declare(base, "ggml_backend_buffer_free", None, Pointer)
        self.tensor_alloc = _declare(base, "ggml_backend_tensor_alloc", C.c_int, Pointer, tensor, Pointer)
        self.tensor_get = _declare(base, "ggml_backend_tensor_get", None, Pointer, Pointer, C.c_size_t, C.c_size_t)
        self.view_init = _declare(base, "ggml_backend_view_init", C.c_int, tensor)
        self.graph_compute: Callable[[int, int], int] = _declare(
            base, "ggml_backend_graph_compute", C.c_int, Pointer, Pointer
        )
        self.backend_free = _declare(base, "ggml_backend_free", None, Pointer)
        self.cpu_init: Callable[[], int] = _declare(cpu, "ggml_backend_cpu_init", Pointer)
        self.cpu_set_n_threads = _declare(cpu, "ggml_backend_cpu_set_n_threads", None, Pointer, C.c_int)
        self.type_traits_cpu = _declare(cpu, "ggml_get_type_traits_cpu", C.POINTER(CpuTypeTraits), C.c_int)
        self.cpu_features = {
            name: bool(_declare(cpu, f"ggml_cpu_has_{name}", C.c_int)())
            for name in (
                "avx",
                "avx2",
                "avx512",
                "avx512_vnni",
                "avx_vnni",
                "fma",
                "neon",
                "dotprod",
                "matmul_int8",
                "sve",
            )
        }
        self.register = _declare(registry, "ggml_backend_register", None, Pointer)
        self.ops = self._op_numbers()

    def _op_numbers(self) -> dict[str, int]:
        """Operation name -> number, read from the library, because enum values move between versions."""
        numbers: dict[str, int] = {}
        for number in range(256):
            name = self.op_name(number).decode()
            numbers[name] = number
            if name == "GLU":  # the last entry of the table; reading past it is undefined
                return numbers
        raise IncompatibleGgml("ggml has no GLU operation where 0.25.3 has it")

    def vec_dot_type(self, weight_type: int) -> int:
        """The type to which rows are converted before they meet weights of `weight_type`."""
        return int(self.type_traits_cpu(weight_type).contents.vec_dot_type)


def check_version(version: str) -> None:
    """Raises IncompatibleGgml unless `version` is the one whose struct layouts stand above."""
    if version != SUPPORTED_VERSION:
        raise IncompatibleGgml(
            f"these bindings are written for ggml {SUPPORTED_VERSION}, but llama-cpp-python brought {version}: "
            "install llama-cpp-python==0.3.36 (see requirements.txt)"
        )


def llama_library() -> C.CDLL:
    """What llama_cpp loaded; raises IncompatibleGgml when llama-cpp-python cannot be imported."""
    try:
        from llama_cpp import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise IncompatibleGgml(f"llama-cpp-python cannot be loaded: {error}") from error
    library: C.CDLL = llama_cpp._lib
    return library


@functools.cache
def load() -> Ggml:
    """The bindings, loaded once per process; raises IncompatibleGgml with what to do."""
    llama = llama_library()
    folder = Path(llama._name).parent
    try:
        ggml = Ggml(folder)
        check_shared(llama, ggml)
    except (OSError, AttributeError) as error:
        raise IncompatibleGgml(f"the ggml libraries in {folder} cannot be used: {error}") from error
    return ggml


def check_shared(llama: C.CDLL, ggml: Ggml) -> None:
    """Raises IncompatibleGgml when llama.cpp uses another copy of ggml than these bindings.

    It would never see a backend that is registered here, and compute everything itself without a word: libraries that
    were copied out of a build tree still look for each other there.
    """
    theirs = C.cast(llama.ggml_backend_register, C.c_void_p).value
    if theirs != C.cast(ggml.register, C.c_void_p).value:
        raise IncompatibleGgml(
            f"llama.cpp in {llama._name} uses another copy of ggml than the one beside it: install llama-cpp-python "
            "anew, or set LLAMA_CPP_LIB_PATH to the folder in which the libraries were built"
        )
