"""The ASGI application: HTTP goes to Django, WebSockets to the relay.

No check of the Origin header on WebSockets: workers are no browsers, a browser worker may run on any page, and the
relay authenticates every connection by a token that no browser sends by itself.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

# Sets Django up; the relay imports models.
_django = get_asgi_application()

from relay.allocator import keep_freed_memory  # noqa: E402
from relay.registration import start_registrar  # noqa: E402
from relay.routing import websocket_urlpatterns  # noqa: E402

keep_freed_memory()
start_registrar()

application = ProtocolTypeRouter({"http": _django, "websocket": URLRouter(websocket_urlpatterns)})
