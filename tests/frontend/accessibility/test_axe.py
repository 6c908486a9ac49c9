"""axe-core finds nothing serious on any page, light and dark."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.frontend.accessibility.addresses import EVERY, Shown
from tests.frontend.accessibility.conftest import Visit, keep

AXE = Path(__file__).parent / "axe" / "axe.min.js"
# axe-core 4.14.1, npm's package, MPL-2.0 (LICENSE beside it): for tests only, no page loads it.
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
SERIOUS = {"serious", "critical"}


def serious_issues(page: Page) -> list[str]:
    """What axe calls serious or critical, with the elements; a script of the test is not bound by the page's policy."""
    page.evaluate(AXE.read_text())
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{issue['id']}: {node['target']} {node['failureSummary']}"
        for issue in found["violations"]
        if issue["impact"] in SERIOUS
        for node in issue["nodes"]
    ]


def test_the_file_of_axe_is_the_one_that_was_looked_at() -> None:
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() == AXE_SHA256


@pytest.mark.browser
@pytest.mark.parametrize("shown", EVERY, ids=lambda shown: shown.name)
def test_axe_reports_no_serious_issue(visit: Visit, shown: Shown) -> None:
    page = visit(shown.address, shown.who, viewport={"width": 768, "height": 900})
    page.wait_for_load_state("networkidle")  # what scripts write first is part of the page
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    light = serious_issues(page)
    page.emulate_media(color_scheme="dark")
    keep(page, f"{shown.name}-768-dark")
    dark = serious_issues(page)

    assert light == []
    assert dark == []
