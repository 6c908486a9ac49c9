"""The ASGI application: HTTP goes to Django, WebSockets to the relay; around both, what a process of a server needs.

The relay looks at the Origin of a browser's socket itself (relay/origin.py).
"""

import asyncio
import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

# Sets Django up; the relay imports models.
_django = get_asgi_application()

from django.conf import settings  # noqa: E402

from config.client_address import ClientAddress  # noqa: E402
from config.draining import Draining  # noqa: E402
from relay.allocator import keep_freed_memory  # noqa: E402
from relay.consumers import ROSTER  # noqa: E402
from relay.draining import drain  # noqa: E402
from relay.registration import start_registrar, stop_registrar  # noqa: E402
from relay.routing import websocket_urlpatterns  # noqa: E402

keep_freed_memory()
start_registrar()


async def leave(seconds: float) -> None:
    """The relay of this process is no longer found, and its workers go to another one."""
    await asyncio.to_thread(stop_registrar)
    await drain(ROSTER, seconds)


_router = ProtocolTypeRouter({"http": _django, "websocket": URLRouter(websocket_urlpatterns)})
application = Draining(ClientAddress(_router, settings.TRUSTED_PROXIES), settings.WEB_DRAIN_SECONDS, leave)
