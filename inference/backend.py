"""A ggml backend of ours inside unpatched llama.cpp: it receives each MoE layer's experts as one graph split.

It registers one device of type ACCEL, as ggml's BLAS backend does. llama.cpp adds such a device to every context, and
the scheduler hands it the operations that `supports_op` claims: `MUL_MAT_ID` over `*_exps.weight`, the SwiGLU between
two of them, and views. What is not recognised as one whole expert layer is delegated to a CPU backend: always right.

Source: ggml 0.25.3 `src/ggml-backend.cpp` (scheduler), llama.cpp `src/llama-graph.cpp` (`build_moe_ffn`).
This module knows hidden states and expert ids; it knows nothing of claims, money or sockets.
"""

import ctypes as C
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from inference import ggml
from inference.errors import InferenceError
from inference.kernel import CpuRuntime, ExpertMatmul, WeightMatrix
from inference.rows import Float32Array, IntArray

logger = logging.getLogger(__name__)

WEIGHT_NAME = re.compile(rb"blk\.(\d+)\.ffn_(gate|up|down|gate_up)_exps\.weight")
NAME, DESCRIPTION = C.create_string_buffer(b"SWARM"), C.create_string_buffer(b"experts of the swarm")
CALLS_KEPT = 1024
PASSIVE_OPS = ("NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE")


class ExpertsMissing(InferenceError):
    """An expert had to be computed here, but its weights are a hole: nobody in the swarm answered for it."""

    code = "experts_missing"


class BackendError(InferenceError):
    """The expert backend cannot be set up in this process."""

    code = "backend_error"


@dataclass
class Lane:
    """One llama.cpp context's share of the backend: its own CPU runtime and its layers' weights."""

    number: int
    runtime: CpuRuntime
    has_weights: bool = True
    matmuls: dict[int, ExpertMatmul] = field(default_factory=dict)
    calls: "dict[int | bytes, ExpertCall]" = field(default_factory=dict)  # by the graph's uid, or what it consists of
    delegated: int = 0

    def require_weights(self) -> None:
        """Raises ExpertsMissing where the experts' weights are holes."""
        if not self.has_weights:
            raise ExpertsMissing("this stage holds no experts, and nobody else computed some that a step needs")

    def close(self) -> None:
        for matmul in self.matmuls.values():
            matmul.close()
        self.matmuls.clear()
        self.calls.clear()
        self.runtime.close()


class ExpertCall:
    """One MoE layer of one step. Arrays are views of llama.cpp's memory, valid during the call only; the same object
    comes again while llama.cpp reuses its graph.

    hidden: (tokens, n_embd) float32, read; expert_ids: (tokens, used) int32, read; output: (tokens, used, n_embd)
    float32, to be filled by `compute_all`, or by `compute` for some (token, slot) pairs and by the caller for the rest.
    Only when the backend takes the router's weights too (`SwarmBackend.takes_weights`): weights (tokens, used) float32,
    read, and weighted (tokens, used, n_embd) float32 = output x weights, which must then be filled as well, and which
    may lie in the same memory as `output`. llama.cpp adds its slots up afterwards.
    """

    __slots__ = ("_lane", "_layer_tensors", "expert_ids", "graph", "hidden", "layer", "output", "weighted", "weights")

    def __init__(self, lane: Lane, graph: int, layer: int, tensors: "LayerTensors") -> None:
        self._lane, self.graph, self._layer_tensors = lane, graph, tensors
        self.layer = layer
        first, down = tensors.products[0].contents, tensors.products[-1].contents
        rows, ids = first.src[1].contents, first.src[2].contents
        tokens, used, n_embd = rows.ne[2], ids.ne[0], rows.ne[0]
        self.hidden: Float32Array = _strided(rows, C.c_float, (tokens, n_embd), (rows.nb[2], rows.nb[0]))
        self.expert_ids: IntArray = _strided(ids, C.c_int32, (tokens, used), (ids.nb[1], ids.nb[0]))
        self.output: Float32Array = _strided(
            down, C.c_float, (tokens, used, down.ne[0]), (down.nb[2], down.nb[1], down.nb[0])
        )
        self.weights: Float32Array | None = None
        self.weighted: Float32Array | None = None
        if tensors.product is not None:
            product = tensors.product.contents
            factor = product.src[1].contents
            self.weights = _strided(factor, C.c_float, (tokens, used), (factor.nb[2], factor.nb[1]))
            self.weighted = _strided(
                product, C.c_float, (tokens, used, product.ne[0]), (product.nb[2], product.nb[1], product.nb[0])
            )

    @property
    def lane_number(self) -> int:
        return self._lane.number

    @property
    def block_type(self) -> int | None:
        """The exact q8 block type of this layer's rows, or None (see `kernel.q8_block_type`)."""
        return self._matmul().block_type

    def compute_all(self) -> None:
        """Computes every pair here, by llama.cpp's own graph: the same work as without this backend."""
        _delegate(self._lane, self.graph)

    def compute(self, tokens: npt.NDArray[np.intp], slots: npt.NDArray[np.intp]) -> None:
        """Computes some (token, slot) pairs here and writes them to `output`.

        To stay exact the pairs of one expert must come in one call (see `inference.kernel`).
        """
        self._lane.require_weights()
        matmul = self._matmul()
        with matmul.runtime.lock:
            prepared = matmul.prepare(len(tokens), typed=False)
            np.take(self.hidden, tokens, axis=0, out=prepared.rows)
            prepared.ids[:] = self.expert_ids[tokens, slots]
            matmul.run(prepared)
            self.output[tokens, slots] = prepared.result

    def _matmul(self) -> ExpertMatmul:
        found = self._lane.matmuls.get(self.layer)
        if found is None:
            weights = [_weight(tensor.contents.src[0].contents) for tensor in self._layer_tensors.products]
            gate, up, down = weights if len(weights) == 3 else (weights[0], None, weights[1])
            found = self._lane.matmuls[self.layer] = ExpertMatmul(self._lane.runtime, gate, up, down)
        return found


