"""inference/trace_folder.py: old starts make room, living ones stay."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from inference.trace_folder import make_room


def start(folder: Path, name: str, size: int, age: int) -> None:
    path = folder / name
    path.mkdir(parents=True)
    (path / "lane-0.f32").write_bytes(bytes(size))
    os.utime(path, (1_000_000 - age, 1_000_000 - age))


def test_the_oldest_starts_go_until_the_rest_fits(tmp_path: Path) -> None:
    for number in range(4):
        start(tmp_path, f"boot{number}", 100, age=100 - number)

    removed = make_room(tmp_path, 250)

    assert removed == ["boot0", "boot1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["boot2", "boot3"]


def test_what_a_living_backbone_writes_stays(tmp_path: Path) -> None:
    start(tmp_path, "alive", 1000, age=50)
    start(tmp_path, "dead", 100, age=10)

    assert make_room(tmp_path, 50, alive={"alive"}) == ["dead"]
    assert (tmp_path / "alive" / "lane-0.f32").stat().st_size == 1000


def test_backbones_that_start_at_once_do_not_trip_over_each_other(tmp_path: Path) -> None:
    for number in range(200):
        start(tmp_path, f"boot{number}", 10, age=number)
    together = Barrier(4)

    def make_all_room(_: int) -> list[str]:
        together.wait()
        return make_room(tmp_path, 0)

    with ThreadPoolExecutor(4) as backbones:
        removed = list(backbones.map(make_all_room, range(4)))

    assert {name for names in removed for name in names} == {f"boot{number}" for number in range(200)}
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_yet_is_fine(tmp_path: Path) -> None:
    assert make_room(tmp_path / "nothing", 1) == []
