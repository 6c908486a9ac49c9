"""Chromium, for the tests that need a browser."""

from collections.abc import Iterator

import pytest

from inference.benchmarks.wasm_page import WasmPage, chromium_path
from tests.requirements_check import need


@pytest.fixture(scope="session")
def chromium() -> str:
    path = chromium_path()
    need("Chromium", path, "apt-get install chromium")
    assert path is not None
    return path


@pytest.fixture(scope="module")
def page(chromium: str) -> Iterator[WasmPage]:
    with WasmPage() as page:
        yield page
