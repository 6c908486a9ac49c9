"""Addresses of the pages."""

from django.templatetags.static import static
from django.urls import URLPattern, URLResolver, path
from django.views.generic import RedirectView

from frontend import join_views, key_views, overview_views, worker_views

urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview_views.index, name="index"),
    path("live", overview_views.live, name="live"),
    path("try", overview_views.try_prompt, name="try"),
    path("join", join_views.join, name="join"),
    path("join/devices", join_views.devices, name="join-devices"),
    path("worker", worker_views.worker, name="worker"),
    path("keys", key_views.keys, name="keys"),
    # Browsers ask for it on pages that name no icon, such as the admin's.
    path("favicon.ico", RedirectView.as_view(url=static("frontend/icon.svg"), permanent=True)),
    path("keys/<int:key_id>/revoke", key_views.revoke, name="key-revoke"),
]
