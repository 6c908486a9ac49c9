import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from inference.errors import DenseModel, GGUFError, NotGGUF, Truncated
from inference.gguf_index import SWIGLU_ARCHITECTURES, open_index
from inference.synthetic import demo_variant, small_gpt_oss, small_qwen35moe, sparse122b, split
from tests.model_files import DEMO_MODEL, tiny_moe

# The peak comes from the process's own memory map: ru_maxrss would count the test run that it was forked from.
MEASURE = """
import sys, time
from pathlib import Path
start = time.perf_counter()
from inference.gguf_index import open_index
index = open_index(Path(sys.argv[1]))
seconds = time.perf_counter() - start
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(seconds, status["VmHWM"].split()[0], len(index.layers))
"""


def test_it_finds_what_the_gguf_package_finds_in_the_demo_model() -> None:
    oracle = {tensor.name: tensor for tensor in gguf.GGUFReader(DEMO_MODEL).tensors}

    index = open_index(DEMO_MODEL)

    assert (index.name, index.architecture, index.trunk_layers) == ("qwen35moe-demo", "qwen35moe", 8)
    assert (index.n_embd, index.n_ff, index.experts_per_layer, index.experts_used) == (256, 256, 32, 4)
    assert index.offered_layers == tuple(range(8))
    assert index.total_bytes == sum(tensor.n_bytes for tensor in oracle.values())
    assert index.routed_bytes == sum(t.n_bytes for name, t in oracle.items() if "_exps." in name)
    for layer in index.layers.values():
        assert [tensor.role for tensor in layer.tensors] == ["gate", "up", "down"]
        for tensor in layer.tensors:
            known = oracle[tensor.name]
            assert (tensor.offset, tensor.ggml_type) == (known.data_offset, int(known.tensor_type))
            assert tensor.expert_bytes * tensor.experts == known.n_bytes


def test_it_reads_the_type_of_every_tensor(tmp_path: Path) -> None:
    path = demo_variant(tmp_path / "mixed.gguf", down_in_layers={2: "Q6_K"})

    index = open_index(path)

    assert index.layers[1].type_names == ("Q4_K", "Q4_K", "Q4_K")
    assert index.layers[2].type_names == ("Q4_K", "Q4_K", "Q6_K")
    assert index.layers[2].expert_bytes == 2 * 36864 + 53760


def test_gate_and_up_may_be_merged(tmp_path: Path) -> None:
    index = open_index(demo_variant(tmp_path / "merged.gguf", merged=True))

    layer = index.layers[7]
    assert layer.merged
    assert [(t.role, t.n_in, t.n_out) for t in layer.tensors] == [("gate_up", 256, 512), ("down", 256, 256)]
    assert index.offered_layers == tuple(range(8))


def test_experts_of_a_prediction_block_are_not_in_the_index(tmp_path: Path) -> None:
    with_block = open_index(small_qwen35moe(tmp_path / "nextn.gguf", nextn=1))
    without = open_index(small_qwen35moe(tmp_path / "plain.gguf"))

    assert (with_block.trunk_layers, with_block.nextn_layers) == (4, 1)
    assert list(with_block.layers) == list(without.layers) == [0, 1, 2, 3]
    assert with_block.routed_bytes == without.routed_bytes
    assert with_block.total_bytes > without.total_bytes


def test_moe_layers_may_begin_behind_dense_ones(tmp_path: Path) -> None:
    index = open_index(tiny_moe(tmp_path / "m.gguf", "deepseek2", layers=5, dense=2))

    assert index.trunk_layers == 5
    assert list(index.layers) == [2, 3, 4]
    assert index.offered_layers == (2, 3, 4)


def test_layers_that_workers_cannot_compute_are_indexed_but_not_offered(tmp_path: Path) -> None:
    gpt_oss = open_index(small_gpt_oss(tmp_path / "oss.gguf"))
    biased = open_index(tiny_moe(tmp_path / "bias.gguf", suffixes=["bias"]))
    scaled = open_index(tiny_moe(tmp_path / "scale.gguf", suffixes=["scale"]))
    clamped = open_index(tiny_moe(tmp_path / "clamp.gguf", extra={"swiglu_clamp_exp": [0.0, 7.0, 0.0]}))
    ungated = open_index(
        tiny_moe(tmp_path / "up.gguf", omit=[f"blk.{layer}.ffn_gate_exps.weight" for layer in range(3)])
    )
    unknown = open_index(tiny_moe(tmp_path / "new.gguf", "brand-new"))
    narrow = open_index(tiny_moe(tmp_path / "latent.gguf", extra={"embedding_length": 64}))

    assert gpt_oss.layers[0].has_bias
    assert clamped.offered_layers == (0, 2)
    for index in (gpt_oss, biased, scaled, ungated, unknown, narrow):
        assert index.layers
        assert index.offered_layers == ()


