"""Database tables of `inference`: the generations that users asked for, and the keys they asked with."""

import uuid

from django.db import models


class ApiKey(models.Model):
    """A key of the OpenAI-compatible API. Only its digest is kept; `hint` shows which key it is.

    Keys are never deleted: a revoked one stays listed, and its digest stays refused.
    """

    name = models.CharField(max_length=100)
    key_sha256 = models.CharField(max_length=64, unique=True)  # hexadecimal
    hint = models.CharField(max_length=20)
    # Only workers that earned trust may see rows of its requests (docs/api.md).
    trusted_only = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"API key {self.name} ({self.hint})"


class GenerationJob(models.Model):
    """One generation, from the request to its last token.

    `attempt` counts the backbones that took it; it changes only by compare-and-set, so two of them never write as the
    same attempt. Prompt and parameters are erased when it ends: finished work keeps counts, not what people wrote.
    """

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # Who may read and cancel it; null: asked for by a page of ours.
    api_key = models.ForeignKey(ApiKey, null=True, blank=True, on_delete=models.PROTECT, related_name="jobs")
    model = models.CharField(max_length=200)
    prompt_tokens = models.JSONField(default=list)  # token ids
    sampling = models.JSONField(default=dict)  # fields of SamplingParameters
    priority = models.SmallIntegerField(default=0)  # see docs/api.md
    attempt = models.PositiveIntegerField(default=0)
    backbone_boot = models.CharField(max_length=32, blank=True, default="")  # who runs the present attempt
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    finish = models.CharField(max_length=10, blank=True, default="")
    error = models.TextField(blank=True, default="")
    prompt_count = models.PositiveIntegerField(default=0)
    generated_count = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = (models.Index(fields=["state", "created_at"], name="generation_state"),)

    def __str__(self) -> str:
        return f"generation {self.id} ({self.state})"
