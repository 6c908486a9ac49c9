"""The pages that have a picture, one line each. Addresses may name {build}, {node} (a device that holds experts) and
{model} (the path of the demo model)."""

from dataclasses import dataclass
from typing import Literal

# A phone, a tablet, a desk.
SIZES = {"phone": (360, 740), "tablet": (768, 1024), "desk": (1440, 900)}


@dataclass(frozen=True)
class Shot:
    """size: a key of SIZES. who: whose login sees it, empty: a stranger's. wait_for: a CSS selector that must be
    there first; press: keys on the page's map or form, one after the other, before the picture is taken."""

    name: str
    address: str
    size: Literal["phone", "tablet", "desk"] = "desk"
    scheme: Literal["light", "dark"] = "light"
    who: Literal["", "operator", "owner"] = ""
    wait_for: str = "main"
    focus: str = ""
    press: tuple[str, ...] = ()
    empty: bool = False


MAP, CHARTS = "#legend li", ".u-over"
OPERATOR = (
    Shot("operator-login", "/operator/login"),
    Shot("operator-coverage", "/operator/", who="operator", wait_for=MAP),
    Shot("operator-coverage-dark", "/operator/?measure=demand", scheme="dark", who="operator", wait_for=MAP),
    Shot("operator-coverage-phone", "/operator/", "phone", who="operator", wait_for=MAP),
    Shot("operator-latency", "/operator/?measure=latency", who="operator", wait_for=MAP),
    Shot("operator-cell", "/operator/", who="operator", wait_for=MAP, focus="#map",
         press=("ArrowDown", *["ArrowRight"] * 9, *["ArrowDown"] * 5, "+", "+", "+", "Enter")),
    Shot("operator-layer", "/operator/layer/{build}/12", who="operator"),
    Shot("operator-series", "/operator/series", who="operator", wait_for=CHARTS),
    Shot("operator-series-dark-phone", "/operator/series?minutes=1440", "phone", "dark", "operator", CHARTS),
    Shot("operator-nodes", "/operator/nodes", who="operator"),
    Shot("operator-nodes-tablet", "/operator/nodes?sort=-latency", "tablet", who="operator"),
    Shot("operator-nodes-phone", "/operator/nodes", "phone", "dark", who="operator"),
    Shot("operator-node", "/operator/nodes/{node}", who="operator"),
    Shot("operator-node-phone", "/operator/nodes/{node}", "phone", who="operator"),
    Shot("operator-ban", "/operator/nodes/{node}/ban", "tablet", who="operator"),
    Shot("operator-builds", "/operator/builds?path={model}", who="operator"),
    Shot("operator-requests", "/operator/requests", who="operator"),
    Shot("operator-alerts", "/operator/alerts", who="operator"),
    Shot("operator-policy", "/operator/policy?budget=4000&ceiling=10&target_replicas=4&maximum_replicas=8"
         "&target_bytes_percent=68&standby_percent=5", who="operator"),
    Shot("operator-empty", "/operator/", who="operator", empty=True),
    Shot("operator-empty-alerts", "/operator/alerts", "tablet", who="operator", empty=True),
)  # fmt: skip
OTHERS = (
    Shot("playground", "/"),
    Shot("playground-phone", "/?mode=chat", "phone", "dark"),
    Shot("status", "/status"),
    Shot("status-phone", "/status", "phone"),
    Shot("join", "/join", "tablet"),
    Shot("worker", "/worker", "phone"),
    Shot("sign-in", "/me/sign-in", "tablet"),
    Shot("owner", "/me/", who="owner"),
    Shot("owner-phone", "/me/", "phone", "dark", "owner"),
    Shot("payouts", "/payouts", who="operator"),
    Shot("payout-batch", "/payouts/1", who="operator"),
    Shot("payout-draft", "/payouts/draft", who="operator"),
    Shot("audit-log", "/payouts/audit", who="operator"),
    Shot("keys", "/keys", "tablet", who="operator"),
)
PAGES: tuple[Shot, ...] = (*OPERATOR, *OTHERS)
