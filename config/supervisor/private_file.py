"""Files that only their owner may read: written in one step, never half, never readable in between."""

import os
import secrets
import tempfile
from pathlib import Path

SECRET_BYTES = 48


def write_private(path: Path, text: str) -> None:
    """Creates or replaces `path` (mode 0600) atomically."""
    temporary = _write_temporary(path, text)
    os.replace(temporary, path)


def secret(path: Path, prefix: str = "") -> str:
    """The secret in `path`; made of SECRET_BYTES random bytes and kept there (mode 0600) when the file is absent."""
    if not path.exists():
        temporary = _write_temporary(path, prefix + secrets.token_urlsafe(SECRET_BYTES) + "\n")
        try:
            # A link fails where another process was faster: then its secret is the one.
            os.link(temporary, path)
        except FileExistsError:
            return path.read_text().strip()
        finally:
            temporary.unlink()
    return path.read_text().strip()


def _write_temporary(path: Path, text: str) -> Path:
    # mkstemp creates with mode 0600.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return Path(name)
