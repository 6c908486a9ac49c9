import tracemalloc
from pathlib import Path

import pytest

from inference.errors import NoStages
from inference.gguf_index import open_index
from inference.hostile.confined import Findings, Reader, confined, try_cases
from inference.hostile.gguf_files import ARCHITECTURE, GgufFiles, model_bytes
from inference.stages import stage_cuts
from tests.refusal import refusal


@pytest.fixture
def reader() -> GgufFiles:
    return GgufFiles()


def test_no_odd_file_or_manifest_raises_anything_but_an_error_of_the_reader(reader: GgufFiles) -> None:
    found = try_cases(reader, 20240601, 0, 1500)
    reader.close()

    assert found.faults == []
    assert 1000 < found.refused < 1500


def test_a_file_that_says_it_has_two_thousand_million_layers_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "layers.gguf"
    path.write_bytes(model_bytes({f"{ARCHITECTURE}.block_count": (1 << 31) - 1}))
    tracemalloc.start()

    index = open_index(path)
    refused = refusal(NoStages, stage_cuts, index)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert index.trunk_layers == (1 << 31) - 1
    assert index.clamped_layers == frozenset()
    assert index.recurrent_layers <= set(index.layers)
    assert refused is not None
    assert peak < 8 << 20


class Bomb(Reader):
    """Takes more memory than a confined reader has, in its third case."""

    def make(self, dice: object) -> None:
        self.count = getattr(self, "count", 0) + 1

    def read(self, case: None) -> None:
        if self.count == 3:
            bytearray(4 << 30)


def test_a_reader_that_takes_too_much_memory_is_found_and_the_others_go_on() -> None:
    found = Findings()

    for findings in confined(Bomb, 1, 5):
        found.add(findings)

    assert found.cases == 5
    assert len(found.faults) == 1
    assert "MemoryError" in found.faults[0]
