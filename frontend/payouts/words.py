"""Words of the market as the payout pages say them: looked up by their stored name, translated when shown."""

from django.utils.translation import gettext_lazy as _

STATES = {
    "drafted": _("drafted"),
    "approved": _("approved"),
    "sending": _("being sent"),
    "sent": _("sent"),
    "closed": _("closed"),
    "cancelled": _("cancelled"),
    "reserved": _("open"),
    "settled": _("settled"),
    "failed": _("failed"),
    "returned": _("came back"),
}
KINDS = {"new": _("new"), "gone": _("not this time"), "same": _("as before"), "changed": _("changed")}
LEFT_OUT = {
    "erased": _("the device was removed"),
    "suspended": _("the device is suspended"),
    "no_account": _("the device has no account"),
    "no_payee": _("the account has no payout method"),
    "below_minimum": _("below the minimum, or credited after the cut-off"),
}
# Labels and hints of the forms that these pages share with the admin.
LABELS = {
    "reason": _("Reason"),
    "key": _("Key"),
    "minimum_microcredits": _("Minimum (microcredits)"),
    "reserve_percent": _("Reserve (percent)"),
    "cutoff": _("Cut-off"),
    "file": _("File"),
}
HINTS = {
    "reason": _("Stored with your name; the owner can read it."),
    "key": _("A key drafts once."),
    "cutoff": _("UTC; what was credited later stays out. Empty: now."),
    "file": _("CSV: item_id, status (settled, failed, returned), reference, reason."),
}
ALL = {**STATES, **KINDS, **LEFT_OUT}
