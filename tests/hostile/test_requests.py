from inference.hostile.requests import Fuzzer
from inference.hostile.targets import targets
from inference.hostile.tenants import Tenant
from market.api import api

MALLORY = Tenant("mallory", {"sessionid": "m" * 32, "csrftoken": "c"}, node_token="token-of-m", api_key="key-of-m")


def test_a_case_can_be_made_again_from_its_number() -> None:
    found = targets(api.get_openapi_schema())
    first, again = Fuzzer(found, [MALLORY], "demo", 1), Fuzzer(found, [MALLORY], "demo", 1)

    assert [first.case(number) for number in (5, 900)] == [again.case(number) for number in (5, 900)]
    assert first.case(5) != Fuzzer(found, [MALLORY], "demo", 2).case(5)


def test_cases_reach_every_address_with_all_credentials_and_are_hardly_ever_alike() -> None:
    found = targets(api.get_openapi_schema())
    fuzzer = Fuzzer(found, [MALLORY], "demo", 1)

    cases = [fuzzer.case(number) for number in range(4000)]

    requests = {case.request for case in cases}
    assert len(requests) > 3800
    for text in (b"Bearer token-of-m", b"Bearer key-of-m", b"sessionid=mmm", b"multipart/form-data", b"messages"):
        assert sum(text in request for request in requests) > 5, text
    assert 200 < sum(case.is_broken for case in cases) < 3000
