from inference.hostile.targets import METHODS, Target
from inference.hostile.tenants import Tenant
from inference.hostile.trespass import Attempt, attempts, leaks
from inference.hostile.wire import Answer

ALICE = Tenant(
    "alice-liddell", {"sessionid": "s" * 32}, node_id="node-of-alice", node_token="token-of-alice", key_id="5",
    api_key="key-of-alice", generation_id="generation-of-alice", payee="payee-of-alice", text="a white rabbit",
)  # fmt: skip
MALLORY = Tenant("mallory", {"sessionid": "m" * 32, "csrftoken": "c"}, node_token="mine", api_key="my-key")


def test_every_method_is_tried_with_every_kind_of_credential_and_the_ids_of_the_victim() -> None:
    found = list(attempts([Target("/me/devices/{node_id}/token")], MALLORY, ALICE))

    assert len(found) == 4 * len(METHODS)
    assert {attempt.path for attempt in found} == {"/me/devices/node-of-alice/token"}
    assert sum(b"Cookie: sessionid=mmm" in attempt.request for attempt in found) == len(METHODS)
    assert sum(b"Bearer my-key" in attempt.request for attempt in found) == len(METHODS)
    assert not any(b"token-of-alice" in attempt.request for attempt in found)


def test_what_would_end_the_thiefs_own_session_is_asked_as_nobody() -> None:
    found = list(attempts([Target("/me/sign-out"), Target("/api/me/token")], MALLORY, ALICE))

    assert len(found) == 2 * len(METHODS)
    assert all(attempt.what.endswith("as nobody") for attempt in found)


def test_a_secret_in_an_answer_is_a_leak_and_an_echo_is_none() -> None:
    attempt = Attempt("GET /x as nobody", "/x/node-of-alice", "GET", b"GET /x/node-of-alice HTTP/1.1")

    echoed = leaks(attempt, Answer(404, body=b"there is no node-of-alice"), ALICE)
    leaked = leaks(attempt, Answer(200, body=b'{"payee": "payee-of-alice"}'), ALICE)

    assert echoed == []
    assert leaked == ["GET /x as nobody answers 200 with the victim's payee"]


def test_a_page_for_staff_must_not_open() -> None:
    inside = Attempt("GET /operator/nodes", "/operator/nodes", "GET", b"")
    door = Attempt("GET /operator/login", "/operator/login", "GET", b"")

    assert leaks(inside, Answer(200), ALICE) == ["GET /operator/nodes answers 200: it is for staff"]
    assert leaks(inside, Answer(403), ALICE) == leaks(door, Answer(200), ALICE) == []
