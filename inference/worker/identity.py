"""Who this worker is: one node, with a secret token, per server and state folder.

The folder of one server holds `node.json` (mode 0600), a lock file and the slices. The lock keeps a second worker from
answering under the same node: the server would cut the first one's connection, and both would fight for ever.
"""

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from inference.worker.errors import StateUnusable

try:
    import fcntl
except ImportError:  # Windows has no flock; there a second worker is noticed by the relay instead.
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Identity:
    """A node as its server registered it. `token` is a secret."""

    node_id: str
    token: str

    def __repr__(self) -> str:
        return f"Identity(node_id={self.node_id!r}, token=...)"


def server_folder(state_dir: Path, server: str) -> Path:
    """The folder of one server inside the state folder: readable, and unlike that of every other address."""
    parts = urlsplit(server)
    readable = re.sub(r"[^a-z0-9.]+", "-", f"{parts.netloc}{parts.path}".lower()).strip("-.")[:60]
    digest = hashlib.sha256(server.encode()).hexdigest()[:8]
    return state_dir / f"{readable}-{digest}"


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[Path]:
    """Create the folder (0700) and hold its lock. Raises StateUnusable when another worker holds it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StateUnusable(f"cannot use the state folder {folder}: {error.strerror or error}") from error
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StateUnusable(
                    f"another worker already uses {folder}: stop it, or give this one a folder of its own with --state"
                ) from error
        yield folder
    finally:
        os.close(handle)


def load_identity(folder: Path) -> Identity | None:
    """The stored identity, None when there is none yet. Raises StateUnusable for a file that cannot be read."""
    path = folder / "node.json"
    try:
        body = json.loads(path.read_text())
        return Identity(node_id=str(body["node_id"]), token=str(body["token"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateUnusable(f"cannot read {path}: delete it to register as a new node ({error})") from error


def save_identity(folder: Path, identity: Identity) -> None:
    """Store the identity with mode 0600, whole or not at all. Raises StateUnusable."""
    path = folder / "node.json"
    try:
        # mkstemp makes the file 0600 from its first moment: the token is never readable by others.
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".node-")
        with os.fdopen(handle, "w") as file:
            json.dump(asdict(identity), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise StateUnusable(f"cannot write {path}: {error.strerror or error}") from error


def forget_identity(folder: Path) -> None:
    """Remove a token that the server no longer knows."""
    (folder / "node.json").unlink(missing_ok=True)
