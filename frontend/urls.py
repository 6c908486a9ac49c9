"""Addresses of the pages."""

from django.urls import URLPattern, URLResolver, path

from frontend import join_views, key_views, overview_views, worker_views

urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview_views.index, name="index"),
    path("live", overview_views.live, name="live"),
    path("try", overview_views.try_prompt, name="try"),
    path("join", join_views.join, name="join"),
    path("join/devices", join_views.devices, name="join-devices"),
    path("worker", worker_views.worker, name="worker"),
    path("keys", key_views.keys, name="keys"),
    path("keys/<int:key_id>/revoke", key_views.revoke, name="key-revoke"),
]
