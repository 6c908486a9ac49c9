"""The pages that are looked at, and as whom. A page that somebody adds belongs here."""

from typing import NamedTuple


class Shown(NamedTuple):
    """who: "" for a visitor, or a name of `tests.frontend.site`."""

    name: str
    address: str
    who: str = ""


READING = (
    Shown("playground", "/"),
    Shown("playground-chat", "/?mode=chat"),
    Shown("status", "/status"),
    Shown("join", "/join"),
    Shown("sign-in", "/me/sign-in"),
    Shown("owner", "/me/", "bob"),
    Shown("owner-empty", "/me/", "olga"),
    Shown("close", "/me/close", "bob"),
    Shown("payouts", "/payouts", "olga"),
    Shown("payout-draft", "/payouts/draft?minimum_microcredits=1&reserve_percent=5&cutoff=", "olga"),
    Shown("payout", "/payouts/1", "olga"),
    Shown("payout-failed", "/payouts/failed", "olga"),
    Shown("audit-log", "/payouts/audit", "olga"),
    Shown("keys", "/keys", "olga"),
)
# Pages of others, looked at by axe and for their width; some live by their scripts.
OTHERS = (
    Shown("worker", "/worker"),
    Shown("operator-login", "/operator/login"),
    Shown("operator", "/operator/", "olga"),
    Shown("operator-stages", "/operator/?measure=reward#stages", "olga"),
    Shown("operator-series", "/operator/series", "olga"),
    Shown("operator-nodes", "/operator/nodes", "olga"),
    Shown("operator-phone", "/operator/nodes/add", "olga"),
    Shown("operator-builds", "/operator/builds", "olga"),
    Shown("operator-requests", "/operator/requests", "olga"),
    Shown("operator-alerts", "/operator/alerts", "olga"),
    Shown("operator-policy", "/operator/policy", "olga"),
)
EVERY = (*READING, *OTHERS)
