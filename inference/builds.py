"""The builds that this server holds: the model of MODEL_PATH, and the GGUFs in the folders of MODEL_FOLDERS.

An index is opened once per process and file; a file that was written anew is opened again.
"""

import re
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from inference.errors import FileUnreadable, GGUFError, OutsideFolders, UnknownBuild
from inference.gguf_index import ModelIndex, open_index

FILES_LIMIT = 200
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


def current_index() -> ModelIndex:
    """The index of MODEL_PATH. Raises GGUFError (and tries again at the next call) while the file cannot be used."""
    return _index(Path(settings.MODEL_PATH))


def index_for(fingerprint: str) -> ModelIndex:
    """The index of a build by its fingerprint. Raises UnknownBuild for any other build, GGUFError as above."""
    index = current_index()
    if index.fingerprint == fingerprint:
        return index
    for path in model_files():
        try:
            found = _index(path)
        except GGUFError:
            continue  # a file that is no model of ours may lie beside one
        if found.fingerprint == fingerprint:
            return found
    raise UnknownBuild(f"this server does not hold build {fingerprint}; ask /api/demand which build is served")


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
def _open(path: Path, _size: int, _modified: int) -> ModelIndex:
    return open_index(path)
