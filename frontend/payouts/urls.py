"""Addresses below /payouts."""

from django.urls import URLPattern, path

from frontend.payouts import views

urlpatterns: list[URLPattern] = [
    path("payouts", views.payouts, name="payouts"),
    path("payouts/draft", views.draft, name="payout-draft"),
    path("payouts/settle", views.settle, name="payout-settle"),
    path("payouts/failed", views.failed, name="payout-failed"),
    path("payouts/audit", views.audit, name="payout-audit"),
    path("payouts/<int:batch_id>", views.payout, name="payout"),
    path("payouts/<int:batch_id>/act", views.act, name="payout-act"),
    path("payouts/<int:batch_id>/export.csv", views.export, name="payout-export"),
]
