from pathlib import Path

from inference.gguf_index import open_index
from inference.model_report import as_object, as_table, megabytes, printable, stages_object
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


def test_it_tells_where_a_model_can_be_cut_into_stages(tmp_path: Path) -> None:
    report = stages_object(open_index(DEMO_MODEL))
    table = "\n".join(as_table(open_index(DEMO_MODEL)))
    oss = "\n".join(as_table(open_index(small_gpt_oss(tmp_path / "o.gguf"))))

    assert [unit["layers"] for unit in report["units"]] == [[0, 4], [4, 8]]
    assert report["units"][0]["bytes"] - report["units"][0]["bytes_without_experts"] == 4 * 3_538_944
    assert "stages        1 to 2, cut every 4 layers; the largest unit takes 16.3 MB, without experts 2.1 MB" in table
    assert "stages        none: gpt-oss is not among the architectures" in oss


def test_sizes_are_decimal_and_names_harmless() -> None:
    assert megabytes(42_000_000) == "42.0 MB"
    assert megabytes(69_830_000_000) == "69.83 GB"
    assert printable("a\x1b[31mb\n") == "a?[31mb?"
