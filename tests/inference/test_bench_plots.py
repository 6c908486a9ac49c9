"""Plots of benchmark results: both formats, and the same bytes for the same results."""

import json
from pathlib import Path

import pytest

from inference.benchmarks.plots import PLOTS, draw
from tests.inference.models import DEMO_MODEL

STORED = DEMO_MODEL.parents[1] / "docs" / "benchmarks"


def a_file(folder: Path) -> Path:
    case = {"peer_value": 2.0, "round_trip_ms": 50.0, "limit": 9.0}
    body = {"bench": "rpc", "results": [{"case": "experts/seq8", "value": 3.0, **case}]}
    path = folder / "rpc.json"
    path.write_text(json.dumps(body))
    return path


def test_a_plot_is_written_in_both_formats_and_is_the_same_every_time(tmp_path: Path) -> None:
    path = a_file(tmp_path)

    svg, png = draw(path)
    first = svg.read_bytes()
    draw(path)

    assert svg.read_bytes() == first
    assert b"llama.cpp RPC" in first
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", [name for name in PLOTS if (STORED / f"{name}.json").exists()])
def test_every_stored_figure_has_its_plots(name: str, tmp_path: Path) -> None:
    stored = STORED / f"{name}.json"
    copy = tmp_path / stored.name
    copy.write_text(stored.read_text())

    assert [path.stat().st_size > 1000 for path in draw(copy)] == [True, True]
    assert stored.with_suffix(".svg").exists()
    assert stored.with_suffix(".png").exists()


def test_the_full_size_has_a_panel_for_each_arm_that_was_run(tmp_path: Path) -> None:
    times = dict.fromkeys(("dense", "router", "dispatch", "wait", "local_experts", "combine"), 1.0)
    results = [{"case": f"m0/cpu/batch={batch}", "value": 2.0, "peer_value": 2.1} for batch in (8, 1)]
    body = {"bench": "full-size", "results": results}
    path = tmp_path / "full-size.json"

    path.write_text(json.dumps(body))
    alone = draw(path)[0].read_text()
    for workers in (12, 1):
        case = f"swarm/W={workers}/exact/remote-only/rtt=0/seq=64"
        results.append({"case": case, "value": 9.0, "limit": 10.0, "ms_per_layer": times})
    path.write_text(json.dumps(body))
    both = draw(path)[0].read_text()

    assert "Every expert local" in alone
    assert "Experts with workers" not in alone
    assert all(text in both for text in ("Every expert local", "Experts with workers", "local experts"))
