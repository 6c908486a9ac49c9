"""Addresses of the inference app."""

from django.urls import URLPattern, URLResolver, include, path, re_path

from inference import slice_views, status_views

# Numbers are bounded here, so that no view and no database meets one that it cannot hold.
SLICE = r"^api/slices/(?P<build>[0-9a-f]{32})/(?P<layer>[0-9]{1,6})/(?P<first>[0-9]{1,6})-(?P<last>[0-9]{1,6})"

urlpatterns: list[URLPattern | URLResolver] = [
    re_path(SLICE + r"$", slice_views.data, name="slice"),
    re_path(SLICE + r"/manifest$", slice_views.manifest, name="slice-manifest"),
    path("v1/", include("inference.openai.urls")),
    path("api/stats", status_views.api_stats, name="stats"),
    path("metrics", status_views.prometheus, name="metrics"),
    path("healthz", status_views.alive, name="alive"),
    path("readyz", status_views.ready, name="ready"),
]
