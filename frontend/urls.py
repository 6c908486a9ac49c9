"""Addresses of the pages."""

from django.templatetags.static import static
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from frontend import join_views, key_views, language_views, worker_views
from frontend.owner import urls as owner_urls
from frontend.payouts import urls as payout_urls
from frontend.playground import views as playground_views
from frontend.status import views as status_views

urlpatterns: list[URLPattern | URLResolver] = [
    path("", playground_views.playground, name="index"),
    path("try", playground_views.answer, name="try"),
    path("try/code", playground_views.code, name="try-code"),
    path("status", status_views.status, name="status"),
    path("status/live", status_views.live, name="status-live"),
    path("language/<str:code>", language_views.language, name="language"),
    path("join", join_views.join, name="join"),
    path("join/devices", join_views.devices, name="join-devices"),
    path("worker", worker_views.worker, name="worker"),
    path("worker/offline", worker_views.offline, name="worker-offline"),
    path("worker-shell.js", worker_views.shell, name="worker-shell"),
    path("authority.crt", worker_views.authority_certificate, name="authority"),
    path("operator/", include("frontend.operator.urls")),
    path("keys", key_views.keys, name="keys"),
    # Browsers ask for it on pages that name no icon, such as the admin's.
    path("favicon.ico", RedirectView.as_view(url=static("frontend/icon.svg"), permanent=True)),
    path("keys/<int:key_id>/revoke", key_views.revoke, name="key-revoke"),
    *owner_urls.urlpatterns,
    *payout_urls.urlpatterns,
]
