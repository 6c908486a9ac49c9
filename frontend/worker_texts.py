"""What the scripts of `/worker` say (static/worker/texts.js): the page hands them the texts of its language.

Names in braces are filled in by the scripts. What the server refuses, and why there is no work, is said by its stable
code; `{message}` is then the server's own sentence, which is English. tests/browser_worker/test_texts.py compares the
lists with the scripts and with the codes of market, slices and relay.
"""

from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_noop as _

TEXTS = (
    _("1 expert"),
    _("{count} experts"),
    _("layer {layer}, expert {first}"),
    _("layer {layer}, experts {first}-{last}"),
    _("{count} experts of {layers} layers"),
    _("{size}, checked"),
    _("{done} of {size}"),
    _("download of {label}"),
    _("and {count} more"),
    _("1 expert takes {size} of memory, and as much of this browser's storage."),
    _("{count} experts take {size} of memory, and as much of this browser's storage."),
    _("Pays up to {credits} credits an hour."),
    _("Nothing is wanted at this size now."),
    _("Battery {percent}%, charging. Below 20 percent it rests in any case."),
    _("Battery {percent}%, not charging. Below 20 percent it rests in any case."),
    _("This browser does not tell about the battery: please keep the device plugged in yourself."),
    _("paused: the battery is at {level}%; it goes on at {enough}%"),
    _("paused: this device is not charging; plug it in, or allow lending on battery below"),
    _("paused: this tab is hidden; it goes on as soon as you look at it"),
    _("paused: this device is {factor} times slower than it was (heat, or other work); on again in {seconds} seconds"),
    _("this browser gives no more room for storage: after a reload the experts are downloaded again"),
    _("this browser keeps nothing (a private window?): after a reload the experts are downloaded again"),
    _("this device is offline"),
    _("the server cannot be reached"),
    _("the server answered {status}"),
    _("the server's manifest is not that of the claimed slice"),
    _("the pieces do not give the slice of the manifest"),
    _("a piece of the slice arrived damaged"),
    _("the connection to the relay broke"),
    _("the relay sent what this page does not understand: {why}"),
    _("the relay is closing"),
    _("the relay is silent"),
    _("{reason}; connecting again"),
    _("starting"),
    _("asking the server for work"),
    _("going on"),
    _("off: nothing is lent"),
    _("no model is on offer at the moment; come back later"),
    _("no work because {why}"),
    _("nothing is wanted"),
    _("downloading {what}: {done} of {size}"),
    _("{held}: the server checks it"),
    _("serving {held}"),
    _("holding {held}, but {why}"),
    _("{why}; trying again in {seconds} seconds"),
    _("stopped; everything was given back"),
    _("this device now works in another tab or window"),
    _("the server refused this device: {why}"),
    _("the server does not know this device any more"),
    _("this browser has no memory left for so many experts: lend less"),
    _("this browser cannot compute experts: {why}"),
    _("this browser cannot run the worker: it is too old"),
    _("this device could not be registered: {why}"),
)


_ASKED_WRONGLY = _("the server does not accept what this page asks: {message}")
_UNKNOWN_DEVICE = _("the server does not know this device any more")
_OTHER_WORK = _("this device is registered for another kind of work")
_MODEL_CHANGED = _("the model was changed or taken away")
_HELD_BY_OTHERS = _("these experts are held by as many devices as are wanted")
_CLAIM_ENDED = _("the claim has ended meanwhile")
_BUSY = _("the server has too much to do at the moment")
_AWAY = _("the server cannot answer at the moment")
_FAILED = _("the server failed; its operator can find out why")
_FILES = _("the server cannot read the files of the model")

# Stable code of the market, the slices or the relay -> text.
CODES = {
    **dict.fromkeys(("bad_request", "body_too_large", "not_found", "forbidden", "method_not_allowed"), _ASKED_WRONGLY),
    **dict.fromkeys(("range_required", "range_not_satisfiable", "range_outside"), _ASKED_WRONGLY),
    **dict.fromkeys(("bad_preamble", "bad_hello", "protocol_violation", "too_much"), _ASKED_WRONGLY),
    **dict.fromkeys(("bad_token", "unknown_node"), _UNKNOWN_DEVICE),
    **dict.fromkeys(("wrong_kind", "wrong_role"), _OTHER_WORK),
    **dict.fromkeys(("unknown_build", "build_mismatch", "slice_changed"), _MODEL_CHANGED),
    **dict.fromkeys(("over_subscribed", "conflict"), _HELD_BY_OTHERS),
    **dict.fromkeys(("unknown_claim", "claim_ended", "stale_fence"), _CLAIM_ENDED),
    **dict.fromkeys(("busy", "overloaded"), _BUSY),
    **dict.fromkeys(("cache_unreachable", "database_unreachable"), _AWAY),
    **dict.fromkeys(("internal", "unbalanced", "unknown_event", "broken_history"), _FAILED),
    **dict.fromkeys(("gguf_error", "not_gguf", "truncated", "missing_part", "dense_model", "unknown_type"), _FILES),
    **dict.fromkeys(("file_unreadable", "file_unwritable", "outside_folders", "bad_manifest"), _FILES),
    **dict.fromkeys(("not_a_slice", "not_a_stage", "no_stages", "cut_refused"), _FILES),
    "registration_closed": _("nobody new is let in at the moment"),
    "bad_invite": _("an invite code is needed here, and this is none, or it is used up or too old"),
    "too_many_requests": _("the server was asked too often from here"),
    "suspended": _("this device is suspended; the server says: {message}"),
    "leaving": _("this device has announced that it leaves"),
    "already_held": _("this device holds these experts already"),
    "budget_too_small": _("the memory that is lent holds less than one expert"),
    "budget_exhausted": _("the operator's budget for this hour is spent"),
    "no_work": _("nothing is wanted that this device could hold"),
    "no_builds": _("no model is on offer"),
    "types_unsupported": _("this page cannot compute the number formats of the model"),
    "fully_covered": _("every expert is held by as many devices as are wanted"),
    "digest_mismatch": _("the downloaded experts are not those that the server checked"),
    "not_claimed": _("nothing is claimed for this device now"),
    "not_verified": _("the server has not checked the experts yet"),
    "cap_reached": _("the most that these experts earn in one hour is earned"),
    "replaced": _("this device now works in another tab or window"),
    "protocol_version": _("this page is not of the server's version: reload it"),
}


def language() -> dict[str, dict[str, str]]:
    """For texts.js, in the language of this request: `texts`, English text -> text (empty where that is English), and
    `codes`, code -> text."""
    english = (get_language() or "en").startswith("en")
    texts = {} if english else {text: gettext(text) for text in TEXTS}
    return {"texts": texts, "codes": {code: gettext(text) for code, text in CODES.items()}}