def test_the_fingerprint_is_that_of_the_content_and_not_of_the_files(tmp_path: Path) -> None:
    whole = tiny_moe(tmp_path / "model.gguf")
    parts = split(whole, tmp_path, 3)
    padded = tiny_moe(tmp_path / "padded.gguf", alignment=64)

    fingerprint = open_index(whole).fingerprint

    assert len(fingerprint) == 32
    assert open_index(whole.rename(tmp_path / "renamed.gguf")).fingerprint == fingerprint
    assert {open_index(part).fingerprint for part in parts} == {fingerprint}
    assert open_index(padded).fingerprint != fingerprint  # its metadata differ


def test_the_fingerprint_changes_with_the_weights_and_the_metadata(tmp_path: Path) -> None:
    path = tiny_moe(tmp_path / "model.gguf")
    before = open_index(path)
    down = before.layers[1].tensors[2]
    with open(path, "r+b") as file:
        file.seek(down.offset)
        file.write(np.ones(down.experts * down.expert_bytes // 4, np.float32).tobytes())

    prints = {
        before.fingerprint,
        open_index(path).fingerprint,
        open_index(tiny_moe(tmp_path / "other.gguf", extra={"context_length": 77})).fingerprint,
        open_index(tiny_moe(tmp_path / "third.gguf", "olmoe")).fingerprint,
    }

    assert len(prints) == 4


def test_metadata_may_give_one_number_per_layer(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(str(path), "qwen3moe")
    writer.add_block_count(1)
    writer.add_embedding_length(32)
    writer.add_array("qwen3moe.expert_used_count", [0, 3, 2])
    for role, shape in (("gate", (4, 8, 32)), ("up", (4, 8, 32)), ("down", (4, 32, 8))):
        writer.add_tensor(f"blk.0.ffn_{role}_exps.weight", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    index = open_index(path)

    assert index.experts_used == 3
    assert index.experts_per_layer == 4
    assert index.name == "model"


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"dense": 3}, DenseModel, "dense"),
        ({"omit": ["blk.1.ffn_down_exps.weight"]}, NotGGUF, "layer 1 has only"),
        ({"extra": {"expert_count": 5}}, NotGGUF, "5"),
        ({"extra": {"nextn_predict_layers": 9}}, NotGGUF, "block_count"),
        ({"architecture": "x", "extra": {"embedding_length": [1.5]}}, NotGGUF, "embedding_length"),
    ],
)
def test_it_refuses_models_that_do_not_add_up(
    tmp_path: Path, changes: dict[str, object], error: type[GGUFError], words: str
) -> None:
    path = tiny_moe(tmp_path / "model.gguf", **changes)  # type: ignore[arg-type]

    with pytest.raises(error, match=words):
        open_index(path)


def test_a_slice_of_the_data_missing_at_the_end_is_found(tmp_path: Path) -> None:
    path = tiny_moe(tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(Truncated, match="fetch it again"):
        open_index(path)


def test_a_gguf_that_is_no_model_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "lora.gguf"), "qwen3moe")
    del writer.kv_data[0]["general.architecture"]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    with pytest.raises(NotGGUF, match="not a model"):
        open_index(tmp_path / "lora.gguf")


def test_every_architecture_that_workers_compute_is_known_to_the_gguf_package_or_newer() -> None:
    known = set(gguf.MODEL_ARCH_NAMES.values())

    assert {"qwen35moe", "qwen3moe", "olmoe", "deepseek2", "glm4moe"} <= SWIGLU_ARCHITECTURES & known
    assert not {"gpt-oss", "grok", "gemma4", "llama4", "smallthinker"} & SWIGLU_ARCHITECTURES


def test_a_sparse_122b_is_indexed_in_two_seconds_and_200_megabytes(tmp_path: Path) -> None:
    path = sparse122b(tmp_path / "122b.gguf")

    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    seconds, kilobytes, layers = done.stdout.split()

    assert path.stat().st_size > 60e9
    assert int(layers) == 48
    assert float(seconds) < 2.0
    assert int(kilobytes) < 200_000
