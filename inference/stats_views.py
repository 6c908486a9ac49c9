"""`/api/stats`: the figures of the running swarm, for anybody."""

import logging

import redis
from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from inference import stats

logger = logging.getLogger(__name__)


@require_safe
def api_stats(request: HttpRequest) -> JsonResponse:
    """200 with the figures, or 503 `unavailable` while Redis or the database is away."""
    try:
        return JsonResponse(stats.collect())
    except (redis.RedisError, DatabaseError) as error:
        logger.warning("no figures: %s", error)
        message = "Redis or the database does not answer; try again in a moment"
        return JsonResponse({"error": {"code": "unavailable", "message": message}}, status=503)
