"""tests/requirements_check.py."""

import pytest

from tests.refusal import refusal
from tests.requirements_check import need


def test_what_is_there_is_no_reason_to_skip() -> None:
    skipped = refusal(pytest.skip.Exception, need, "a browser", "/usr/bin/chromium", "apt-get install -y chromium")

    assert skipped is None


def test_what_is_absent_skips_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUIRE_ALL", raising=False)

    with pytest.raises(pytest.skip.Exception, match="apt-get install -y chromium"):
        need("a browser", None, "apt-get install -y chromium")


def test_where_everything_must_run_it_fails_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUIRE_ALL", "1")

    with pytest.raises(pytest.fail.Exception, match="needs a browser: apt-get install -y chromium"):
        need("a browser", None, "apt-get install -y chromium")
