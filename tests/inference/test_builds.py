from pathlib import Path

import pytest
from pytest_django import Settings

from inference.builds import current_index, index_at, index_for, model_files, plan_for, stages_for, stages_of
from inference.errors import CutRefused, FileUnreadable, OutsideFolders, RangeOutside, UnknownBuild
from inference.gguf_index import open_index
from inference.synthetic import split
from tests.model_files import DEMO_MODEL, tiny_moe


def test_the_model_of_the_settings_is_opened_once(settings: Settings) -> None:
    settings.MODEL_PATH = DEMO_MODEL

    index = current_index()

    assert index.fingerprint == open_index(DEMO_MODEL).fingerprint
    assert current_index() is index
    assert index_for(index.fingerprint) is index


def test_another_build_is_unknown(settings: Settings) -> None:
    settings.MODEL_PATH = DEMO_MODEL

    with pytest.raises(UnknownBuild, match="does not hold build feed"):
        index_for("feed" * 8)


def test_a_model_that_was_absent_is_tried_again(settings: Settings, tmp_path: Path) -> None:
    settings.MODEL_PATH = tmp_path / "late.gguf"

    with pytest.raises(FileUnreadable):
        current_index()
    tiny_moe(tmp_path / "late.gguf")

    assert current_index().architecture == "qwen3moe"


def test_a_build_in_a_model_folder_is_held_too(settings: Settings, tmp_path: Path) -> None:
    settings.MODEL_PATH = DEMO_MODEL
    settings.MODEL_FOLDERS = [str(tmp_path)]
    tiny_moe(tmp_path / "other.gguf")
    (tmp_path / "notes.gguf").write_text("no model")
    fingerprint = open_index(tmp_path / "other.gguf").fingerprint

    assert index_for(fingerprint).path.name == "other.gguf"


def test_later_parts_of_split_sets_are_not_listed(settings: Settings, tmp_path: Path) -> None:
    settings.MODEL_FOLDERS = [str(tmp_path)]
    for name in ("a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf", "text.txt"):
        (tmp_path / name).touch()

    assert [path.name for path in model_files()] == ["a.gguf", "b-00001-of-00002.gguf"]


@pytest.fixture
def folder(settings: Settings, tmp_path: Path) -> Path:
    """The only folder whose models may be published; a model lies beside it, outside."""
    settings.MODEL_PATH = DEMO_MODEL
    folder = tmp_path / "models"
    folder.mkdir()
    settings.MODEL_FOLDERS = [str(folder)]
    tiny_moe(tmp_path / "outside.gguf")
    return folder


def test_a_path_leads_into_the_folders_or_nowhere(folder: Path, tmp_path: Path) -> None:
    tiny_moe(folder / "inside.gguf")
    (folder / "linked.gguf").symlink_to(folder / "inside.gguf")
    (folder / "out.gguf").symlink_to(tmp_path / "outside.gguf")
    (folder / "sub").symlink_to(tmp_path)
    (tmp_path / "models-of-others").mkdir()
    tiny_moe(tmp_path / "models-of-others" / "near.gguf")

    assert index_at(str(folder / "inside.gguf")).path.name == "inside.gguf"
    assert index_at(str(folder / "linked.gguf")).path.name == "inside.gguf"
    for outside in ("out.gguf", "../outside.gguf", "sub/outside.gguf", "../models-of-others/near.gguf"):
        with pytest.raises(OutsideFolders):
            index_at(str(folder / outside))


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "", "models/../../../etc/passwd", "~root/x.gguf", "/proc/self/environ"]
)
def test_a_path_elsewhere_is_refused_before_anything_is_read(folder: Path, path: str) -> None:
    with pytest.raises(OutsideFolders):
        index_at(path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "~nobody-of-this-name/x.gguf"])
def test_what_is_no_path_is_refused_in_words(folder: Path, path: str) -> None:
    with pytest.raises((OutsideFolders, FileUnreadable)):
        index_at(path)


def test_a_link_out_of_the_folder_is_neither_listed_nor_served(folder: Path, tmp_path: Path) -> None:
    (folder / "out.gguf").symlink_to(tmp_path / "outside.gguf")
    (folder / "in.gguf").symlink_to(folder / "real")
    (folder / "real").touch()
    (folder / "circle.gguf").symlink_to(folder / "circle.gguf")

    assert [path.name for path in model_files()] == ["in.gguf"]
    with pytest.raises(UnknownBuild):
        index_for(open_index(tmp_path / "outside.gguf").fingerprint)


def test_a_set_whose_later_part_lies_outside_is_refused(folder: Path, tmp_path: Path) -> None:
    tiny_moe(tmp_path / "whole.gguf")
    first, second = split(tmp_path / "whole.gguf", tmp_path, 2)
    first.rename(folder / first.name)
    (folder / second.name).symlink_to(second)

    with pytest.raises(OutsideFolders):
        index_at(str(folder / first.name))


def test_a_plan_is_found_by_the_build_of_experts_or_of_stages(settings: Settings) -> None:
    settings.MODEL_PATH = DEMO_MODEL
    model = current_index()
    stages = stages_of(model)

    assert plan_for(model.fingerprint, 3, 5, 7).build == model.fingerprint
    assert plan_for(stages.cuts.build, 0, 1, 2) == stages.plan(1, 2)
    assert plan_for(stages.cuts.build, 0, 0, 1, without_experts=True).without_experts
    assert stages_for(stages.cuts.build) is stages
    with pytest.raises(RangeOutside, match="layer 1; a stage build has layer 0 only"):
        plan_for(stages.cuts.build, 1, 0, 1)
    with pytest.raises(CutRefused):
        plan_for(stages.cuts.build, 0, 0, 3)
    with pytest.raises(UnknownBuild, match="stage build feed"):
        plan_for("feed" * 8, 0, 0, 1)
