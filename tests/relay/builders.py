"""Plain builders for the relay's tests: Alice runs the backbone, Bob hosts experts, Dora a stage."""

from relay.admission import Claim, Node, Standing
from relay.errors import MarketAway
from relay.records import Json, Replica

BUILD = "0123456789abcdef" * 2
STAGES = "5" * 32
SHA256 = "ab" * 32


def replica(claim_id: int = 7, layer: int = 3, first: int = 0, last: int = 8, fence: int = 1) -> Replica:
    return Replica(claim_id, fence, layer, first, last, SHA256)


def replica_json(**fields: object) -> Json:
    data = replica().to_json()
    del data["state"]
    return {**data, **fields}


def claim(claim_id: int = 7, **fields: object) -> Claim:
    held = {**replica(claim_id).to_json(), "build": BUILD, "state": "live", **fields}
    return Claim(**held)


def stage_claim() -> Claim:
    return claim(9, build=STAGES, layer=0, first=0, last=4)


def stage_hello_json(**fields: object) -> Json:
    """HELLO of a stage that holds the units [0, 4)."""
    held = replica_json(claim_id=9, layer=0, first=0, last=4)
    return hello_json(**{"token": "dora-token", "build": STAGES, "name": "Dora", "replicas": [held], **fields})


def hello_json(**fields: object) -> Json:
    hello = {"protocol": 1, "token": "bob-token", "build": BUILD, "kernel_class": "numpy", "capabilities": {}}
    return {**hello, "name": "Bob", "replicas": [replica_json()], **fields}


class FakeMarket:
    """An Authenticator whose answers a test sets: Alice's credential, Bob's and Carol's nodes, Mallory suspended."""

    def __init__(self) -> None:
        self.backbone_token = "alice-token"
        self.standings = {
            "bob-token": Standing(Node("bob", "Bob", suspended=False), [claim()]),
            "carol-token": Standing(Node("carol", "Carol", suspended=False), [claim(claim_id=8)]),
            "dora-token": Standing(Node("dora", "Dora", suspended=False, role="stage"), [stage_claim()]),
            "mallory-token": Standing(Node("mallory", "Mallory", suspended=True)),
        }
        self.builds = {BUILD, STAGES}
        self.seen: list[str] = []
        self.left: list[str] = []
        self.newest: dict[str, str] = {}
        self.questions = 0
        self.is_down = False

    def is_backbone(self, token: str) -> bool:
        return token == self.backbone_token

    async def standing(self, token: str) -> Standing | None:
        self.questions += 1
        if self.is_down:
            raise MarketAway("the database cannot be reached")
        return self.standings.get(token)

    async def knows_build(self, build: str) -> bool:
        return build in self.builds

    async def mark_seen(self, node_id: str) -> None:
        self.seen.append(node_id)

    async def mark_left(self, node_id: str) -> None:
        self.left.append(node_id)

    async def take_over(self, node_id: str, session: str) -> None:
        self.newest[node_id] = session

    async def is_newest(self, node_id: str, session: str) -> bool:
        return self.newest.get(node_id, session) == session
