"""Plain builders for the relay's tests: Alice runs the backbone, Bob hosts experts."""

from relay.records import Json, Replica

BUILD = "0123456789abcdef" * 2
SHA256 = "ab" * 32


def replica(claim_id: int = 7, layer: int = 3, first: int = 0, last: int = 8, fence: int = 1) -> Replica:
    return Replica(claim_id, fence, layer, first, last, SHA256)


def replica_json(**fields: object) -> Json:
    data = replica().to_json()
    del data["state"]
    return {**data, **fields}


def hello_json(**fields: object) -> Json:
    hello = {"protocol": 1, "token": "bob-token", "build": BUILD, "kernel_class": "numpy", "capabilities": {}}
    return {**hello, "name": "Bob", "replicas": [replica_json()], **fields}
