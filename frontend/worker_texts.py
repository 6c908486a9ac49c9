"""What the scripts of `/worker` say (static/worker/texts.js): the page hands them the texts of its language.

Names in braces are filled in by the scripts. tests/browser_worker/test_texts.py compares the list with the scripts.
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


def texts() -> dict[str, str]:
    """English text -> text in the language of this request; empty where that is English."""
    return {} if (get_language() or "en").startswith("en") else {text: gettext(text) for text in TEXTS}
