"""The builds that this server holds: the model of MODEL_PATH, and the GGUFs in the folders of MODEL_FOLDERS.

An index is opened once per process and file; a file that was written anew is opened again.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from inference.errors import FileUnreadable, GGUFError, OutsideFolders, RangeOutside, UnknownBuild
from inference.gguf_index import ModelIndex, open_index
from inference.slices import SlicePlan, plan_slice
from inference.stage_file import StageSource, open_stages
from inference.stages import STAGE_LAYER, stage_fingerprint

FILES_LIMIT = 200
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


def current_index() -> ModelIndex:
    """The index of MODEL_PATH. Raises GGUFError (and tries again at the next call) while the file cannot be used."""
    return _index(Path(settings.MODEL_PATH))


def index_for(fingerprint: str) -> ModelIndex:
    """The index of a build by its fingerprint. Raises UnknownBuild for any other build, GGUFError as above."""
    for index in _held():
        if index.fingerprint == fingerprint:
            return index
    raise UnknownBuild(f"this server does not hold build {fingerprint}; ask /api/demand which build is served")


def stages_of(index: ModelIndex) -> StageSource:
    """What stages of a held model are cut from. Raises NoStages, GGUFError."""
    state = index.path.stat()
    return _open_stages(index.path, state.st_size, state.st_mtime_ns)


def stages_for(fingerprint: str) -> StageSource:
    """The same by the fingerprint of the stage build. Raises UnknownBuild, NoStages, GGUFError."""
    for index in _held():
        if stage_fingerprint(index.fingerprint) == fingerprint:
            return stages_of(index)
    raise UnknownBuild(f"this server does not hold stage build {fingerprint}; ask /api/demand which is served")


def plan_for(build: str, layer: int, first: int, last: int, *, without_experts: bool = False) -> SlicePlan:
    """The slice of a build of experts, or the stage of a stage build. Raises UnknownBuild, RangeOutside, CutRefused,
    NoStages, GGUFError."""
    try:
        return plan_slice(index_for(build), layer, first, last)
    except UnknownBuild:
        source = stages_for(build)
    if layer != STAGE_LAYER:
        raise RangeOutside(f"layer {layer}; a stage build has layer {STAGE_LAYER} only, its units are runs of layers")
    return source.plan(first, last, without_experts=without_experts)


def _held() -> Iterator[ModelIndex]:
    """The model of MODEL_PATH, then those of the folders. Raises GGUFError while the first cannot be used."""
    yield current_index()
    for path in model_files():
        try:
            yield _index(path)
        except GGUFError:
            continue  # a file that is no model of ours may lie beside one


def folders() -> list[Path]:
    """Folders whose models may be published; none unless MODEL_FOLDERS names some."""
    return [Path(folder).expanduser() for folder in settings.MODEL_FOLDERS]


def model_files() -> list[Path]:
    """GGUFs right inside the folders, of split sets the first part; at most FILES_LIMIT. Links that lead out of the
    folders are not among them."""
    found = [path for folder in folders() if folder.is_dir() for path in sorted(folder.glob("*.gguf"))]
    return [path for path in found if not _LATER_PART.search(path.name) and _is_inside(path)][:FILES_LIMIT]


def index_at(path: str) -> ModelIndex:
    """The index of a GGUF below one of the folders, links followed. Raises OutsideFolders, GGUFError."""
    try:
        wanted = Path(path).expanduser().resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise FileUnreadable(f"this is no path: {error}") from error
    if not _is_inside(wanted):
        raise OutsideFolders("the file is in none of the folders of MODEL_FOLDERS")
    index = _index(wanted)
    # Of a split set the first part names how many follow; each is a path of its own.
    if not all(_is_inside(file) for file in index.files):
        raise OutsideFolders("a part of the set is in none of the folders of MODEL_FOLDERS")
    return index


def _is_inside(path: Path) -> bool:
    """Whether the file that this path leads to may be served: links are followed first."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        return False
    return any(real.is_relative_to(folder.resolve()) for folder in (*folders(), Path(settings.MODEL_PATH)))


def _index(path: Path) -> ModelIndex:
    try:
        state = path.stat()
    except OSError as error:
        raise FileUnreadable(f"{path}: {error.strerror}") from error
    return _open(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=32)
def _open_stages(path: Path, size: int, modified: int) -> StageSource:
    return open_stages(_open(path, size, modified))


@lru_cache(maxsize=32)
def _open(path: Path, _size: int, _modified: int) -> ModelIndex:
    return open_index(path)
