"""manage.py generate: what its options refuse before a server is asked. (The rest: tests/e2e/test_up.py.)"""

import pytest
from django.core.management import CommandError, call_command


@pytest.mark.parametrize("option", ["--temperature", "--top-p"])
@pytest.mark.parametrize("value", ["nan", "inf", "warm"])
def test_what_is_no_finite_number_is_refused(option: str, value: str) -> None:
    with pytest.raises(CommandError, match=f"{option}: '{value}' is not a number"):
        call_command("generate", "In the beginning", f"{option}={value}")
