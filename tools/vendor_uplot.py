"""Fetches uPlot from npm and puts its minified file, style and licence into the tree: `python tools/vendor_uplot.py`.

As tools/vendor_htmx.py: the digests below are those of what was looked at; for another version change VERSION, run with
--digest, read the release notes, and put the printed digests here.
"""

import argparse
import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.npm_package import fetch

VERSION = "1.6.32"
FOLDER = Path(__file__).resolve().parent.parent / "frontend" / "static" / "frontend" / "operator"
# (member of the package, name in the tree, SHA-256)
FILES = (
    (
        "package/dist/uPlot.iife.min.js",
        "uplot.min.js",
        "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    ),
    ("package/dist/uPlot.min.css", "uplot.min.css", "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"),
    ("package/LICENSE", "uplot.LICENSE", "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Vendor uPlot.")
    parser.add_argument("--digest", action="store_true", help="print the digests of VERSION and change nothing")
    arguments = parser.parse_args()
    found = fetch("uplot", VERSION, [member for member, _, _ in FILES])
    for member, name, expected in FILES:
        digest = hashlib.sha256(found[member]).hexdigest()
        if arguments.digest:
            print(name, digest)
        elif digest != expected:
            print(f"{name} has digest {digest}, not {expected}: nothing was changed", file=sys.stderr)
            return 1
    if not arguments.digest:
        for member, name, _ in FILES:
            (FOLDER / name).write_bytes(found[member])
        print(f"{FOLDER}: uPlot {VERSION}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
