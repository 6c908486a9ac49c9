"""The node API against its own OpenAPI document: whatever the document allows, and much that it does not, is answered
in the one error shape and never with 500."""

from typing import Any

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok

from market import commands
from tests.builders import claimed, demo_build, registered

EXAMPLES = 25


@pytest.mark.django_db
@pytest.mark.slow
def test_no_request_makes_the_server_fail() -> None:
    commands.publish_build(demo_build())
    bob = registered()
    claim = claimed(bob)
    schema = schemathesis.openapi.from_wsgi("/api/openapi.json", get_wsgi_application())
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    answers: dict[int, int] = {}

    def check(case: Any, token: str | None) -> None:
        if "claim_id" in case.path_parameters and token == bob.token:
            # Bob's own claim: else nearly every case would be an unknown one.
            case.path_parameters["claim_id"] = claim.claim_id
        case.headers = {**(case.headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        response = case.call()
        answers[response.status_code] = answers.get(response.status_code, 0) + 1
        assert response.status_code < 500, (case.method, case.formatted_path, response.text)
        if response.status_code >= 400:
            assert set(response.json()["error"]) == {"code", "message"}

    for operation in operations:
        tokens = st.sampled_from([bob.token, bob.token, "nobody's", None])
        modest = settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        modest(given(operation.as_strategy(), tokens)(check))()

    assert len(operations) >= 7
    assert answers.get(200, 0) + answers.get(201, 0) > 10
    assert answers.get(401, 0) > 10
