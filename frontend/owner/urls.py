"""Addresses below /me/."""

from django.urls import URLPattern, path

from frontend.owner import sign_in, views

NODE = "me/devices/<str:node_id>"

urlpatterns: list[URLPattern] = [
    path("me/", views.me, name="me"),
    path("me/devices", views.devices, name="me-devices"),
    path("me/devices/add", views.add_device, name="me-add"),
    path("me/devices/adopt", views.adopt_device, name="me-adopt"),
    path(f"{NODE}/token", views.new_token, name="me-token"),
    path(f"{NODE}/leave", views.leave, name="me-leave"),
    path(f"{NODE}/forget", views.forget_device, name="me-forget"),
    path("me/invite", views.invite, name="me-invite"),
    path("me/payee", views.payee, name="me-payee"),
    path("me/statement.csv", views.statement_file, name="me-statement"),
    path("me/close", views.close, name="me-close"),
    path("me/closed", sign_in.closed, name="me-closed"),
    path("me/sign-in", sign_in.sign_in, name="me-sign-in"),
    path("me/sign-up", sign_in.sign_up, name="me-sign-up"),
    path("me/sign-out", sign_in.sign_out, name="me-sign-out"),
]
