from pathlib import Path

import pytest
from pytest_django import Settings

from inference.builds import current_index, index_for, model_files
from inference.errors import FileUnreadable, UnknownBuild
from inference.gguf_index import open_index
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
