"""The WebSocket addresses of the server, in one list."""

from django.urls import URLPattern, path, re_path

from relay.consumers import RelayConsumer, UnknownPath

websocket_urlpatterns: list[URLPattern] = [
    path("relay/", RelayConsumer.as_asgi()),
    re_path(r"", UnknownPath.as_asgi()),
]
