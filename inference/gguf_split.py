"""The files of one model: a single GGUF, or a split set `NAME-00001-of-000NN.gguf` given by any of its parts."""

import re
from pathlib import Path

from inference.errors import FileUnreadable, MissingPart, NotGGUF
from inference.gguf_header import Header, read_header

PART_NAME = re.compile(r"(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def read_parts(path: Path) -> list[tuple[Path, Header]]:
    """(file, header) of every part, the first part (which carries the metadata) first.

    Raises MissingPart with the names of all absent parts, NotGGUF where the parts contradict each other, and what
    `read_header` raises.
    """
    path = Path(path).absolute()
    given = read_header(path)
    count = given.metadata.get("split.count", 1)
    if type(count) is not int or count < 0 or count > 99999:
        raise NotGGUF(f"{path}: split.count is {count!r}")
    if count <= 1:
        return [(path, given)]
    parts = [(file, given if file == path else read_header(file)) for file in _part_paths(path, count)]
    for number, (file, header) in enumerate(parts):
        if (header.metadata.get("split.no"), header.metadata.get("split.count")) != (number, count):
            raise NotGGUF(f"{file}: it does not say that it is part {number + 1} of {count}; the set is mixed up")
    _check_tensors(parts)
    return parts


def _part_paths(path: Path, count: int) -> list[Path]:
    match = PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise MissingPart(
            f"{path}: one part of {count}, but its name does not end in -00001-of-{count:05}.gguf or alike, "
            "so the others cannot be found; give the files their original names"
        )
    paths = [path.with_name(f"{match['prefix']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    try:
        missing = [part.name for part in paths if not part.exists()]
    except OSError as error:
        raise FileUnreadable(f"{path.parent}: cannot be read: {error.strerror or error}") from error
    if missing:
        raise MissingPart(f"{path.parent}: {len(missing)} of {count} parts missing: {', '.join(missing[:8])}")
    return paths


def _check_tensors(parts: list[tuple[Path, Header]]) -> None:
    names = [name for _, header in parts for name in header.tensors]
    expected = parts[0][1].metadata.get("split.tensors.count", len(names))
    if len(names) != expected:
        raise NotGGUF(f"{parts[0][0]}: the parts hold {len(names)} tensors where the first says {expected}")
    if len(set(names)) != len(names):
        raise NotGGUF(f"{parts[0][0]}: a tensor appears in more than one part")
