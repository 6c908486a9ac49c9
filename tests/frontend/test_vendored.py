"""tools/vendor_htmx.py and the file it put into the tree are of one version."""

import hashlib
import re

from tools import vendor_htmx


def test_the_file_in_the_tree_is_the_one_that_was_looked_at() -> None:
    data = vendor_htmx.TARGET.read_bytes()

    assert hashlib.sha256(data).hexdigest() == vendor_htmx.SHA256


def test_the_file_says_the_version_that_is_pinned() -> None:
    text = vendor_htmx.TARGET.read_text()

    assert re.findall(r'version:"([^"]+)"', text) == [vendor_htmx.VERSION]
