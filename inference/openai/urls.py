"""Addresses below /v1/."""

from django.urls import URLPattern, URLResolver, path, re_path

from inference.openai import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("models", views.models, name="openai-models"),
    path("models/<path:name>", views.model, name="openai-model"),
    path("completions", views.completions, name="openai-completions"),
    path("chat/completions", views.chat_completions, name="openai-chat"),
    path("generations/<str:generation_id>", views.generation, name="generation"),
    path("generations/<str:generation_id>/stream", views.generation_stream, name="generation-stream"),
    re_path(r"^(?P<rest>.*)$", views.unknown_address),
]
