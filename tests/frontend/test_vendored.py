"""tools/vendor_htmx.py, tools/vendor_uplot.py and the files they put into the tree are of one version."""

import hashlib
import re

from tools import vendor_htmx, vendor_uplot


def test_the_file_in_the_tree_is_the_one_that_was_looked_at() -> None:
    data = vendor_htmx.TARGET.read_bytes()

    assert hashlib.sha256(data).hexdigest() == vendor_htmx.SHA256


def test_the_file_says_the_version_that_is_pinned() -> None:
    text = vendor_htmx.TARGET.read_text()

    assert re.findall(r'version:"([^"]+)"', text) == [vendor_htmx.VERSION]


def test_the_charts_library_is_the_one_that_was_looked_at_and_brings_its_licence() -> None:
    for _, name, digest in vendor_uplot.FILES:
        assert hashlib.sha256((vendor_uplot.FOLDER / name).read_bytes()).hexdigest() == digest, name
    assert f"v{vendor_uplot.VERSION}" in (vendor_uplot.FOLDER / "uplot.min.js").read_text()
    assert "The MIT License" in (vendor_uplot.FOLDER / "uplot.LICENSE").read_text()