Handler = Callable[[ExpertCall], None]


@dataclass(frozen=True)
class LayerTensors:
    """The products of one recognised layer in the order gate, up, down or gate_up, down; product: the down product
    times the router's weights, where it was claimed."""

    products: tuple[Any, ...]
    product: Any = None


class SwarmBackend:
    """The registered device. ggml has no way to take a device back, so there is one per process, for good.

    takes_weights: contexts created from now on hand over the multiplication by the router's weights too. Exact mode
    does without: then that multiplication is none of our business.

    first_layer: the model's number of the layer that the file calls 0, where the file is a stage.

    has_weights: False where the model is a stage without experts: contexts created from now on fail a step
    (llama_decode's code) when an expert would have to be computed here.

    Every callback stays referenced by this object: C keeps their addresses.
    """

    _installed: ClassVar["SwarmBackend | None"] = None

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.takes_weights = False
        self.has_weights = True
        self.first_layer = 0
        self.lanes: list[Lane] = []
        self._library = ggml.load()
        self._lane_settings: tuple[int, int] | None = None
        self._creating = threading.Lock()
        self._contexts: list[tuple[ggml.Backend, Any, Any]] = []
        self._guid = (C.c_uint8 * 16)(*b"expertswarm-ggml")
        self._mul_mat_id, self._glu = self._library.ops["MUL_MAT_ID"], self._library.ops["GLU"]
        self._mul = self._library.ops["MUL"]
        self._passive = frozenset(self._library.ops[name] for name in PASSIVE_OPS)
        self._device = ggml.Device()
        self._registry = ggml.Registry(ggml.BACKEND_API_VERSION)
        self._fill_device()
        self._fill_registry()

    @classmethod
    def install(cls, handler: Handler) -> "SwarmBackend":
        """Registers the backend, or gives the installed one a new handler.

        handler: called in the context's thread for every recognised MoE layer; an exception in it is logged and the
        layer is computed locally. Contexts that exist already are not affected. Raises IncompatibleGgml.
        """
        if cls._installed is None:
            cls._installed = cls(handler)
            cls._installed._library.register(C.addressof(cls._installed._registry))
        cls._installed.handler = handler
        return cls._installed

    @classmethod
    def fills_holes(cls) -> bool:
        """Whether contexts made now may have holes in the place of experts."""
        return cls._installed is not None and not cls._installed.has_weights

    @contextmanager
    def lane(self, number: int, threads: int) -> Iterator[None]:
        """Contexts created inside this block are lane `number` and compute experts on `threads` cores."""
        with self._creating:
            self._lane_settings = (number, threads)
            try:
                yield
            finally:
                self._lane_settings = None

    # --- callbacks of ggml --------------------------------------------------------------------------------------------
    def _fill_device(self) -> None:
        interface = self._device.iface
        interface.get_name = ggml.NameFunction(lambda _: C.addressof(NAME))
        interface.get_description = ggml.NameFunction(lambda _: C.addressof(DESCRIPTION))
        interface.get_memory = ggml.MemoryFunction(self._get_memory)
        interface.get_type = ggml.TypeFunction(lambda _: ggml.DEVICE_TYPE_ACCEL)
        interface.get_props = ggml.PropsFunction(self._get_props)
        interface.init_backend = ggml.InitFunction(self._init_backend)
        interface.get_buffer_type = ggml.BufferTypeFunction(lambda _: self._library.cpu_buffer_type())
        interface.supports_op = ggml.SupportsOpFunction(self._supports_op)
        interface.supports_buft = ggml.SupportsBufferFunction(lambda _, kind: self._library.buft_is_host(kind))
        self._device.reg = C.addressof(self._registry)

    def _fill_registry(self) -> None:
        interface = self._registry.iface
        interface.get_name = ggml.NameFunction(lambda _: C.addressof(NAME))
        interface.get_device_count = ggml.CountFunction(lambda _: 1)
        interface.get_device = ggml.GetDeviceFunction(lambda _, index: C.addressof(self._device))
        interface.get_proc_address = ggml.ProcAddressFunction(lambda _, name: 0)

    @staticmethod
    def _get_memory(_: int, free: Any, total: Any) -> None:
        free[0] = total[0] = 0

    @staticmethod
    def _get_props(_: int, props: Any) -> None:
        props[0] = ggml.DeviceProps(
            NAME.value, DESCRIPTION.value, 0, 0, ggml.DEVICE_TYPE_ACCEL, None, ggml.DeviceCaps(mmap=True)
        )

    def _init_backend(self, _: int, params: bytes) -> int:
        number, threads = self._lane_settings or (len(self.lanes), 1)
        lane = Lane(number, CpuRuntime(threads), self.has_weights)
        backend = ggml.Backend(C.addressof(self._guid))

        def graph_compute(_: int, graph: int) -> int:
            try:
                return self._graph_compute(lane, graph)
            except ExpertsMissing as error:
                logger.error("lane %d: %s", lane.number, error)
                return ggml.STATUS_FAILED
            except Exception:  # an exception must never reach C
                if not lane.has_weights:
                    logger.exception("lane %d: a layer without its experts", lane.number)
                    return ggml.STATUS_FAILED
                logger.exception("lane %d: the whole layer is computed locally", lane.number)
                return self._library.graph_compute(lane.runtime.backend, graph)

        def free(_: int) -> None:
            lane.close()
            if lane in self.lanes:
                self.lanes.remove(lane)

        backend.iface.get_name = self._device.iface.get_name
        backend.iface.free = ggml.FreeFunction(free)
        backend.iface.graph_compute = ggml.ComputeFunction(graph_compute)
        backend.device = C.addressof(self._device)
        self.lanes.append(lane)
        self._contexts.append((backend, graph_compute, free))
        return C.addressof(backend)

    def _supports_op(self, _: int, tensor: Any) -> bool:
        node = tensor.contents
        operation = node.op
        if operation == self._mul_mat_id:
            return bool(node.src[0].contents.name.endswith(b"_exps.weight"))
        if operation == self._glu:
            source = node.src[0].contents
            while source.op in self._passive and source.src[0]:
                source = source.src[0].contents
            return bool(source.op == self._mul_mat_id)
        if operation == self._mul and self.takes_weights:
            return self._is_weighting(node)
        return operation in self._passive

    def _is_weighting(self, node: Any) -> bool:
        """Whether a MUL scales every row of a down product by one number."""
        if not node.src[0] or not node.src[1]:
            return False
        rows, factor = node.src[0].contents, node.src[1].contents
        if rows.op != self._mul_mat_id or not rows.src[0].contents.name.endswith(b"ffn_down_exps.weight"):
            return False
        shapes = (factor.ne[0], factor.ne[1], factor.ne[2]), (1, rows.ne[1], rows.ne[2])
        return bool(shapes[0] == shapes[1] and factor.type == ggml.TYPE_F32)

    def _graph_compute(self, lane: Lane, graph: int) -> int:
        # llama.cpp runs the same allocated graph again while the batch keeps its shape; the scheduler gives every new
        # split another uid, so a known uid means the same tensors at the same addresses.
        # Where a context looks at its tensors (a stage does) the split comes as a view without a uid, on C's stack.
        key = ggml.Graph.from_address(graph).uid or _contents(graph)
        call = lane.calls.get(key)
        if call is not None:
            call.graph = graph
        else:
            call = self._call(lane, graph)
            if call is None:
                self._check_delegated(lane, graph)
                lane.delegated += 1
                return self._library.graph_compute(lane.runtime.backend, graph)
            if len(lane.calls) >= CALLS_KEPT:
                lane.calls.clear()
            lane.calls[key] = call
        self.handler(call)
        return ggml.STATUS_SUCCESS

    def _check_delegated(self, lane: Lane, graph: int) -> None:
        """Raises ExpertsMissing where a split that is computed by llama.cpp's own code needs experts that are holes."""
        split = ggml.Graph.from_address(graph)
        if any(split.nodes[index].contents.op == self._mul_mat_id for index in range(split.n_nodes)):
            lane.require_weights()

    def _call(self, lane: Lane, graph: int) -> ExpertCall | None:
        """The expert layer that the split is, or None when it is anything else."""
        split = ggml.Graph.from_address(graph)
        recognised = self._recognise([split.nodes[index] for index in range(split.n_nodes)])
        if recognised is None:
            return None
        layer, tensors = recognised
        return ExpertCall(lane, graph, self.first_layer + layer, tensors)

    def _recognise(self, nodes: list[Any]) -> tuple[int, LayerTensors] | None:
        """The layer and its products when the split is exactly one SwiGLU expert layer, else None."""
        products: dict[bytes, Any] = {}
        layer, glu, product = -1, None, None
        for node in nodes:
            tensor = node.contents
            if tensor.op == self._mul_mat_id:
                match = WEIGHT_NAME.fullmatch(tensor.src[0].contents.name)
                if match is None or match[2] in products or (products and int(match[1]) != layer):
                    return None
                layer = int(match[1])
                products[match[2]] = node
            elif tensor.op == self._glu:
                if glu is not None:
                    return None
                glu = tensor
            elif tensor.op == self._mul and product is None and self._is_weighting(tensor):
                product = node
            elif tensor.op not in self._passive:
                return None
        if glu is None or glu.op_params[0] != ggml.GLU_OP_SWIGLU or glu.op_params[1] != 0:
            return None
        if set(products) == {b"gate", b"up", b"down"}:
            order: tuple[Any, ...] = (products[b"gate"], products[b"up"], products[b"down"])
        elif set(products) == {b"gate_up", b"down"}:
            order = (products[b"gate_up"], products[b"down"])
        else:
            return None
        if product is not None and C.addressof(product.contents.src[0].contents) != C.addressof(order[-1].contents):
            return None
        return (layer, LayerTensors(order, product)) if self._is_expert_layer(order, glu) else None

    @staticmethod
    def _is_expert_layer(products: tuple[Any, ...], glu: Any) -> bool:
        """Whether the products form gate/up -> SwiGLU -> down over one set of rows and ids."""
        first, down = products[0].contents, products[-1].contents
        inner = products[:-1]
        sources = [glu.src[index].contents for index in range(2) if glu.src[index]]
        if len(sources) != 2:
            return False
        owners = []
        for source in sources:
            while source.view_src:
                source = source.view_src.contents
            owners.append(C.addressof(source))
        expected = [C.addressof(product.contents) for product in inner]
        rows = C.addressof(first.src[1].contents)
        return (
            owners == (expected if len(inner) == 2 else expected * 2)
            and all(C.addressof(product.contents.src[1].contents) == rows for product in inner)
            and C.addressof(down.src[1].contents) == C.addressof(glu)
            and len({C.addressof(product.contents.src[2].contents) for product in products}) == 1
            and first.src[1].contents.ne[1] == 1
            and first.src[1].contents.type == ggml.TYPE_F32
        )


def _contents(graph: int) -> bytes:
    """The structs of a graph's tensors and of their sources: equal bytes are the same tensors at the same addresses."""
    split = ggml.Graph.from_address(graph)
    found = []
    for node in (split.nodes[index].contents for index in range(split.n_nodes)):
        found.append(bytes(node))
        found += [bytes(node.src[index].contents) for index in range(3) if node.src[index]]
    return b"".join(found)


def _delegate(lane: Lane, graph: int) -> None:
    lane.require_weights()
    status = lane.runtime.ggml.graph_compute(lane.runtime.backend, graph)
    if status != ggml.STATUS_SUCCESS:
        raise BackendError(f"ggml could not compute the layer (status {status})")


def _weight(tensor: Any) -> WeightMatrix:
    return WeightMatrix(tensor.data, tensor.type, tensor.ne[0], tensor.ne[1], tensor.ne[2])


def _strided(tensor: Any, kind: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> npt.NDArray[Any]:
    """A numpy view of a tensor with byte strides, outermost first; shapes of zero tokens never reach a backend."""
    size = sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True)) + C.sizeof(kind)
    memory = memoryview((C.c_uint8 * size).from_address(tensor.data))
    return np.ndarray(shape, np.dtype(kind), buffer=memory, strides=strides)
