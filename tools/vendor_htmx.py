"""Fetches htmx from npm and puts its minified file into the tree: `python tools/vendor_htmx.py`.

The digest below is the file's, not the package's: what the pages load is what was looked at. For another version,
change VERSION, run with --digest, read the release notes, and put the printed digest here. `tests/frontend/
test_vendored.py` compares the file in the tree with both.
"""

import argparse
import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.npm_package import fetch

VERSION = "2.0.11"
SHA256 = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
TARGET = Path(__file__).resolve().parent.parent / "frontend" / "static" / "frontend" / "htmx.min.js"
MEMBER = "package/dist/htmx.min.js"


def main() -> int:
    parser = argparse.ArgumentParser(description="Vendor htmx.")
    parser.add_argument("--digest", action="store_true", help="print the digest of VERSION and change nothing")
    arguments = parser.parse_args()
    data = fetch("htmx.org", VERSION, [MEMBER])[MEMBER]
    digest = hashlib.sha256(data).hexdigest()
    if arguments.digest:
        print(digest)
        return 0
    if digest != SHA256:
        print(f"htmx {VERSION} has digest {digest}, not {SHA256}: nothing was changed", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_bytes(data)
    print(f"{TARGET}: htmx {VERSION}, {len(data)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
