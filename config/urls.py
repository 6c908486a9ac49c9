"""Every address of the server, in one list."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from market.api import urls as node_api_urls
from relay.views import relays

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", admin.site.urls),
    path("", include("inference.urls")),
    path("api/relays", relays),
    path("api/", node_api_urls),
    path("", include("frontend.urls")),
]
# The one JSON error shape below /api/, Django's page elsewhere.
handler404 = "market.api_errors.page_not_found"
