"""Cases of `manage.py verify` whose layers lie in stage processes."""

from dataclasses import replace
from pathlib import Path

import pytest

from inference.gguf_index import open_index
from inference.verify import runner
from inference.verify.cases import STAGES
from inference.verify.stage_processes import StageNotStarted, StageProcesses, cut_stages
from tests.inference.models import DEMO_MODEL


def test_the_matrix_of_stages_covers_what_was_promised() -> None:
    assert {case.stages for case in STAGES} == {2, 3}
    assert any(case.kill and case.stages == 3 for case in STAGES)
    assert {case.placement for case in STAGES} == {"local", "half", "all"}
    assert any(case.hollow for case in STAGES)
    assert {"demo", "12 layers", "qwen3moe"} <= {case.model for case in STAGES}


@pytest.mark.e2e
def test_killing_and_replacing_the_middle_stage_changes_no_bit(tmp_path: Path) -> None:
    case = replace(STAGES[-1], lanes=1, sequences=2, requests=3, tokens=20)

    result = runner.run_case(case, tmp_path, positions=40)

    assert result.ok, result.extra
    assert result.max_abs_diff == 0.0
    assert result.extra["replayed_tokens"] > 0
    assert set(result.extra["failures"]) == {"rings_lost"}


@pytest.mark.e2e
def test_a_stage_process_says_what_it_holds_and_stops_when_it_is_told(tmp_path: Path) -> None:
    index = open_index(DEMO_MODEL)
    with StageProcesses(cut_stages(index, tmp_path, 1), tmp_path) as stages:
        directory = stages.directory(index)
        directory.look()

        assert directory.has_ring()
        assert [(stage.first, stage.last) for stage in directory.known.values()] == [(0, 8)]
        assert stages.stop() == [{}]
        assert [stage.process.returncode for stage in stages.stages] == [0]


@pytest.mark.e2e
def test_a_file_that_is_no_stage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageNotStarted, match=r"\(status 1\)|\(status None\)"), StageProcesses([DEMO_MODEL], tmp_path):
        pass
