"""frontend/icons.py: the committed icons are what it draws; the maskable one keeps its picture in the safe circle."""

import struct
import zlib

import numpy as np
import pytest

from frontend.icons import FILES, FOLDER, GROUND, SAFE_SHARE, Pixels, draw


def pixels_of(data: bytes) -> Pixels:
    """(size, size, 4) of a PNG as we write it: RGBA, no filters, one chunk of data."""
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT") + 4
    (size,) = struct.unpack(">I", data[start - 8 : start - 4])
    rows = np.frombuffer(zlib.decompress(data[start : start + size]), np.uint8).reshape(height, 1 + 4 * width)
    return rows[:, 1:].reshape(height, width, 4)


@pytest.mark.parametrize("name", FILES)
def test_the_committed_icon_is_the_drawn_one(name: str) -> None:
    data = (FOLDER / name).read_bytes()

    assert np.array_equal(pixels_of(data), draw(*FILES[name])), "run `python -m frontend.icons`"
    assert len(data) < 8192


def test_the_maskable_icon_has_nothing_outside_the_safe_circle() -> None:
    pixels = draw(128, maskable=True)

    y, x = np.mgrid[:128, :128] - 63.5
    outside = np.hypot(x, y) > SAFE_SHARE * 64
    assert (pixels[outside] == (*GROUND, 255)).all()


def test_the_plain_icon_has_round_corners() -> None:
    pixels = draw(128, maskable=False)

    assert pixels[0, 0, 3] == 0
    assert pixels[64, 0, 3] == 255
