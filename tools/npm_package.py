"""Files of a published npm package, as `npm pack` brings them: what the vendor scripts put into the tree."""

import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path


def fetch(package: str, version: str, members: Iterable[str]) -> dict[str, bytes]:
    """Member of the package -> its bytes. Raises CalledProcessError, KeyError, FileNotFoundError without npm."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"{package}@{version}"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (packed,) = Path(folder).glob("*.tgz")
        with tarfile.open(packed) as archive:
            return {member: _read(archive, member) for member in members}


def _read(archive: tarfile.TarFile, member: str) -> bytes:
    opened = archive.extractfile(member)
    if opened is None:
        raise KeyError(member)
    return opened.read()
