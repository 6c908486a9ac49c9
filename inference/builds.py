"""The builds that this server holds: one, the model of the setting MODEL_PATH, opened once per process."""

from functools import lru_cache
from pathlib import Path

from django.conf import settings

from inference.errors import UnknownBuild
from inference.gguf_index import ModelIndex, open_index


def current_index() -> ModelIndex:
    """The index of MODEL_PATH. Raises GGUFError (and tries again at the next call) while the file cannot be used."""
    return _open(Path(settings.MODEL_PATH))


def index_for(fingerprint: str) -> ModelIndex:
    """The index of a build by its fingerprint. Raises UnknownBuild for any other build, GGUFError as above."""
    index = current_index()
    if index.fingerprint != fingerprint:
        raise UnknownBuild(f"this server does not hold build {fingerprint}; ask /api/demand which build is served")
    return index


@lru_cache(maxsize=4)
def _open(path: Path) -> ModelIndex:
    return open_index(path)
