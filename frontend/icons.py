"""Draws the icons of the installed page: `python -m frontend.icons`. The picture is that of static/frontend/icon.svg.

PNG by hand (zlib and numpy): five squares on a rounded one need no graphics library.
"""

import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).resolve().parent / "static" / "worker"
GROUND, INK = (0x0B, 0x4F, 0x8A), (0xCF, 0xE5, 0xF7)
VIEW, CORNER, SIDE = 8.0, 1.5, 1.4
SQUARES = ((1.4, 1.4), (3.3, 1.4), (5.2, 3.3), (1.4, 5.2), (3.3, 3.3))
OVERSAMPLED = 4
# Systems cut a maskable icon to any shape inside a circle of 80% of its width.
SAFE_SHARE, FILLED_SHARE = 0.8, 0.76
FILES = {"icon-192.png": (192, False), "icon-512.png": (512, False), "icon-maskable-512.png": (512, True)}

Pixels = npt.NDArray[np.uint8]


def draw(size: int, maskable: bool) -> Pixels:
    """(size, size, 4) RGBA. maskable: the ground fills everything, the squares keep inside the safe circle."""
    fine = size * OVERSAMPLED
    centres = (np.arange(fine) + 0.5) * VIEW / fine
    x, y = np.meshgrid(centres, centres)
    ground = np.ones_like(x, dtype=bool) if maskable else _rounded(x, y)
    if maskable:
        shrink = FILLED_SHARE * VIEW / np.hypot(VIEW - 2 * SQUARES[0][0], VIEW - 2 * SQUARES[0][1])
        x, y = VIEW / 2 + (x - VIEW / 2) / min(1.0, shrink), VIEW / 2 + (y - VIEW / 2) / min(1.0, shrink)
    ink = np.zeros_like(ground)
    for left, top in SQUARES:
        ink |= (x >= left) & (x < left + SIDE) & (y >= top) & (y < top + SIDE)
    pixels = np.zeros((fine, fine, 4), np.float32)
    pixels[ground] = (*GROUND, 255)
    pixels[ink] = (*INK, 255)
    return _smaller(pixels)


def _rounded(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Inside the square with round corners."""
    beyond_x = np.maximum(0, np.abs(x - VIEW / 2) - (VIEW / 2 - CORNER))
    beyond_y = np.maximum(0, np.abs(y - VIEW / 2) - (VIEW / 2 - CORNER))
    return np.asarray(np.hypot(beyond_x, beyond_y) <= CORNER)


def _smaller(pixels: npt.NDArray[np.float32]) -> Pixels:
    """Means over OVERSAMPLED x OVERSAMPLED; colours weighted by their opacity."""
    size = len(pixels) // OVERSAMPLED
    blocks = pixels.reshape(size, OVERSAMPLED, size, OVERSAMPLED, 4)
    opacity = blocks[..., 3:].sum(axis=(1, 3))
    colours = (blocks[..., :3] * blocks[..., 3:]).sum(axis=(1, 3)) / np.maximum(opacity, 1)
    return np.concatenate([colours, opacity / OVERSAMPLED**2], axis=2).round().astype(np.uint8)


def png(pixels: Pixels) -> bytes:
    """(height, width, 4) RGBA as a PNG file."""
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


if __name__ == "__main__":
    for name, (size, maskable) in FILES.items():
        (FOLDER / name).write_bytes(png(draw(size, maskable)))
