"""Events to JSON bodies and back, through every older version that was ever written. Pure.

A stored body has exactly the fields of its version. When an event changes, raise its VERSION, add a function from the
old body to the new one to `market.upcasters`, and keep a sample of the old body in tests/market/samples/.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from market.errors import UnknownEvent
from market.events import EVENT_TYPES, Event
from market.upcasters import UPCASTERS, Body

Convert = Callable[[Any], Any]

EVENT_BY_NAME: Mapping[str, type[Event]] = {event_type.NAME: event_type for event_type in EVENT_TYPES}


def _same(value: Any) -> Any:
    return value


def _encoder(hint: Any) -> Convert:
    """What turns a field of this type into JSON values."""
    if hint is datetime:
        return datetime.isoformat
    if get_origin(hint) is tuple:
        item = _encoder(get_args(hint)[0])
        return list if item is _same else lambda values: [item(value) for value in values]
    if is_dataclass(hint):
        parts = [(name, _encoder(part)) for name, part in _field_types(hint)]
        return lambda value: {name: convert(getattr(value, name)) for name, convert in parts}
    return _same


def _decoder(hint: Any) -> Convert:
    """What turns JSON values into a field of this type; wrong shapes raise TypeError, KeyError or ValueError."""
    if hint is datetime:
        return datetime.fromisoformat
    if get_origin(hint) is tuple:
        item = _decoder(get_args(hint)[0])
        return tuple if item is _same else lambda values: tuple([item(value) for value in values])
    if is_dataclass(hint):
        return _dataclass_decoder(hint)
    return _same


def _dataclass_decoder(kind: Any) -> Convert:
    parts = [(name, _decoder(part)) for name, part in _field_types(kind) if _decoder(part) is not _same]

    def decode_fields(body: Body) -> Any:
        values = dict(body)
        for name, convert in parts:
            values[name] = convert(values[name])
        return kind(**values)

    return decode_fields


def _field_types(kind: Any) -> list[tuple[str, Any]]:
    hints = get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in fields(kind)]


def _refuse_optional_structures(kind: Any) -> None:
    """`X | None` is passed through unchanged, which is only right where X is a plain JSON value."""
    for name, hint in _field_types(kind):
        if isinstance(hint, UnionType) and not set(get_args(hint)) <= {int, str, bool, type(None)}:
            raise TypeError(f"{kind.__name__}.{name} has a type that the codec does not know: {hint}")


for _event_type in EVENT_TYPES:
    _refuse_optional_structures(_event_type)
_ENCODERS: dict[type, Convert] = {event_type: _encoder(event_type) for event_type in EVENT_TYPES}
_DECODERS: dict[str, Convert] = {event_type.NAME: _dataclass_decoder(event_type) for event_type in EVENT_TYPES}


def encode(event: Event) -> Body:
    """The JSON body that is stored for `event`."""
    body: Body = _ENCODERS[type(event)](event)
    return body


def decode(name: str, version: int, body: Body) -> Event:
    """The event of a stored row; raises UnknownEvent when this program cannot read it."""
    event_type = EVENT_BY_NAME.get(name)
    if event_type is None:
        raise UnknownEvent(f"no event is named {name!r}; this program is older than its database")
    while version < event_type.VERSION:
        upcast = UPCASTERS.get((name, version))
        if upcast is None:
            raise UnknownEvent(f"there is no way from version {version} of {name!r} to the next")
        body, version = upcast(body), version + 1
    if version > event_type.VERSION:
        raise UnknownEvent(f"version {version} of {name!r} is newer than this program")
    try:
        event: Event = _DECODERS[name](body)
    except (TypeError, KeyError, ValueError, AttributeError) as problem:
        raise UnknownEvent(f"the body of {name!r} version {version} is wrong: {problem}") from problem
    return event
