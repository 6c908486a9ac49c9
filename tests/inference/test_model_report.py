from pathlib import Path

from inference.gguf_index import open_index
from inference.model_report import as_object, as_table, megabytes, printable
from inference.synthetic import demo_variant, small_gpt_oss, small_qwen35moe
from tests.model_files import DEMO_MODEL


def test_the_object_has_every_figure_of_the_demo_model() -> None:
    index = open_index(DEMO_MODEL)

    report = as_object(index)

    assert report["fingerprint"] == index.fingerprint
    assert report["routed_bytes"] == 28_311_552
    assert round(report["routed_share"], 3) == 0.892
    assert report["layers"][5] == {
        "layer": 5,
        "experts": 32,
        "merged": False,
        "has_bias": False,
        "offered": True,
        "expert_bytes": 110_592,
        "bytes": 3_538_944,
        "tensors": [{"role": role, "type": "Q4_K", "bytes": 1_179_648} for role in ("gate", "up", "down")],
    }


def test_equal_neighbours_share_a_line_of_the_table(tmp_path: Path) -> None:
    index = open_index(demo_variant(tmp_path / "mixed.gguf", down_in_layers={3: "Q6_K"}))

    lines = list(as_table(index))

    rows = [line.split() for line in lines[lines.index("") + 2 :]]
    assert [(row[0], row[3]) for row in rows] == [("0-2", "Q4_K"), ("3", "Q6_K"), ("4-7", "Q4_K")]
    assert any(index.fingerprint in line for line in lines)


def test_the_table_says_what_is_not_offered(tmp_path: Path) -> None:
    nextn = "\n".join(as_table(open_index(small_qwen35moe(tmp_path / "n.gguf", nextn=1))))
    oss = "\n".join(as_table(open_index(small_gpt_oss(tmp_path / "o.gguf"))))
    merged = "\n".join(as_table(open_index(demo_variant(tmp_path / "m.gguf", merged=True))))

    assert "1 more for prediction (nextn), never offered" in nextn
    assert "backbone only" in oss
    assert "Q4_K Q4_K (gate and up merged)" in merged


def test_sizes_are_decimal_and_names_harmless() -> None:
    assert megabytes(42_000_000) == "42.0 MB"
    assert megabytes(69_830_000_000) == "69.83 GB"
    assert printable("a\x1b[31mb\n") == "a?[31mb?"
